"""ParquetPart: a Parquet file of a table."""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import chain
from weakref import WeakValueDictionary

import pyarrow as pa

from singa_dask import fs
from singa_dask.data.codecs.class_lists import hugging_face_names
from singa_dask.data.codecs.class_types import are_floats
from singa_dask.data.tables.column_names import as_spelled, refuse_twice
from singa_dask.data.tables.column_values import column_kind
from singa_dask.data.tables.files.columnar import open_columns
from singa_dask.data.tables.files.row_groups import RowGroups
from singa_dask.data.tables.files.table_part import OpenRun, OpenRuns, TablePart
from singa_dask.data.types import RecordRun
from singa_dask.errors import DataError
from singa_dask.fs.sources import Bytes, Range, read_ranges
from singa_dask.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

# kinds of columns of bytes; the bytes may be UTF-8
BYTES = ("binary", "large_binary")
# number of rows that are read at a time to find the first value
WIDTH_ROWS = 64
# number of rows of a row group that are decoded at a time
BATCH_ROWS = 1 << 13


class ParquetPart(TablePart):
    """A Parquet file.

    A run is a row group, or some rows of a large row group. The ``line`` of a run is the index in the file of its first
    record. ``place_of`` returns the place of a record in its original file; by default, this is the Parquet file. Names
    of columns are spelled as in ``wanted``; see `as_spelled`.
    """

    def __init__(
        self,
        url: str,
        storage_options: fs.Options,
        source: Bytes | None = None,
        place_of: Callable[[int], str] | None = None,
        wanted: Collection[str] = (),
    ) -> None:
        self.url, self._place_of = url, place_of
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
        self.names = tuple(as_spelled(schema.names, wanted, url))
        self._titles = dict(zip(self.names, schema.names, strict=True))  # the names in the file
        self._types = dict(zip(self.names, schema.types, strict=True))
        self._kinds = {name: column_kind(kind) for name, kind in self._types.items()}
        self.floats = {name for name, kind in self._types.items() if are_floats(kind)}
        index = _index_columns(schema)
        self.index = tuple(name for name, title in self._titles.items() if title in index)
        self._starts = self._groups.starts
        self._ranges = cache(self._groups.ranges)

    @property
    def types(self) -> dict[str, pa.DataType]:
        return dict(self._types)

    @property
    def kinds(self) -> dict[str, str]:
        return dict(self._kinds) if self._starts[-1] else {}

    def class_names(self, column: str) -> tuple[str, ...]:
        is_number = self._kinds.get(column) == "number"
        return hugging_face_names(self._groups.schema.metadata, self._titles[column]) if is_number else ()

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
        """Return the first values of a column that are not missing."""
        try:
            for batch in self._groups.reader().batches([self._titles[column]], WIDTH_ROWS):
                if len(values := batch.column(0).drop_null()):
                    return values
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{self.url}, column {column!r}: the column is damaged: {error}") from error
        return pa.nulls(0)

    def runs(self, block_bytes: int, row_bytes: int) -> Iterator[RecordRun]:
        size = max(1, block_bytes // max(row_bytes, 1))
        for i, (start, stop) in enumerate(zip(self._starts, self._starts[1:], strict=False)):
            offset, length = self._groups.extent(i)
            # divide only much larger row groups, because decoding a row group in parts takes longer
            rows = size if stop - start > 4 * size else stop - start
            for first in range(start, stop, rows or 1):
                n = min(rows, stop - first)
                yield RecordRun(offset, length * n // (stop - start), n, first)

    def _group(self, run: RecordRun) -> int:
        return bisect_right(self._starts, run.line) - 1

    def _share(self, run: RecordRun) -> Fraction:
        """Return the share of a row group that a run contains."""
        group = self._group(run)
        return Fraction(run.n, self._starts[group + 1] - self._starts[group])

    def ranges(self, run: RecordRun, kinds: Mapping[str, str]) -> tuple[Range, ...]:
        return self._ranges(self._group(run), tuple(self._titles[name] for name in kinds))

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
                    raise DataError(
                        f"{self.url}, column {column!r}: the column has bytes that are not UTF-8."
                    ) from None
        return table

    def _decoded(self, run: RecordRun, columns: tuple[str, ...], data: Sequence[memoryview]) -> pa.Table:
        group, titles = self._group(run), tuple(self._titles[name] for name in columns)
        try:
            if self._share(run) == 1:
                table = self._groups.read(group, titles, self._ranges(group, titles), data)
            else:
                table = self._read_rows(run, group, titles, data)
            return table if titles == columns else table.select(titles).rename_columns(list(columns))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{self.url}, row group {group}: the row group is damaged: {error}") from error

    def _read_rows(self, run: RecordRun, group: int, columns: tuple[str, ...], data: Sequence[memoryview]) -> pa.Table:
        """Read rows of a row group. Decoding continues after the rows that were read last."""
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
        if place_of := self._place_of:
            return lambda row: place_of(run.line + row)
        group = self._group(run)
        return lambda row: f"{self.url}, row group {group}, record {run.line + row}"


class _Reads(list[memoryview]):
    """A list of ranges that can be referenced weakly."""


class _SharedReads:
    """Reads ranges only once for several threads, as long as a thread still holds the bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[Range, ...], threading.Lock] = {}
        self._held: WeakValueDictionary[tuple[Range, ...], _Reads] = WeakValueDictionary()

    def get(self, ranges: tuple[Range, ...], read: Callable[[], list[memoryview]]) -> list[memoryview]:
        """Return the bytes of some ranges; call ``read`` unless another thread still holds them."""
        with self._lock:
            lock = self._locks.setdefault(ranges, threading.Lock())
        with lock:
            reads = self._held.get(ranges)
            if reads is None:
                reads = self._held[ranges] = _Reads(read())
            return reads


def _named(column: pa.ChunkedArray, names: Sequence[str], where: str) -> pa.ChunkedArray:
    """Replace class numbers by names, and -1 by null."""
    high = pc.max(column).as_py()
    if high is not None and high >= len(names):
        raise DataError(f"{where}: label {high} has no class name. The file has names for 0 to {len(names) - 1}.")
    return pc.take(pa.array(names), pc.if_else(pc.less(column, 0), None, column))


def _index_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that pandas or Dask wrote for the index of a frame."""
    try:
        index = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except ValueError:
        index = []
    return tuple(name for name in schema.names if name in index or name.startswith("__"))
