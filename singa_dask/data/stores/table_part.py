"""Files of a table, as pandas, Spark, Dask and Hive write them, and `TablePart`: one of them, read as runs of records.

Here are those of Parquet, and those that are read as a whole, JSON arrays of objects and sheets of Excel, which are
held as Parquet in memory.
"""

from __future__ import annotations

import io
import json
import logging
import re
import threading
import zipfile
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote
from weakref import WeakValueDictionary

import pyarrow as pa

from singa_dask import fs
from singa_dask.data.codecs.columns import column_kind, is_number, refuse_twice, show_columns
from singa_dask.data.codecs.data_frames import as_columns
from singa_dask.data.codecs.numbers import NO_SPELLING, Spelling
from singa_dask.data.stores.class_names import hugging_face_names
from singa_dask.data.stores.columnar import ARROW_MAGIC, PARQUET_SUFFIXES, is_columnar, open_columns
from singa_dask.data.stores.hugging_face import README, name_sets, saved_files
from singa_dask.data.stores.lakes import refuse_lake
from singa_dask.data.stores.parquet import PARQUET_MAGIC
from singa_dask.data.stores.range_store import read_ranges
from singa_dask.data.stores.row_groups import RowGroups
from singa_dask.data.stores.shards import check_splits, shard_urls
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError, SingaError
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.open_bytes import MARK_BYTES, open_bytes, refuse_compressed
from singa_dask.fs.patterns import is_pattern
from singa_dask.fs.sources import Bytes, BytesInMemory, Range
from singa_dask.lazy import LazyModule, require
from singa_dask.shown import plural
from singa_dask.texts import unique_keys

logger = logging.getLogger(__name__)

pc, pq = LazyModule("pyarrow.compute"), LazyModule("pyarrow.parquet")

WHOLE_SUFFIXES = (".json", ".json.gz", ".xlsx")
JSON_LINES = (".jsonl", ".ndjson")
ROWS = 1 << 14


# errors that json and openpyxl raise
DAMAGE = (AttributeError, LookupError, RecursionError, SyntaxError, ValueError, zipfile.BadZipFile, zlib.error)


def read_whole(url: str, storage_options: fs.Options = None, spelling: Spelling = NO_SPELLING) -> BytesInMemory:
    """Return a table as a Parquet file in memory.

    Raises
    ------
    DataError
        The file has another form, or a column has values of several kinds.
    ConfigError
        The package that reads it is not installed.
    """
    source = open_bytes(url, storage_options)
    data = bytes(source.read(0, source.size))
    source.close()
    try:
        names, columns = _sheet(url, data) if url.lower().endswith(".xlsx") else _array(url, data)
    except DAMAGE as error:
        if isinstance(error, SingaError):
            raise
        raise DataError(f"{url}: of another format, or damaged: {error}.") from error
    refuse_twice(names, url)
    table = pa.table(as_columns(dict(zip(names, columns, strict=True)), url, spelling))
    return in_memory(url, table, (len(data), checksum_of(data)))


def in_memory(url: str, table: pa.Table, origin: tuple[int, int] | None = None) -> BytesInMemory:
    """Return a table as a Parquet file in memory; ``origin`` are size and checksum of what it was made of."""
    written = io.BytesIO()
    pq.write_table(table, written, row_group_size=ROWS)
    return BytesInMemory(url, written.getvalue(), origin)


def _array(url: str, data: bytes) -> tuple[list[str], list[list[Any]]]:
    try:
        rows = json.loads(data, object_pairs_hook=unique_keys)
    except ValueError as error:
        raise DataError(f"{url}: not JSON: {error}.") from None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{url}: expected an array of objects, as pandas writes it by to_json(orient='records').")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return names, [[row.get(name) for row in rows] for name in names]


