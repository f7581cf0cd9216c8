"""RowGroups: the row groups of a Parquet file, decoded from bytes that were fetched."""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cache, cached_property
from itertools import accumulate
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from singa_dask.data import fs
from singa_dask.data.codecs.csv_records import Run
from singa_dask.data.codecs.table_columns import column_kind
from singa_dask.data.fs.byte_source import Bytes, Range
from singa_dask.data.fs.range_file import RangeFile
from singa_dask.data.fs.range_reader import RangeReader
from singa_dask.data.stores.class_names import hugging_face_names
from singa_dask.data.stores.range_store import read_ranges
from singa_dask.data.stores.table_part import Part
from singa_dask.errors import DataError

# ranges that are closer than this are read as one: the bytes between them take less time than another request
MAX_GAP_BYTES = 1 << 17
# rows of a row group that are decoded at a time
BATCH_ROWS = 1 << 14
# row group, next row of the file, columns, and the batches from there on
NO_STREAM: tuple[int, int, tuple[str, ...], Iterator[pa.RecordBatch]] = (-1, 0, (), iter(()))


class RowGroups:
    """The row groups of a Parquet file. Any thread may call `read`, several at the same time.

    Parameters
    ----------
    source : Bytes
        The file. The footer is read from it, and what is decoded without having been fetched.

    Attributes
    ----------
    source : Bytes
    metadata : pyarrow.parquet.FileMetaData
    schema : pyarrow.Schema

    Raises
    ------
    pyarrow.ArrowException, OSError, ValueError
        The file is damaged; so do the methods.
    """

    def __init__(self, source: Bytes) -> None:
        self.source = source
        self._checked = set[int]()
        first = GroupReader(source, self._checked)
        self.metadata, self.schema = first.metadata, first.schema
        # making one takes longer than decoding a small row group
        self._free = deque([first])

    def ranges(self, group: int, columns: Sequence[str]) -> tuple[Range, ...]:
        """Return the ranges of the file that hold some columns of a row group, merged where they are close."""
        parts = self.metadata.row_group(group)
        chunks = map(parts.column, range(parts.num_columns))
        wanted = sorted(_extent(chunk) for chunk in chunks if _is_of(chunk.path_in_schema, columns))
        merged: list[list[int]] = []
        for start, stop in wanted:
            if merged and start - merged[-1][1] <= MAX_GAP_BYTES:
                merged[-1][1] = max(merged[-1][1], stop)
            else:
                merged.append([start, stop])
        return tuple(Range(self.source, start, stop - start) for start, stop in merged)

    def reader(self) -> GroupReader:
        """Return a reader for one thread at a time."""
        return GroupReader(self.source, self._checked, self.metadata)

    def read(
        self,
        group: int,
        columns: Sequence[str],
        ranges: Sequence[Range] = (),
        data: Sequence[memoryview] = (),
        is_checked: bool = False,
    ) -> pa.Table:
        """Decode columns of a row group from the bytes of some ranges; what is not in these is read from the source.

        ``is_checked`` if its bytes have been compared with a checksum.
        """
        try:
            reader = self._free.pop()
        except IndexError:
            reader = self.reader()
        try:
            with reader.fetched(ranges, data):
                return reader.read(group, columns, is_checked)
        finally:
            self._free.append(reader)

    def batches(self, columns: Sequence[str], n: int) -> Iterator[pa.RecordBatch]:
        """Yield columns of all row groups, ``n`` rows at a time."""
        yield from self.reader().batches(columns, n)


