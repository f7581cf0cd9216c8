"""Files of a table, as pandas, Spark, Dask and Hive write them, and `Part`: one of them, read as runs of records."""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from singa_dask.data import fs
from singa_dask.data.codecs.csv_records import Run, is_number
from singa_dask.data.codecs.table_spec import TableSpec
from singa_dask.data.fs.byte_source import Bytes, Range
from singa_dask.data.stores.opening import check_splits, is_pattern, shard_urls
from singa_dask.data.stores.range_store import read_ranges
from singa_dask.data.stores.table_whole import WHOLE_SUFFIXES
from singa_dask.errors import DataError

# local files, which are mapped, and files that are held in memory
MAX_LOCAL = 8
MAX_REMOTE = 256
CSV_SUFFIXES = (".csv", ".tsv", ".txt", ".data")
PARQUET_SUFFIXES = (".parquet", ".pq", ".parq")
PACKED = ".gz"
PARQUET_MAGIC = b"PAR1"
# directory of Spark's unfinished tasks
UNFINISHED = "_temporary"
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
MAX_DEPTH = 16
DIGITS = re.compile(r"(\d+)")


class TableFile(NamedTuple):
    """A file, and the columns that the names of its directories give: name and value, None for no value."""

    url: str
    keys: tuple[tuple[str, str | None], ...] = ()


def table_files(url: str, storage_options: fs.Options = None) -> list[TableFile]:
    """Return the files of a table, in order: names are sorted, numbers in them by their value.

    In a directory, names that begin with ``_`` or ``.`` and empty files are left out; directories ``key=value`` give
    columns.

    Raises
    ------
    DataError
        There are none, or the directory is not complete.
    """
    if is_pattern(url):
        return [TableFile(each) for each in sorted(shard_urls(url, storage_options), key=_natural)]
    if not fs.exists(url, storage_options):
        raise DataError(f"{url}: no such file or directory.")
    if not fs.is_dir(url, storage_options):
        return [TableFile(url)]
    found = _inside(url.rstrip("/"), (), storage_options)
    if not found:
        raise DataError(f"{url}: no files of a table in this directory.")
    check_splits(url, [each.url for each in found])
    keys = [name for name, _ in found[0].keys]
    for each in found:
        if [name for name, _ in each.keys] != keys:
            raise DataError(f"{each.url}: expected directories {'/'.join(f'{key}=...' for key in keys) or url}.")
    return found


def _inside(url: str, keys: tuple[tuple[str, str | None], ...], storage_options: fs.Options) -> list[TableFile]:
    entries = {name: (is_folder, n_bytes) for name, is_folder, n_bytes in fs.entries(url, storage_options)}
    if UNFINISHED in entries:
        raise DataError(f"{url}: has a directory {UNFINISHED}: a job that writes it has not ended, or has failed.")
    found: list[TableFile] = []
    for name in sorted(entries, key=_natural):
        place, (is_folder, n_bytes) = fs.join(url, name), entries[name]
        if name[0] in "._":
            continue
        if is_folder:
            key, equals, value = name.partition("=")
            if not equals or len(keys) == MAX_DEPTH:
                raise DataError(f"{place}: a directory in a table. Expected files, or directories named key=value.")
            text = None if value == HIVE_NULL else unquote(value)
            found += _inside(place, (*keys, (unquote(key), text)), storage_options)
        elif n_bytes:
            found.append(TableFile(place, keys))
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts ``part.2`` before ``part.10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in DIGITS.split(name)]


def format_of(files: Sequence[TableFile], storage_options: fs.Options = None) -> str:
    """Return ``csv``, ``parquet``, or ``whole`` for files that are read as a whole.

    Raises
    ------
    DataError
        A file is neither, or the files differ.
    """
    first = _format(files[0].url, storage_options)
    for each in files[1:]:
        if each.url.lower().endswith((*CSV_SUFFIXES, *PARQUET_SUFFIXES)) and _format(each.url) != first:
            raise DataError(f"{each.url}: not {first}, unlike {files[0].url}.")
    return first