def _sheet(url: str, data: bytes) -> tuple[list[str], list[list[Any]]]:
    load = require("openpyxl", "excel", url).load_workbook
    book = load(io.BytesIO(data), read_only=True, data_only=True)
    if len(book.sheetnames) > 1:
        raise DataError(f"{url}: sheets {', '.join(book.sheetnames)}. Expected one: save it as a file of its own.")
    where, sheet = f"{url}, sheet {book.active.title}", list(book.active.iter_rows())
    # the value of a formula may be an empty text, of the type str
    cells = [cell for row in sheet for cell in row if hasattr(cell, "coordinate")]
    empty = {cell.coordinate for cell in cells if cell.value is None and cell.data_type != "str"}
    formulas = load(io.BytesIO(data), read_only=True).active.iter_rows() if empty else ()
    unknown = [
        each.coordinate for row in formulas for each in row if each.data_type == "f" and each.coordinate in empty
    ]
    if unknown:
        raise DataError(
            f"{where}: formulas without their values: {len(unknown)}, the first in {unknown[0]}. Open it in Excel or "
            "LibreOffice, which compute them, and save it."
        )
    if errors := [cell for cell in cells if cell.data_type == "e"]:
        first = f"{errors[0].value} in {errors[0].coordinate}"
        logger.warning(
            "%s: read as missing: %s. The first is %s.",
            where,
            plural(len(errors), "cell with an error", "cells with errors"),
            first,
        )
    values = [tuple(None if cell.data_type == "e" else cell.value for cell in row) for row in sheet]
    rows = [row for row in values if any(value is not None for value in row)]
    if len(rows) < 2:
        raise DataError(f"{url}: expected a header and records, got {len(rows)} rows.")
    names = ["" if name is None else str(name).strip() for name in rows[0]]
    kept = [i for i, name in enumerate(names) if name or any(row[i] is not None for row in rows)]
    unnamed = next((i for i in kept if not names[i]), None)
    if unnamed is not None:
        raise DataError(f"{url}: column {unnamed + 1} has no name. Expected names in the first row.")
    return [names[i] for i in kept], [[row[i] for row in rows[1:]] for i in kept]


