"""TablePart: one file of a table, read in runs. OpenRuns: partly decoded row groups."""

from __future__ import annotations

import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError
from singa_dask.fs.sources import Bytes, Range, read_ranges

# formats whose records are ranges of text
LINES = ("csv", "jsonl")


class TablePart(ABC):
    """One file of a table. Any thread may call `fetch`.

    Attributes
    ----------
    url : str
    source : Bytes
    names : tuple of str
        Names of the columns.
    index : tuple of str
        Names of columns that number the rows.
    start : int
        For CSV, the offset of the first record.
    faults : dict of str to str
        Faults of columns of text that were probably meant to be numbers. Set by `kinds`.
    not_text : DataError or None
        Error of the first record in another encoding. Set by `kinds`.
    floats : collection of str
        Columns of numbers that may have decimals. Set by `kinds`.
    open_runs : OpenRuns
        Row groups of all files of the table that are partly decoded.
    """

    open_runs: OpenRuns
    url: str
    source: Bytes
    names: tuple[str, ...]
    index: tuple[str, ...] = ()
    start: int = 0
    faults: Mapping[str, str] = MappingProxyType({})
    not_text: DataError | None = None
    floats: Collection[str] = frozenset()

    @functools.cached_property
    def _name_set(self) -> frozenset[str]:
        return frozenset(self.names)

    def lacks(self, column: str) -> bool:
        """Return whether no record of the file has a column."""
        return column not in self._name_set

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """Type of each column, if the format stores types; empty for text formats."""
        return {}

    @property
    @abstractmethod
    def kinds(self) -> dict[str, str]:
        """Kind of each column; see `column_kind`. Empty if there are no records."""

    def class_names(self, column: str) -> tuple[str, ...]:
        """Return the class names in the file for a column of integers; the column can be read as strings."""
        return ()

    def is_text(self, column: str) -> bool:
        """Return whether a column that is not of strings can be read as strings."""
        return bool(self.class_names(column))

    def width(self, column: str) -> int:
        """Return the length of the first vector of a column; 0 if it has none."""
        return 0

    @abstractmethod
    def runs(self, block_bytes: int, row_bytes: int) -> Iterator[RecordRun]:
        """Yield runs of about ``block_bytes``, of text or of records of ``row_bytes``."""

    @abstractmethod
    def ranges(self, run: RecordRun, kinds: Mapping[str, str]) -> tuple[Range, ...]:
        """Return the ranges of the file that contain some columns of a run."""

    def fetch_bytes(self, run: RecordRun, kinds: Mapping[str, str]) -> int:
        """Return the approximate number of bytes of some columns in a run."""
        return sum(each.length for each in self.ranges(run, kinds))

    def fetch(self, run: RecordRun, kinds: Mapping[str, str], again: bool = False) -> list[memoryview]:
        """Read the bytes of the `ranges` of a run; see `RangeStore.fetch`."""
        return read_ranges(self.ranges(run, kinds), again)

    def rows(
        self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]
    ) -> Callable[[int, int], pa.Table]:
        """Return a function from (first, stop) to rows of a run. It raises an error if a row is bad.

        Use this method for a run that `decode` cannot read. Raises a `DataError` if the rows cannot be read one by one.
        """
        table = self.decode(run, kinds, data)
        return lambda first, stop: table.slice(first, stop - first)

    @abstractmethod
    def decode(self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        """Decode the bytes of a run; return columns of the given kinds.

        Raises a `DataError` that names the place if a record is invalid, or the file is damaged.
        """

    @abstractmethod
    def place(self, run: RecordRun, data: Sequence[memoryview]) -> Callable[[int], str]:
        """Return a function that maps a row of a run to its place in the file, for errors."""


class OpenRun(NamedTuple):
    """A partly decoded row group.

    Attributes
    ----------
    at : int
        Next row of the file.
    batches : iterator of pyarrow.RecordBatch
        The rows from ``at`` on.
    data : sequence of memoryview
        Bytes of the row group, kept so that other readers share them.
    """

    at: int
    batches: Iterator[pa.RecordBatch]
    data: Sequence[memoryview]


class OpenRuns:
    """The `n` most recently used, partly decoded row groups of a table.

    A row group can occur several times, for readers at different rows.
    """

    def __init__(self) -> None:
        self.n = 16
        self._lock = threading.Lock()
        # open runs; the most recently used run is the last
        self._runs: list[tuple[object, OpenRun]] = []

    def take(self, key: object, row: int) -> OpenRun | None:
        """Remove and return the open run of a row group that is closest before a row, or None."""
        with self._lock:
            candidates = [pair for pair in self._runs if pair[0] == key and pair[1].at <= row]
            if not candidates:
                return None
            taken = max(candidates, key=lambda pair: pair[1].at)
            self._runs.remove(taken)
            return taken[1]

    def keep(self, key: object, run: OpenRun) -> None:
        """Add a run."""
        with self._lock:
            self._runs = [*self._runs, (key, run)][-self.n :]

    def clear(self) -> None:
        """Remove all runs."""
        with self._lock:
            self._runs.clear()