def _format(url: str, storage_options: fs.Options = None) -> str:
    if url.lower().endswith(WHOLE_SUFFIXES):
        return "whole"
    name = url.lower().removesuffix(PACKED)
    if name.endswith(PARQUET_SUFFIXES):
        return "parquet"
    if name.endswith(CSV_SUFFIXES):
        return "csv"
    head = fs.read_bytes(url, 0, min(len(PARQUET_MAGIC), fs.size(url, storage_options)), storage_options)
    if head == PARQUET_MAGIC:
        return "parquet"
    raise DataError(f"{url}: neither CSV nor Parquet. Columns have names in these; give backend if it is one of them.")


def kind_of_key(files: Sequence[TableFile], i: int) -> str:
    """Return the kind of the i-th column that directories give: ``number`` or ``string``."""
    texts = [each.keys[i][1] for each in files]
    return "number" if all(text is None or is_number(text) for text in texts) else "string"


def with_keys(table: pa.Table, file: TableFile, wanted: Mapping[str, str]) -> pa.Table:
    """Return the rows of a file with the columns that its directories give, of those that are wanted."""
    keys = dict(file.keys)
    for name in wanted.keys() & keys.keys():
        kind = pa.float64() if wanted[name] == "number" else pa.string()
        value = float(keys[name] or "nan") if wanted[name] == "number" else keys[name]
        table = table.append_column(name, pa.repeat(pa.scalar(value, kind), len(table)))
    return table


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
    start : int
        Offset of the first record of CSV.
    faults : dict of str to str
        What is wrong with columns of text that may be meant otherwise; known once `kinds` are.
    """

    url: str
    source: Bytes
    names: tuple[str, ...]
    index: tuple[str, ...] = ()
    start: int = 0
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


class _Slot:
    """A file, and the lock of the thread that opens it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.part: Part | None = None


class OpenParts:
    """The parts of a table that were used last. Any thread may use it; several can open files at the same time.

    Parts that are no longer kept are closed when nobody uses them or views of them.

    Parameters
    ----------
    open_part : callable
        Index of a file -> `Part`.
    """

    def __init__(self, open_part: Callable[[int], Part]) -> None:
        self._open = open_part
        self._lock = threading.Lock()
        self._slots: OrderedDict[int, _Slot] = OrderedDict()

    def __call__(self, file: int) -> Part:
        """Return a part, opened if it is not open."""
        with self._lock:
            slot = self._slots.setdefault(file, _Slot())
            self._slots.move_to_end(file)
        with slot.lock:
            if slot.part is None:
                slot.part = self._open(file)
                self._limit(MAX_LOCAL if slot.part.source.is_local else MAX_REMOTE)
            return slot.part

    def find(self, file: int) -> Part | None:
        """Return a part if it is open; does not wait."""
        with self._lock:
            slot = self._slots.get(file)
        return slot.part if slot else None

    def _limit(self, n: int) -> None:
        with self._lock:
            while len(self._slots) > n:
                self._slots.popitem(last=False)

    def close(self) -> None:
        """Keep no part."""
        with self._lock:
            self._slots.clear()


@dataclass(frozen=True)
class TableReader:
    """Reads the rows of runs, with the columns that directories give.

    Attributes
    ----------
    parts : OpenParts
    files : sequence of TableFile
    spec : TableSpec
    """

    parts: OpenParts
    files: Sequence[TableFile]
    spec: TableSpec

    def wanted(self, kinds: Mapping[str, str], features: Sequence[str]) -> dict[str, str]:
        """Return the kind in which each column is read."""
        named = {name: "string" for name in self.spec.categories}
        return {name: named.get(name, kinds[name]) for name in (*features, *self.spec.outputs)}

    def in_file(self, file: int, wanted: Mapping[str, str]) -> dict[str, str]:
        """Return the columns that a file holds, without those that its directories give."""
        keys = dict(self.files[file].keys)
        return {name: kind for name, kind in wanted.items() if name not in keys}

    def decode(self, file: int, run: Run, wanted: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        """Return the rows of a run from its bytes."""
        return with_keys(self.parts(file).decode(run, self.in_file(file, wanted), data), self.files[file], wanted)

    def salvage(
        self, file: int, run: Run, wanted: Mapping[str, str], data: Sequence[memoryview]
    ) -> tuple[pa.Table, dict[int, str]]:
        """Return the rows of a run that can be read, and what is wrong with each other one."""
        table, bad = self.parts(file).salvage(run, self.in_file(file, wanted), data)
        return with_keys(table, self.files[file], wanted), bad