# local files, which are mapped, and files that are held in memory
MAX_LOCAL = 8
MAX_REMOTE = 256
CSV_SUFFIXES = (".csv", ".tsv", ".txt", ".data")
PACKED = ".gz"
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

    In a directory, names that begin with ``_`` or ``.``, README.md and empty files are left out; directories
    ``key=value`` give columns.

    Raises
    ------
    DataError
        There are none, or the directory is not complete.
    """
    if is_pattern(url, storage_options):
        return [TableFile(each) for each in sorted(shard_urls(url, storage_options), key=_natural)]
    if not fs.exists(url, storage_options):
        raise DataError(f"{url}: no such file or directory.")
    if not fs.is_dir(url, storage_options):
        return [TableFile(url)]
    saved = saved_files(url, fs.ls(url, storage_options), storage_options)
    found = [TableFile(each) for each in saved] or _inside(url.rstrip("/"), (), storage_options)
    if not found:
        raise DataError(f"{url}: no files of a table in this directory.")
    check_splits(url, [each.url for each in found], is_dir=True)
    keys = [name for name, _ in found[0].keys]
    for each in found:
        if [name for name, _ in each.keys] != keys:
            raise DataError(f"{each.url}: expected directories {'/'.join(f'{key}=...' for key in keys) or url}.")
    return found


def _inside(url: str, keys: tuple[tuple[str, str | None], ...], storage_options: fs.Options) -> list[TableFile]:
    entries = {name: (is_folder, n_bytes) for name, is_folder, n_bytes in fs.entries(url, storage_options)}
    refuse_lake(url, entries, storage_options)
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
                how = name_sets(url, storage_options) or "Expected files, or directories named key=value."
                raise DataError(f"{place}: a directory in a table. {how}")
            text = None if value == HIVE_NULL else unquote(value)
            found += _inside(place, (*keys, (unquote(key), text)), storage_options)
        elif n_bytes and name != README:
            found.append(TableFile(place, keys))
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts ``part.2`` before ``part.10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in DIGITS.split(name)]


def format_of(files: Sequence[TableFile], storage_options: fs.Options = None) -> str:
    """Return ``csv``, ``parquet``, ``jsonl``, or ``whole`` for files that are read as a whole.

    Raises
    ------
    DataError
        A file is neither, or the files differ.
    """
    first = _format(files[0].url, storage_options)
    for each in files[1:]:
        if each.url.lower().endswith((*CSV_SUFFIXES, *PARQUET_SUFFIXES, *JSON_LINES)) and _format(each.url) != first:
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
    if name.endswith(JSON_LINES):
        return "jsonl"
    head = fs.read_bytes(url, 0, min(MARK_BYTES, fs.size(url, storage_options)), storage_options)
    refuse_compressed(url, head)
    if head.startswith((PARQUET_MAGIC, ARROW_MAGIC)) or is_columnar(url, head):
        return "parquet"
    raise DataError(
        f"{url}: neither CSV, Parquet, Arrow, ORC nor JSON lines. Columns have names there; give backend if it is one."
    )


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


class TablePart(ABC):
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
    open_runs : OpenRuns
        Those of all files of a table.
    """

    open_runs: OpenRuns
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

    def is_text(self, column: str) -> bool:
        """Return whether a column of another kind can be read as strings."""
        return bool(self.class_names(column))

    def width(self, column: str) -> int:
        """Return the length of the first vector of a column; 0 if it has none."""
        return 0

    @abstractmethod
    def runs(self, block_bytes: int, row_bytes: int) -> Iterator[RecordRun]:
        """Yield runs of records: of about ``block_bytes``, or at most so many bytes of records of ``row_bytes``."""

    @abstractmethod
    def ranges(self, run: RecordRun, kinds: Mapping[str, str]) -> tuple[Range, ...]:
        """Return the ranges of the file that hold some columns of a run."""

    def fetch_bytes(self, run: RecordRun, kinds: Mapping[str, str]) -> int:
        """Return the bytes of these columns in a run, about."""
        return sum(each.length for each in self.ranges(run, kinds))

    def fetch(self, run: RecordRun, kinds: Mapping[str, str], again: bool = False) -> list[memoryview]:
        """Read the bytes of its ranges, see `RangeStore.fetch`."""
        return read_ranges(self.ranges(run, kinds), again)

    def rows(
        self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]
    ) -> Callable[[int, int], pa.Table]:
        """Return a function: first, stop -> some rows of a run for which `decode` fails; it raises if one is bad.

        Raises
        ------
        DataError
            Rows cannot be read one by one.
        """
        table = self.decode(run, kinds, data)
        return lambda first, stop: table.slice(first, stop - first)

    @abstractmethod
    def decode(self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        """Return columns, by their kinds, from the bytes of a run.

        Raises
        ------
        DataError
            A record is invalid, or the file damaged; names the place.
        """

    @abstractmethod
    def place(self, run: RecordRun, data: Sequence[memoryview]) -> Callable[[int], str]:
        """Return a function: row of a run -> its place in the file, for errors."""


class OpenRun(NamedTuple):
    """A row group of which some rows have been decoded.

    Attributes
    ----------
    at : int
        Next row of the file.
    batches : iterator of pyarrow.RecordBatch
        The rows from there on.
    data : sequence of memoryview
        Bytes of the row group, which are fetched once while this holds them.
    """

    at: int
    batches: Iterator[pa.RecordBatch]
    data: Sequence[memoryview]


class OpenRuns:
    """The row groups of a table of which some rows have been decoded; the `n` that were used last are kept.

    A row group can be among them several times, for readers that are at different rows.
    """

    def __init__(self) -> None:
        self.n = 16
        self._lock = threading.Lock()
        # the one that was used last is the last
        self._runs: list[tuple[object, OpenRun]] = []

    def take(self, key: object, row: int) -> OpenRun | None:
        """Return the run of a row group that comes to a row first, which is no longer kept; None if there is none."""
        with self._lock:
            found = [pair for pair in self._runs if pair[0] == key and pair[1].at <= row]
            if not found:
                return None
            taken = max(found, key=lambda pair: pair[1].at)
            self._runs.remove(taken)
            return taken[1]

    def keep(self, key: object, run: OpenRun) -> None:
        """Keep a run."""
        with self._lock:
            self._runs = [*self._runs, (key, run)][-self.n :]

    def clear(self) -> None:
        """Keep no run."""
        with self._lock:
            self._runs.clear()


class _Slot:
    """A file, and the lock of the thread that opens it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.part: TablePart | None = None


def check_columns(part: TablePart, form: str, wanted: Mapping[str, str], first: str, *of_any: str) -> None:
    """Check that a file has columns of the ``first`` one, of the same kinds but for those ``of_any`` kind."""
    # of CSV, kinds are a guess from the first records; values of other kinds are found when they are read
    names = (part.kinds if form == "parquet" else {}) or dict.fromkeys(part.names, "empty")
    for name, kind in wanted.items():
        if name not in names:
            raise DataError(f"{part.url}: no column {name!r}, unlike {first}. {show_columns(names)}")
        found = "string" if kind == "string" and part.is_text(name) else names[name]
        if found not in (kind, "empty") and name not in of_any:
            raise DataError(f"{part.url}: column {name!r} of type {found}, in {first} {kind}.")


class OpenParts:
    """The parts of a table, of which those that were used last stay open, read with the columns of their directories.

    Any thread may use it; several can open files at the same time. Parts that are no longer kept are closed when nobody
    uses them or views of them.

    Parameters
    ----------
    files : sequence of TableFile
    open_part : callable
        Index of a file -> `TablePart`.

    Attributes
    ----------
    open_runs : OpenRuns
        Of all files.
    """

    def __init__(self, files: Sequence[TableFile], open_part: Callable[[int], TablePart]) -> None:
        self.files, self._open = files, open_part
        self._lock = threading.Lock()
        self._slots: OrderedDict[int, _Slot] = OrderedDict()
        self.open_runs = OpenRuns()

    def __call__(self, file: int) -> TablePart:
        """Return a part, opened if it is not open."""
        with self._lock:
            slot = self._slots.setdefault(file, _Slot())
            self._slots.move_to_end(file)
        with slot.lock:
            if slot.part is None:
                slot.part = self._open(file)
                slot.part.open_runs = self.open_runs
                self._limit(MAX_LOCAL if slot.part.source.is_local else MAX_REMOTE)
            return slot.part

    def find(self, file: int) -> TablePart | None:
        """Return a part if it is open; does not wait."""
        with self._lock:
            slot = self._slots.get(file)
        return slot.part if slot else None

    def open_sources(self) -> list[Bytes]:
        """Return the files that are open."""
        with self._lock:
            return [slot.part.source for slot in self._slots.values() if slot.part is not None]

    def _limit(self, n: int) -> None:
        with self._lock:
            while len(self._slots) > n:
                self._slots.popitem(last=False)

    def close(self) -> None:
        """Keep no part."""
        self.open_runs.clear()
        with self._lock:
            self._slots.clear()

    def in_file(self, file: int, wanted: Mapping[str, str]) -> dict[str, str]:
        """Return the columns, with their kinds, that a file holds, without those that its directories give."""
        keys = dict(self.files[file].keys)
        return {name: kind for name, kind in wanted.items() if name not in keys}

    def decode(self, file: int, run: RecordRun, wanted: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        """Return the rows of a run from its bytes."""
        return with_keys(self(file).decode(run, self.in_file(file, wanted), data), self.files[file], wanted)

    def rows(
        self, file: int, run: RecordRun, wanted: Mapping[str, str], data: Sequence[memoryview]
    ) -> Callable[[int, int], pa.Table]:
        """Return a function: first, stop -> some rows of a run for which `decode` fails; it raises if one is bad."""
        rows = self(file).rows(run, self.in_file(file, wanted), data)
        return lambda first, stop: with_keys(rows(first, stop), self.files[file], wanted)


# kinds of columns of bytes, which may be texts
BYTES = ("binary", "large_binary")
# rows that are read at a time to find a vector
WIDTH_ROWS = 64
# rows of a row group that are decoded at a time
BATCH_ROWS = 1 << 13


class ParquetPart(TablePart):
    """A Parquet file.

    A run is a row group, or some rows of a large one. Its ``line`` is the index of its first record in the file.
    """

    def __init__(self, url: str, storage_options: fs.Options, source: Bytes | None = None) -> None:
        self.url = url
        self.open_runs = OpenRuns()
        self._shared = _SharedReads()
        self.source = source or open_columns(url, storage_options)
        if not self.source.size:
            raise DataError(f"{url}: not a Parquet file: it is empty.")
        try:
            self._groups = RowGroups(self.source)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{url}: not a Parquet file, or a damaged one: {error}") from error
        schema = self._groups.schema
        refuse_twice(schema.names, url)
        self._kinds = {column.name: column_kind(column.type) for column in schema}
        self.names = tuple(self._kinds)
        self.index = _index_columns(schema)
        self._starts = self._groups.starts
        self._ranges = cache(self._groups.ranges)

    @property
    def kinds(self) -> dict[str, str]:
        return dict(self._kinds) if self._starts[-1] else {}

    def class_names(self, column: str) -> tuple[str, ...]:
        is_number = self._kinds.get(column) == "number"
        return hugging_face_names(self._groups.schema.metadata, column) if is_number else ()

    def is_text(self, column: str) -> bool:
        if self._kinds.get(column) not in BYTES:
            return super().is_text(column)
        try:
            return len(self._first_values(column).cast(pa.string())) > 0
        except pa.ArrowInvalid:
            return False

    def width(self, column: str) -> int:
        values = self._first_values(column)
        return int(pc.list_value_length(values)[0].as_py()) if len(values) else 0

    def _first_values(self, column: str) -> pa.Array:
        """Return the first values of a column, without missing ones."""
        try:
            for batch in self._groups.reader().batches([column], WIDTH_ROWS):
                if len(values := batch.column(0).drop_null()):
                    return values
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{self.url}, column {column!r}: damaged: {error}") from error
        return pa.nulls(0)

    def runs(self, block_bytes: int, row_bytes: int) -> Iterator[RecordRun]:
        size = max(1, block_bytes // max(row_bytes, 1))
        for i, (start, stop) in enumerate(zip(self._starts, self._starts[1:], strict=False)):
            offset, length = self._groups.extent(i)
            # to decode a row group in parts costs more than a block that is somewhat larger
            rows = size if stop - start > 4 * size else stop - start
            for first in range(start, stop, rows or 1):
                n = min(rows, stop - first)
                yield RecordRun(offset, length * n // (stop - start), n, first)

    def _group(self, run: RecordRun) -> int:
        return bisect_right(self._starts, run.line) - 1

    def _share(self, run: RecordRun) -> Fraction:
        """Return which part of its row group a run is."""
        group = self._group(run)
        return Fraction(run.n, self._starts[group + 1] - self._starts[group])

    def ranges(self, run: RecordRun, kinds: Mapping[str, str]) -> tuple[Range, ...]:
        return self._ranges(self._group(run), tuple(kinds))

    def fetch_bytes(self, run: RecordRun, kinds: Mapping[str, str]) -> int:
        return int(super().fetch_bytes(run, kinds) * self._share(run))

    def fetch(self, run: RecordRun, kinds: Mapping[str, str], again: bool = False) -> list[memoryview]:
        if again or self.source.is_local or self._share(run) == 1:
            return super().fetch(run, kinds, again)
        ranges = self.ranges(run, kinds)
        return self._shared.get(ranges, lambda: read_ranges(ranges))

    def decode(self, run: RecordRun, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        table = self._decoded(run, tuple(kinds), data)
        for i, (column, kind) in enumerate(kinds.items()):
            if kind == "string" and (names := self.class_names(column)):
                table = table.set_column(i, column, _named(table.column(column), names, f"{self.url}, {column}"))
            elif kind == "string" and self._kinds[column] in BYTES:
                try:
                    table = table.set_column(i, column, table.column(column).cast(pa.string()))
                except pa.ArrowInvalid:
                    raise DataError(f"{self.url}, column {column!r}: bytes that are not UTF-8.") from None
        return table

    def _decoded(self, run: RecordRun, columns: tuple[str, ...], data: Sequence[memoryview]) -> pa.Table:
        group = self._group(run)
        try:
            if self._share(run) == 1:
                return self._groups.read(group, columns, self._ranges(group, columns), data)
            return self._read_rows(run, group, columns, data)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{self.url}, row group {group}: damaged: {error}") from error

    def _read_rows(self, run: RecordRun, group: int, columns: tuple[str, ...], data: Sequence[memoryview]) -> pa.Table:
        """Read rows of a row group; those that follow the rows read last of this row group are decoded once."""
        key = (self.url, group, columns)
        stream = self.open_runs.take(key, run.line)
        if stream is None:
            reader = self._groups.reader()
            reader.take_from(self._ranges(group, columns), data)
            stream = OpenRun(self._starts[group], reader.batches(columns, min(BATCH_ROWS, run.n), group), data)
        kept: list[pa.RecordBatch] = []
        at, batches, stop, missing = stream.at, stream.batches, run.line + run.n, run.n
        while missing:
            batch = next(batches)
            first, last = max(run.line - at, 0), min(stop - at, len(batch))
            if first < last:
                kept.append(batch.slice(first, last - first))
                missing -= last - first
            at += len(batch)
        if at > stop:
            batches = chain([batch.slice(len(batch) - (at - stop))], batches)
        if stop < self._starts[group + 1]:
            self.open_runs.keep(key, OpenRun(stop, batches, stream.data))
        return pa.Table.from_batches(kept)

    def place(self, run: RecordRun, data: Sequence[memoryview]) -> Callable[[int], str]:
        group = self._group(run)
        return lambda row: f"{self.url}, row group {group}, record {run.line + row}"


class _Reads(list[memoryview]):
    """What was read; unlike a list it can be referenced weakly."""


class _SharedReads:
    """Reads the same ranges once for several threads, as long as one of them holds the bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[Range, ...], threading.Lock] = {}
        self._held: WeakValueDictionary[tuple[Range, ...], _Reads] = WeakValueDictionary()

    def get(self, ranges: tuple[Range, ...], read: Callable[[], list[memoryview]]) -> list[memoryview]:
        """Return the bytes of some ranges, by calling ``read`` if nobody holds them."""
        with self._lock:
            lock = self._locks.setdefault(ranges, threading.Lock())
        with lock:
            found = self._held.get(ranges)
            if found is None:
                found = self._held[ranges] = _Reads(read())
            return found


def _named(column: pa.ChunkedArray, names: Sequence[str], where: str) -> pa.ChunkedArray:
    """Return the names of classes in place of their numbers; -1 stands for none."""
    high = pc.max(column).as_py()
    if high is not None and high >= len(names):
        raise DataError(f"{where}: label {high} has no class name. The file has names for 0 to {len(names) - 1}.")
    return pc.take(pa.array(names), pc.if_else(pc.less(column, 0), None, column))


def _index_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that pandas or Dask wrote for the index of a frame."""
    try:
        found = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except ValueError:
        found = []
    return tuple(name for name in schema.names if name in found or name.startswith("__"))