class GroupReader:
    """Decodes row groups of a Parquet file. Must be used by one thread at a time.

    Parameters
    ----------
    source : Bytes
    checked : set of int
        The row groups whose checksums have been verified; others are added.
    metadata : pyarrow.parquet.FileMetaData, optional
        The footer, if it has been read.
    """

    def __init__(self, source: Bytes, checked: set[int], metadata: Any = None) -> None:
        self._window, self._checked = _Window(source), checked
        self._file = pq.ParquetFile(self._window, metadata=metadata, pre_buffer=False)
        self.metadata, self.schema = self._file.metadata, self._file.schema_arrow
        self._checking = pq.ParquetFile(
            self._window, metadata=self.metadata, pre_buffer=False, page_checksum_verification=True
        )

    @contextmanager
    def fetched(self, ranges: Sequence[Range], data: Sequence[memoryview]) -> Iterator[None]:
        """Take bytes from some ranges, not from the source."""
        self._window.fetched = tuple((each.offset, part) for each, part in zip(ranges, data, strict=True))
        try:
            yield
        finally:
            self._window.fetched = ()

    def read(self, group: int, columns: Sequence[str], is_checked: bool) -> pa.Table:
        """Decode columns of a row group; ``is_checked`` if its bytes have been compared with a checksum."""
        # checksums of pages take several times as long as reading: a row group is verified once per process
        file = self._file if is_checked or group in self._checked else self._checking
        table = file.read_row_group(group, columns=list(columns), use_threads=False)
        self._checked.add(group)
        return table

    def batches(self, columns: Sequence[str], n: int, group: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield columns of a row group, or of all, ``n`` rows at a time."""
        groups = None if group is None else [group]
        yield from self._checking.iter_batches(n, groups, list(columns), use_threads=False)


class _Window(RangeFile):
    """A file object that takes what it can from fetched ranges, and reads the rest from the source.

    Attributes
    ----------
    fetched : sequence of (int, memoryview)
        Offset and bytes of each range.
    """

    fetched: Sequence[tuple[int, memoryview]] = ()

    def read_buffer(self, length: int) -> bytes | memoryview:
        """Return the next bytes without a copy: pyarrow calls this where it exists."""
        return self._next(length)

    def _next(self, length: int) -> bytes | memoryview:
        for start, data in self.fetched:
            at = self._at - start
            if 0 <= at <= at + length <= len(data):
                self._at += length
                return data[at : at + length]
        return super()._next(length)


def _is_of(path: str, columns: Sequence[str]) -> bool:
    """Return whether a leaf of the schema belongs to one of some columns."""
    return any(path == column or path.startswith(f"{column}.") for column in columns)


def _extent(chunk: Any) -> tuple[int, int]:
    """Return where the pages of a column begin and end."""
    start = int(chunk.data_page_offset)
    dictionary = chunk.dictionary_page_offset
    if dictionary is not None and 0 < dictionary < start:
        start = int(dictionary)
    return start, start + int(chunk.total_compressed_size)


class ParquetPart(Part):
    """A Parquet file.

    A run is a row group, or some rows of a large one. Its ``line`` is the index of its first record in the file.
    """

    def __init__(self, url: str, storage_options: fs.Options, source: Bytes | None = None) -> None:
        self.url = url
        self._stream, self._stream_lock = NO_STREAM, threading.Lock()
        self._shared = _SharedReads()
        self.source = source or RangeReader(url, storage_options)
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

    def class_names(self, column: str) -> tuple[str, ...]:
        is_number = self._kinds.get(column) == "number"
        return hugging_face_names(self._groups.schema.metadata, column) if is_number else ()

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
        table = self._decoded(run, tuple(kinds), data)
        for i, (column, kind) in enumerate(kinds.items()):
            if kind == "string" and (names := self.class_names(column)):
                table = table.set_column(i, column, _named(table.column(column), names, f"{self.url}, {column}"))
        return table

    def _decoded(self, run: Run, columns: tuple[str, ...], data: Sequence[memoryview]) -> pa.Table:
        group = self._group(run)
        try:
            if self._share(run) == 1:
                return self._groups.read(group, columns, self._ranges(group, columns), data)
            with self._stream_lock, self._stream_reader.fetched(self._ranges(group, columns), data):
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
