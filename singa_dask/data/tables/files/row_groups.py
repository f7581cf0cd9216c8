"""RowGroups: the row groups of a Parquet file, fetched by ranges and decoded in blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import pyarrow as pa

from singa_dask.fs.range_file import RangeFile
from singa_dask.fs.sources import Bytes, Range
from singa_dask.lazy import LazyModule

pq = LazyModule("pyarrow.parquet")

# ranges with a smaller gap between them are read as one, because reading the gap is faster than another request
MAX_GAP_BYTES = 1 << 17


class RowGroups:
    """The row groups of a Parquet file. Several threads can call `read` at the same time.

    Parameters
    ----------
    source : Bytes
        The file. The footer, and bytes that were not fetched, are read from it.

    Attributes
    ----------
    source : Bytes
    metadata : pyarrow.parquet.FileMetaData
    schema : pyarrow.Schema

    Raises
    ------
    pyarrow.ArrowException, OSError, ValueError
        The file is damaged. The methods raise these errors, too.
    """

    def __init__(self, source: Bytes) -> None:
        self.source = source
        self._checked = set[int]()
        first = GroupReader(source, self._checked)
        self.metadata, self.schema = first.metadata, first.schema
        # keep readers for reuse, because creating one takes longer than decoding a small row group
        self._free = deque([first])

    @cached_property
    def starts(self) -> list[int]:
        """Index of the first row of each group, and the number of rows."""
        groups = map(self.metadata.row_group, range(self.metadata.num_row_groups))
        return [0, *accumulate(group.num_rows for group in groups)]

    def extent(self, group: int) -> tuple[int, int]:
        """Return the approximate offset and compressed length of a row group.

        If the row groups were converted from another file, the result is a share of the length of that file, so that it
        does not depend on the conversion.
        """
        if self.source.origin:
            count = max(self.starts[-1], 1)
            start, stop = (self.source.origin[0] * row // count for row in self.starts[group : group + 2])
            return start, stop - start
        parts = self.metadata.row_group(group)
        columns = [parts.column(i) for i in range(parts.num_columns)]
        offset = min((int(column.data_page_offset) for column in columns), default=0)
        return offset, sum(int(column.total_compressed_size) for column in columns)

    def ranges(self, group: int, columns: Sequence[str]) -> tuple[Range, ...]:
        """Return the ranges of some columns of a row group. Ranges that are close together are merged."""
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
        """Return a reader, which only one thread may use at a time."""
        return GroupReader(self.source, self._checked, self.metadata)

    def read(
        self,
        group: int,
        columns: Sequence[str],
        ranges: Sequence[Range] = (),
        data: Sequence[memoryview] = (),
        is_checked: bool = False,
    ) -> pa.Table:
        """Decode columns of a row group.

        ``data`` has the bytes of ``ranges``; other bytes are read from the source. Pass ``is_checked=True`` if a
        checksum of the row group has already been verified.
        """
        try:
            reader = self._free.pop()
        except IndexError:
            reader = self.reader()
        reader.take_from(ranges, data)
        try:
            return reader.read(group, columns, is_checked)
        finally:
            reader.take_from((), ())
            self._free.append(reader)


class GroupReader:
    """Decodes row groups of a Parquet file. Only one thread may use it at a time.

    Parameters
    ----------
    source : Bytes
    checked : set of int
        Row groups whose checksums have been verified. Reading a row group adds it.
    metadata : pyarrow.parquet.FileMetaData, optional
        The footer, if it has been read.
    """

    def __init__(self, source: Bytes, checked: set[int], metadata: Any = None) -> None:
        self._window, self._checked = _Window(source.read, source.size), checked
        self._file = pq.ParquetFile(self._window, metadata=metadata, pre_buffer=False)
        self.metadata, self.schema = self._file.metadata, self._file.schema_arrow
        self._checking = pq.ParquetFile(
            self._window, metadata=self.metadata, pre_buffer=False, page_checksum_verification=True
        )

    def take_from(self, ranges: Sequence[Range], data: Sequence[memoryview]) -> None:
        """Use ``data`` as the bytes of ``ranges`` from now on."""
        self._window.fetched = tuple((each.offset, part) for each, part in zip(ranges, data, strict=True))

    def read(self, group: int, columns: Sequence[str], is_checked: bool) -> pa.Table:
        """Decode columns of a row group. See `RowGroups.read` for ``is_checked``."""
        # verify the checksums of pages once per process, because this takes several times as long as reading
        file = self._file if is_checked or group in self._checked else self._checking
        table = file.read_row_group(group, columns=list(columns), use_threads=False)
        self._checked.add(group)
        return table

    def batches(self, columns: Sequence[str], n: int, group: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield columns of one or all row groups, ``n`` rows at a time."""
        groups = None if group is None else [group]
        yield from self._checking.iter_batches(n, groups, list(columns), use_threads=False)


class _Window(RangeFile):
    """A file object for pyarrow.

    It reads from the ``fetched`` ranges if they contain the bytes, else from the source.
    """

    fetched: Sequence[tuple[int, memoryview]] = ()

    def read_buffer(self, length: int) -> bytes | memoryview:
        """Return the next bytes without a copy. pyarrow calls this method if it exists."""
        return self._next(length)

    def _next(self, length: int) -> bytes | memoryview:
        for start, data in self.fetched:
            at = self._at - start
            if 0 <= at <= at + length <= len(data):
                self._at += length
                return data[at : at + length]
        return super()._next(length)


def _is_of(path: str, columns: Sequence[str]) -> bool:
    """Return whether a leaf of the schema belongs to one of ``columns``."""
    return any(path == column or path.startswith(f"{column}.") for column in columns)


def _extent(chunk: Any) -> tuple[int, int]:
    """Return the offsets at which the pages of a column begin and end."""
    start = int(chunk.data_page_offset)
    dictionary = chunk.dictionary_page_offset
    if dictionary is not None and 0 < dictionary < start:
        start = int(dictionary)
    return start, start + int(chunk.total_compressed_size)
