"""Parts of a table: a CSV or a Parquet file, read as runs of records with named columns."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property
from itertools import accumulate
from types import MappingProxyType
from weakref import WeakValueDictionary

import pyarrow as pa

from singa_dask.data import fs
from singa_dask.data.codecs.bisect_rows import bisect_rows
from singa_dask.data.codecs.csv_records import (
    AS_UTF8,
    Run,
    cut_records,
    decimal_comma,
    find_wrong,
    has_numbers,
    parse_columns,
    read_header,
    record_starts,
)
from singa_dask.data.codecs.table import column_kind
from singa_dask.data.fs.byte_source import Bytes, Range, open_bytes
from singa_dask.data.fs.range_reader import RangeReader
from singa_dask.data.fs.scan import scan_ahead
from singa_dask.data.stores.range_store import read_ranges
from singa_dask.data.stores.row_groups import GroupReader, RowGroups
from singa_dask.errors import DataError

__all__ = ["CsvPart", "ParquetPart", "Part"]

# records that are looked at for decimal commas
SHOWN_ROWS = 1000
# rows of a row group that are decoded at a time
BATCH_ROWS = 1 << 14
# row group, next row of the file, columns, and the batches from there on
NO_STREAM: tuple[int, int, tuple[str, ...], Iterator[pa.RecordBatch]] = (-1, 0, (), iter(()))
TYPES = {"number": pa.float64(), "boolean": pa.bool_(), "string": pa.string(), "empty": pa.float64()}


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


class CsvPart(Part):
    """A CSV file with a header, as it is or gzipped; of a gzipped one all is held in memory.

    Kinds are those of the first ``block_bytes``; a column without a value there is taken for one of numbers. If wrong
    records are to be skipped, so is a column most of whose values are numbers.
    """

    def __init__(
        self, url: str, storage_options: fs.Options, separator: str, block_bytes: int, tolerant: bool = False
    ) -> None:
        self.url = url
        self.source = open_bytes(url, storage_options)
        self._header = read_header(url, self.source.scan, self.source.size, separator)
        self._block_bytes, self._tolerant = block_bytes, tolerant
        self.names = self._header.names
        self.index = tuple(name for name in self._header.names if not name or name.startswith("Unnamed: "))

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of each column, from the first records."""
        first = next(cut_records(self.url, self._chunks(), self._header, self.source.size), None)
        if first is None:
            return {}
        text = bytes(self.source.read(first.offset, first.length))
        try:
            table = parse_columns(text, self._header, None, skip_wrong=self._tolerant)
        except (pa.ArrowException, ValueError) as error:
            raise self._error(text, first, (), error) from None
        columns = dict(zip(self._header.names, table.columns, strict=True))
        self.faults = {name: fault for name, column in columns.items() if (fault := _fault_of(column))}
        kinds = {name: self._kind(column) for name, column in columns.items()}
        is_all = first.offset + first.length >= self.source.size
        return {name: "number" if kind == "empty" and not is_all else kind for name, kind in kinds.items()}

    def _chunks(self) -> Iterator[memoryview]:
        """Read the file in chunks, when they are needed."""
        size = self.source.size
        for offset in range(self._header.start, size, self._block_bytes):
            yield self.source.scan(offset, min(self._block_bytes, size - offset))

    def _kind(self, column: pa.ChunkedArray) -> str:
        kind = column_kind(column.type)
        is_number = kind == "string" and self._tolerant and has_numbers(column.drop_null().to_pylist())
        return "number" if is_number else kind

    def runs(self, block_bytes: int, row_bytes: int) -> Iterator[Run]:
        chunks = scan_ahead(self.source, self._header.start, self.source.size, block_bytes)
        return cut_records(self.url, chunks, self._header, self.source.size)

    def ranges(self, run: Run, kinds: Mapping[str, str]) -> tuple[Range, ...]:
        return (Range(self.source, run.offset, run.length),)

    def decode(self, run: Run, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        text = _whole_bytes(data[0])
        numbers = [name for name, kind in kinds.items() if kind in ("number", "empty")]
        try:
            table = parse_columns(text, self._header, _types(kinds), list(kinds))
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise self._error(text, run, numbers, error) from None
        if len(table) != run.n:
            fault = ValueError(f"{len(table)} records, expected {run.n}")
            raise self._error(text, run, numbers, fault)
        return table

    def salvage(
        self, run: Run, kinds: Mapping[str, str], data: Sequence[memoryview]
    ) -> tuple[pa.Table, dict[int, str]]:
        text = bytes(data[0])
        starts = [*record_starts(text).tolist(), len(text)]

        def decode(first: int, stop: int) -> pa.Table:
            part = text[starts[first] : starts[stop]]
            if stop - first == 1:
                line = run.line + text.count(b"\n", 0, starts[first])
                return self.decode(Run(run.offset + starts[first], len(part), 1, line), kinds, [memoryview(part)])
            table = parse_columns(part, self._header, _types(kinds), list(kinds))
            if len(table) != stop - first:
                raise ValueError(f"{len(table)} records, expected {stop - first}")
            return table

        good, bad = bisect_rows(run.n, decode)
        none = pa.schema(list(_types(kinds).items())).empty_table()
        return pa.concat_tables([none, *(table for _, table in good)]), bad

    def _error(self, text: bytes, run: Run, numbers: Sequence[str], error: Exception) -> DataError:
        wrong = find_wrong(text, self._header, numbers)
        if wrong is None:
            return DataError(f"{self.url}, lines from {run.line} on: {str(error).rstrip('.')}.")
        return DataError(f"{self._line(text, run, wrong[0])}{wrong[1]}.")

    def _line(self, text: bytes, run: Run, row: int) -> str:
        line = run.line + text.count(b"\n", 0, int(record_starts(text)[row]))
        return f"{self.url}, line {line}"

    def place(self, run: Run, data: Sequence[memoryview]) -> Callable[[int], str]:
        return lambda row: self._line(bytes(data[0]), run, row)


class ParquetPart(Part):
    """A Parquet file.

    A run is a row group, or some rows of a large one. Its ``line`` is the index of its first record in the file.
    """

    def __init__(self, url: str, storage_options: fs.Options) -> None:
        self.url = url
        self._stream, self._stream_lock = NO_STREAM, threading.Lock()
        self._shared = _SharedReads()
        self.source = RangeReader(url, storage_options)
        if not self.source.size:
            raise DataError(f"{url}: not a Parquet file: it is empty.")
        try:
            self._groups = RowGroups(self.source)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{url}: not a Parquet file, or a damaged one: {error}") from error
        schema, metadata = self._groups.schema, self._groups.metadata
        twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"{url}: column {twice!r} occurs twice. Rename one.")
        self._kinds = {column.name: column_kind(column.type) for column in schema}
        self.names = tuple(self._kinds)
        self.index = _index_columns(schema)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        self._starts = [0, *accumulate(group.num_rows for group in groups)]
        self._ranges = cache(self._groups.ranges)

    @cached_property
    def _stream_reader(self) -> GroupReader:
        """Reads the row groups that are decoded in several runs."""
        return self._groups.reader()

    @property
    def kinds(self) -> dict[str, str]:
        return dict(self._kinds) if self._starts[-1] else {}

    def runs(self, block_bytes: int, row_bytes: int) -> Iterator[Run]:
        rows = max(1, block_bytes // max(row_bytes, 1))
        for i, (start, stop) in enumerate(zip(self._starts, self._starts[1:], strict=False)):
            group = self._groups.metadata.row_group(i)
            columns = [group.column(each) for each in range(group.num_columns)]
            offset = min((int(each.data_page_offset) for each in columns), default=0)
            length = sum(int(each.total_compressed_size) for each in columns)
            for first in range(start, stop, rows):
                n = min(rows, stop - first)
                share = length * n // (stop - start)
                yield Run(offset + length * (first - start) // (stop - start), share, n, first)

    def _group(self, run: Run) -> int:
        return bisect_right(self._starts, run.line) - 1

    def _share(self, run: Run) -> Fraction:
        """Return which part of its row group a run is."""
        group = self._group(run)
        return Fraction(run.n, self._starts[group + 1] - self._starts[group])

    def ranges(self, run: Run, kinds: Mapping[str, str]) -> tuple[Range, ...]:
        return self._ranges(self._group(run), tuple(kinds))

    def fetch_bytes(self, run: Run, kinds: Mapping[str, str]) -> int:
        return int(super().fetch_bytes(run, kinds) * self._share(run))

    def fetch(self, run: Run, kinds: Mapping[str, str], again: bool = False) -> list[memoryview]:
        if again or self.source.is_local or self._share(run) == 1:
            return super().fetch(run, kinds, again)
        ranges = self.ranges(run, kinds)
        return self._shared.get(ranges, lambda: read_ranges(ranges))

    def decode(self, run: Run, kinds: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        group, columns = self._group(run), tuple(kinds)
        try:
            if self._share(run) == 1:
                return self._groups.read(group, columns, self.ranges(run, kinds), data)
            with self._stream_lock, self._stream_reader.fetched(self.ranges(run, kinds), data):
                return self._read_rows(run, group, run.line - self._starts[group], columns)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{self.url}, row group {group}: damaged: {error}") from error

    def _read_rows(self, run: Run, group: int, row: int, columns: tuple[str, ...]) -> pa.Table:
        """Read rows of a row group; those that follow the rows read last are decoded once."""
        (open_group, at, known, batches), self._stream = self._stream, NO_STREAM
        if (open_group, known) != (group, columns) or at > run.line:
            at = run.line - row
            batches = self._stream_reader.batches(columns, BATCH_ROWS, group)
        kept: list[pa.RecordBatch] = []
        stop, missing = run.line + run.n, run.n
        while missing:
            batch = next(batches)
            first, last = max(run.line - at, 0), min(stop - at, len(batch))
            if first < last:
                kept.append(batch.slice(first, last - first))
                missing -= last - first
            at += len(batch)
        rest = at - stop
        if rest:
            batches = _chain(batch.slice(len(batch) - rest), batches)
        self._stream = (group, stop, columns, batches)
        return pa.Table.from_batches(kept)

    def place(self, run: Run, data: Sequence[memoryview]) -> Callable[[int], str]:
        group = self._group(run)
        return lambda row: f"{self.url}, row group {group}, record {run.line + row}"


def _types(kinds: Mapping[str, str]) -> dict[str, pa.DataType]:
    return {name: TYPES[kind] for name, kind in kinds.items()}


def _fault_of(column: pa.ChunkedArray) -> str:
    if pa.types.is_binary(column.type):
        return f"not UTF-8. {AS_UTF8}"
    if pa.types.is_string(column.type):
        text = decimal_comma(column.drop_null().slice(0, SHOWN_ROWS).to_pylist())
        advice = "Write numbers with a decimal point, or set features without this column."
        return f"{text!r} has a decimal comma. {advice}" if text else ""
    return ""


def _whole_bytes(data: memoryview) -> bytes:
    """Return bytes, without a copy of those that were read from a remote file."""
    return data.obj if isinstance(data.obj, bytes) and len(data.obj) == len(data) else bytes(data)


class _Reads(list[memoryview]):
    """What was read; unlike a list it can be referenced weakly."""


class _SharedReads:
    """Reads the same ranges once for several threads, as long as one of them holds the bytes; the last are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[Range, ...], threading.Lock] = {}
        self._held: WeakValueDictionary[tuple[Range, ...], _Reads] = WeakValueDictionary()
        self._last: _Reads | None = None

    def get(self, ranges: tuple[Range, ...], read: Callable[[], list[memoryview]]) -> list[memoryview]:
        """Return the bytes of some ranges, by calling ``read`` if nobody holds them."""
        with self._lock:
            lock = self._locks.setdefault(ranges, threading.Lock())
        with lock:
            found = self._held.get(ranges)
            if found is None:
                found = self._held[ranges] = _Reads(read())
            self._last = found
            return found


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _index_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that pandas or Dask wrote for the index of a frame."""
    try:
        found = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except ValueError:
        found = []
    return tuple(name for name in schema.names if name in found or name.startswith("__"))
