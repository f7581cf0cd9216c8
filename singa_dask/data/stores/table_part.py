"""Part: one file of a table, read as runs of records with named columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from singa_dask.data.codecs.csv_records import Run
from singa_dask.data.fs.byte_source import Bytes, Range
from singa_dask.data.stores.range_store import read_ranges

__all__ = ["Part"]


class Part(ABC):
    """One file of a table. Any thread may call `fetch`.

    Attributes
    ----------
    url : str
    source : Bytes
    names : tuple of str
        Columns.
    index : tuple of str
        Columns that number the rows.
    faults : dict of str to str
        What is wrong with columns of text that may be meant otherwise; known once `kinds` are.
    """

    url: str
    source: Bytes
    names: tuple[str, ...]
    index: tuple[str, ...] = ()
    faults: Mapping[str, str] = MappingProxyType({})

    @property
    @abstractmethod
    def kinds(self) -> dict[str, str]:
        """Kind of each column, see `column_kind`; empty if there are no records."""

    def class_names(self, column: str) -> tuple[str, ...]:
        """Return the class names that a file has for a column of integers, which is then read as strings, if wanted."""
        return ()

    @abstractmethod
    def runs(self, block_bytes: int, row_bytes: int) -> Iterator[Run]:
        """Yield runs of records: of about ``block_bytes``, or at most so many bytes of records of ``row_bytes``."""

    @abstractmethod
    def ranges(self, run: Run, kinds: Mapping[str, str]) -> tuple[Range, ...]:
        """Return the ranges of the file that hold some columns of a run."""

    def fetch_bytes(self, run: Run, kinds: Mapping[str, str]) -> int:
        """Return the bytes of these columns in a run, about."""
        return sum(each.length for each in self.ranges(run, kinds))

    def fetch(self, run: Run, kinds: Mapping[str, str], again: bool = False) -> list[memoryview]:
        """Read the bytes of its ranges, see `RangeStore.fetch`."""
        return read_ranges(self.ranges(run, kinds), again)

    def salvage(
        self, run: Run, kinds: Mapping[str, str], data: Sequence[memoryview]
    ) -> tuple[pa.Table, dict[int, str]]:
        """Decode the good rows of a run for which `decode` fails; return them, and what is wrong with each other row.

        Raises
        ------
        DataError
            Rows cannot be read one by one.
        """
        return self.decode(run, kinds, data), {}

    @abstractmethod
    def decode(self, run: Run, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        """Return columns, by their kinds, from the bytes of a run.

        Raises
        ------
        DataError
            A record is invalid, or the file damaged; names the place.
        """

    @abstractmethod
    def place(self, run: Run, data: Sequence[memoryview]) -> Callable[[int], str]:
        """Return a function: row of a run -> its place in the file, for errors."""
