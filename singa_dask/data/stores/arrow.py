"""Records in the columns of Arrow IPC files and of Parquet: fixed-size binary, with metadata that says what they are.

Arrow is the default format of the converters: a record batch is a block. Blocks of a local file are views of its memory
map; a remote block is one ranged read. Compressed files are supported, but their blocks are copies.

In Parquet, a row group is a block. Columns can also be lists of numbers of equal length, which are about 15 times
slower to read, or encoded images.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask import fs
from singa_dask.data.codecs.columns import check_label_type
from singa_dask.data.codecs.labels import as_labels
from singa_dask.data.codecs.record_schema import describe_fields, fields_of
from singa_dask.data.codecs.salvage import salvage_rows
from singa_dask.data.codecs.values import as_values, flat_lists, holds_numbers, is_list
from singa_dask.data.stores.class_names import hugging_face_names, parse_names
from singa_dask.data.stores.columnar import ARROW_MAGIC, STREAM, is_columnar, open_columns
from singa_dask.data.stores.image import ImageOptions, decode_image
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import BLOCK_BYTES, STORES, LabelOptions, Rechunker, rows_per_block
from singa_dask.data.types import Arrays, Block, Field, Records
from singa_dask.errors import DataError
from singa_dask.fs.decompression import check_decompressed, limit_of
from singa_dask.fs.range_file import RangeFile
from singa_dask.fs.sources import Bytes, Range
from singa_dask.lazy import LazyModule
from singa_dask.shown import plural

pq = LazyModule("pyarrow.parquet")

METADATA = b"singa_dask"
# errors raised for a damaged schema, footer or batch
DAMAGE = (
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    OSError,
    OverflowError,
    TypeError,
    ValueError,
    pa.ArrowException,
    struct.error,
)


@STORES.register("arrow")
class ArrowStore(RangeStore):
    """Records of an Arrow IPC file.

    Columns of fixed-size binary are arrays whose dtype and shape are in the schema's metadata, as our converters write
    it (without metadata: flat uint8).
    """

    block = LabelOptions

    magic = ARROW_MAGIC
    title = "an Arrow IPC file"
    suffixes = (".arrow", ".feather")
    damage = DAMAGE
    write_options = ("block_bytes", "compression", "class_names", "table_facts")

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return super().matches(url, head) and not is_columnar(url, head)

    def index(self) -> None:
        source = self.open_source()
        self._schema, batches = _read_footer(source)
        self.schema = _fields(self.url, self._schema)
        self._label, described = "label", metadata_of(self._schema)
        self.is_converted = bool(described)
        if not described:
            if {"data", "pixel"} <= self.schema.keys():
                raise DataError(f"{self.url}: data and pixel could each be the values of a record. Leave one out.")
            self.other_fields = tuple(name for name in self._schema.names if name not in self.schema)
            self._label = self.choose_label(self.other_fields)
            if self._label:
                check_label_type(self.url, self._schema.field(self._label))
                self.schema["label"] = Field(np.dtype(np.int32))
        self.class_names = parse_names(described.get("class_names"))
        self.set_table_facts(described.get("table"))
        self.blocks, self._compressed = self._find_blocks(source, batches)
        self.mapped = self.is_local and not self._compressed

    def _find_blocks(self, source: Bytes, batches: list[tuple[int, int, int]]) -> tuple[tuple[Block, ...], bool]:
        """Return the blocks, and whether any is compressed, from the manifest or from the header of each block."""
        lengths = [(offset, meta + body) for offset, meta, body in batches]
        if self.manifest and lengths == [(block.offset, block.length) for block in self.manifest_blocks()]:
            return self.manifest.blocks, bool(self.manifest.opening.get("compressed"))
        headers = [_batch_header(source.read(offset, meta)) for offset, meta, _ in batches]
        blocks = tuple(
            Block(i, n, self.url, offset, meta + body)
            for i, ((n, _), (offset, meta, body)) in enumerate(zip(headers, batches, strict=True))
        )
        return blocks, any(compressed for _, compressed in headers)

    def manifest_info(self) -> dict[str, Any]:
        return {**super().manifest_info(), "compressed": self._compressed}

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        where = f"{self.url}, block {block_id}"
        message = pa.ipc.read_message(pa.py_buffer(data[0]))
        if self._compressed:
            check_decompressed(where, _decompressed_bytes(message), limit_of(self.storage_options))
        batch = pa.ipc.read_record_batch(message, self._schema)
        if len(batch) != self.blocks[block_id].n:
            raise DataError(f"{where}: {len(batch)} records, expected {self.blocks[block_id].n}.")
        columns = {name: self._label if name == "label" else name for name in self.schema}
        first = int(self.starts[block_id])
        return {
            name: column_array(batch.column(columns[name]), field, f"{where}, {columns[name]}", first)
            for name, field in self.schema.items()
        }

    @classmethod
    def write(
        cls,
        url: str,
        records: Records,
        storage_options: fs.Options = None,
        block_bytes: int = BLOCK_BYTES,
        compression: str | None = None,
        class_names: Sequence[str] = (),
        table_facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Write records in blocks of ``block_bytes``.

        Parameters
        ----------
        compression : {None, "lz4", "zstd"}
            Compressed files are smaller, but their blocks are not views.
        class_names : sequence of str
            Written to the schema's metadata.
        table_facts : mapping, optional
            `TableFacts.to_dict` of a table that the records are from, written there too.
        """
        rows = Rechunker(url, records)
        with fs.staged(url, storage_options) as path:
            _write(path, rows, block_bytes, compression, class_names, table_facts)

    @classmethod
    def write_file(cls, path: Path, url: str, records: Records, class_names: Sequence[str] = ()) -> None:
        """Write records to a local file, which is neither renamed nor flushed to disk; ``url`` names it in errors."""
        _write(path, Rechunker(url, records), BLOCK_BYTES, None, class_names, None)


def _write(
    path: Path,
    rows: Rechunker,
    block_bytes: int,
    compression: str | None,
    class_names: Sequence[str],
    table_facts: Mapping[str, Any] | None,
) -> None:
    schema = schema_for(rows.schema, class_names, table_facts)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with path.open("wb") as file, pa.ipc.new_file(file, schema, options=options) as writer:
        for block in rows.chunks(rows_per_block(rows.record_bytes, block_bytes)):
            writer.write_batch(_batch(block, schema))


# -- columns -----------------------------------------------------------------------------------------


def schema_for(
    fields: Mapping[str, Field], class_names: Sequence[str], table_facts: Mapping[str, Any] | None
) -> pa.Schema:
    """Return the schema of records to write, with the metadata that describes them."""
    columns = [
        pa.field(name, pa.binary(field.size_bytes) if field.shape else pa.int32(), nullable=False)
        for name, field in fields.items()
    ]
    metadata: dict[str, Any] = {"version": 1, "fields": describe_fields(fields)}
    if class_names:
        metadata["class_names"] = list(class_names)
    if table_facts:
        metadata["table"] = dict(table_facts)
    return pa.schema(columns, {METADATA: json.dumps(metadata, sort_keys=True)})


def _batch(rows: Arrays, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        array = rows[field.name]
        buffer = pa.py_buffer(np.ascontiguousarray(array, np.int32 if array.ndim == 1 else None))
        columns.append(pa.Array.from_buffers(field.type, len(array), [None, buffer]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def metadata_of(schema: pa.Schema) -> dict[str, Any]:
    """Return the metadata that our converters write; empty if others have written the file."""
    return json.loads((schema.metadata or {}).get(METADATA, b"{}"))  # type: ignore[no-any-return]


def _fields(url: str, schema: pa.Schema) -> dict[str, Field]:
    metadata = metadata_of(schema)
    described = fields_of(metadata["fields"]) if metadata else {}
    fields = {}
    for column in schema:
        if column.name in described and pa.types.is_fixed_size_binary(column.type):
            fields[column.name] = described[column.name]
        elif pa.types.is_fixed_size_binary(column.type):
            fields[column.name] = Field(np.dtype(np.uint8), (column.type.byte_width,))
        elif column.name in described:
            fields[column.name] = Field(np.dtype(np.int32))
    check_described(url, schema, fields)
    if not any(field.shape for field in fields.values()):
        how = "backend: parquet reads lists of numbers, backend: table columns by their names."
        raise DataError(f"{url}: no column of fixed-size binary. {how} Columns: {', '.join(schema.names)}.")
    return fields


def check_described(url: str, schema: pa.Schema, fields: Mapping[str, Field]) -> None:
    """Raise a `DataError` if a column has not as many bytes as its metadata says."""
    for name, field in fields.items():
        kind = schema.field(name).type
        if field.shape and getattr(kind, "byte_width", 0) != field.size_bytes:
            raise DataError(f"{url}: column {name} of {kind} is described as {field.shape} {field.dtype}.")


def column_array(column: pa.Array, field: Field, where: str, first: int = 0) -> npt.NDArray[Any]:
    """Return a column of integers, or of fixed-size binary, as an array; its first record is the ``first`` one."""
    if column.null_count:
        raise DataError(f"{where}: {plural(column.null_count, 'record is', 'records are')} null.")
    if not field.shape:
        # column.to_numpy() would import pandas, if installed
        return as_labels(np.from_dlpack(column), where, first)
    values = np.frombuffer(
        column.buffers()[1],
        field.dtype,
        count=len(column) * (field.size_bytes // field.dtype.itemsize),
        offset=column.offset * field.size_bytes,
    )
    return values.reshape(len(column), *field.shape)


# -- footer: pyarrow reads it, but does not expose the offsets of batches -----------------------------------


def _read_footer(reader: Bytes) -> tuple[pa.Schema, list[tuple[int, int, int]]]:
    """Return the schema, and (offset, bytes of metadata, bytes of body) of each record batch."""
    tail = bytes(reader.read(max(0, reader.size - 10), min(10, reader.size)))
    if bytes(reader.read(0, min(4, reader.size))) == STREAM:
        raise DataError(f"{reader.url}: a stream of Arrow, which has no index. backend: parquet or table reads it.")
    if len(tail) < 10 or not tail.endswith(ARROW_MAGIC):
        raise DataError(f"{reader.url}: not an Arrow IPC file, or truncated: it does not end with {ARROW_MAGIC!r}.")
    (length,) = struct.unpack("<i", tail[:4])
    if not 0 < length <= reader.size - 10:
        raise DataError(f"{reader.url}: not an Arrow IPC file: a footer of {length} bytes.")
    footer = bytes(reader.read(reader.size - 10 - length, length))
    table = _root(footer)
    at = _slot(footer, table, 3)
    start, n = 0, 0
    if at:
        start = at + _unpack("<I", footer, at) + 4
        n = _unpack("<I", footer, start - 4)
    batches = [struct.unpack_from("<qi4xq", footer, start + 24 * i) for i in range(n)]
    # the message with the schema at the start of the file is for streams, and some programs leave it out
    schema = pa.ipc.open_file(pa.py_buffer(ARROW_MAGIC + b"\0\0" + footer + tail)).schema
    return schema, [(int(offset), int(meta), int(body)) for offset, meta, body in batches]


def _batch_header(metadata: memoryview) -> tuple[int, bool]:
    """Return the rows of a record batch, and whether it is compressed (Message.header.length and .compression)."""
    message = bytes(metadata[8:])
    table = _root(message)
    at = _slot(message, table, 2)
    header = at + _unpack("<I", message, at)
    rows = _slot(message, header, 0)
    return _unpack("<q", message, rows) if rows else 0, _slot(message, header, 3) > 0


def _decompressed_bytes(message: pa.Message) -> int:
    """Return the decompressed size of a record batch, as its buffers state it (RecordBatch.buffers)."""
    metadata, body = bytes(message.metadata), memoryview(message.body)
    at = _slot(metadata, _root(metadata), 2)
    buffers = _slot(metadata, at + _unpack("<I", metadata, at), 2)
    vector = buffers + _unpack("<I", metadata, buffers)
    spans = (struct.unpack_from("<qq", metadata, vector + 4 + 16 * i) for i in range(_unpack("<I", metadata, vector)))
    # -1 says that a buffer is not compressed
    return sum(max(0, *struct.unpack_from("<q", body, offset)) for offset, length in spans if length)


def _root(data: bytes) -> int:
    return _unpack("<I", data, 0)


def _slot(data: bytes, table: int, index: int) -> int:
    """Return the offset of field ``index`` of a flatbuffer table, 0 if it is absent."""
    vtable = table - _unpack("<i", data, table)
    if 4 + 2 * index >= _unpack("<H", data, vtable):
        return 0
    offset = _unpack("<H", data, vtable + 4 + 2 * index)
    return table + offset if offset else 0


def _unpack(kind: str, data: bytes, offset: int) -> int:
    return int(struct.unpack_from(kind, data, offset)[0])


# Records in Parquet: a row group is a block; columns of fixed-size binary, or lists of numbers of equal length.
#
# Lists of numbers are about 15 times slower to read than fixed-size binary, which our converters write.


# ranges that are closer than this are read as one: the bytes between them take less time than another request
MAX_GAP_BYTES = 1 << 17


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

    @cached_property
    def starts(self) -> list[int]:
        """Index of the first row of each group, and the number of rows."""
        groups = map(self.metadata.row_group, range(self.metadata.num_row_groups))
        return [0, *accumulate(group.num_rows for group in groups)]

    def extent(self, group: int) -> tuple[int, int]:
        """Return where the pages of a row group begin, about, and their compressed bytes.

        Where the row groups were made of another file, it is a share of that, so that it is always the same.
        """
        if self.source.origin:
            start, stop = (self.source.origin[0] * row // self.starts[-1] for row in self.starts[group : group + 2])
            return start, stop - start
        parts = self.metadata.row_group(group)
        columns = [parts.column(i) for i in range(parts.num_columns)]
        offset = min((int(column.data_page_offset) for column in columns), default=0)
        return offset, sum(int(column.total_compressed_size) for column in columns)

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
        self._window, self._checked = _Window(source.read, source.size), checked
        self._file = pq.ParquetFile(self._window, metadata=metadata, pre_buffer=False)
        self.metadata, self.schema = self._file.metadata, self._file.schema_arrow
        self._checking = pq.ParquetFile(
            self._window, metadata=self.metadata, pre_buffer=False, page_checksum_verification=True
        )

    def take_from(self, ranges: Sequence[Range], data: Sequence[memoryview]) -> None:
        """Take the bytes of some ranges from ``data``, not from the source."""
        self._window.fetched = tuple((each.offset, part) for each, part in zip(ranges, data, strict=True))

    @contextmanager
    def fetched(self, ranges: Sequence[Range], data: Sequence[memoryview]) -> Iterator[None]:
        """Take the bytes of some ranges from ``data`` for now."""
        self.take_from(ranges, data)
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


PARQUET_MAGIC = b"PAR1"
VALUE_NAMES = ("image", "images", "img", "pixel", "data", "x")


class ParquetOptions(LabelOptions, ImageOptions):
    """Options of Parquet files of arrays or images."""

    features: str = ""
    """Column of arrays, or of images. By default the only one, or the only one called image, images, img, pixel, data
    or x."""


@STORES.register("parquet")
class ParquetStore(RangeStore):
    """Records of a Parquet file.

    A column of fixed-size binary holds arrays described in the metadata, as our converters write it, or flat uint8. A
    column of lists of uint8 is ``pixel``, one of lists of other numbers ``data``. If there are no arrays, a column of
    Hugging Face's images is decoded.

    Feather, other files and streams of Arrow, and ORC are read as Parquet that is held in memory.
    """

    block = ParquetOptions
    write_options = ("block_bytes", "compression", "class_names", "table_facts")
    magic = PARQUET_MAGIC
    title = "a Parquet file"
    table_format = "parquet"
    decodes_ahead = True
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")
    damage = (pa.ArrowException, KeyError, OSError, TypeError, ValueError)

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return super().matches(url, head) or bool(cls.magic and is_columnar(url, head))

    def index(self) -> None:
        self._images, self._axes = "", dict[str, tuple[int, ...]]()
        self.sources.append(open_columns(self.url, self.storage_options))
        # a clearer error for an empty file than that of pyarrow
        if not self.sources[0].size:
            raise DataError(f"{self.url}: not a Parquet file: it is empty.")
        self._groups = RowGroups(self.sources[0])
        schema, metadata = self._groups.schema, self._groups.metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        self.blocks = tuple(
            Block(i, group.num_rows, self.url, *self._groups.extent(i)) for i, group in enumerate(groups)
        )
        if not self.count:
            return
        described = metadata_of(schema)
        self.schema = self._fields(schema, described.get("fields", {}))
        self.class_names = parse_names(described.get("class_names"))
        if "label" in self._columns and not self.class_names:
            self.class_names = hugging_face_names(schema.metadata, self._columns["label"])
        self.is_converted = bool(described)
        self.set_table_facts(described.get("table"))
        self._ranges = [self._groups.ranges(i, list(self._columns.values())) for i in range(len(groups))]
        self._check_sizes([group.total_byte_size for group in groups])

    def _check_sizes(self, group_bytes: Sequence[int]) -> None:
        """Raise a `DataError` if a row group decompresses, or its dictionaries and runs expand, to too much."""
        for block, n_bytes in zip(self.blocks, group_bytes, strict=True):
            where = f"{self.url}, block {block.id}"
            check_decompressed(where, max(n_bytes, block.n * self.record_bytes), limit_of(self.storage_options))

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        return self._ranges[block_id]

    def fetch_bytes(self, block_id: int) -> int:
        return sum(each.length for each in self._ranges[block_id])

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        where = f"{self.url}, block {block_id}"
        table = self._table(block_id, data)
        images = self._decoded(table, block_id) if self._images else {}
        first = int(self.starts[block_id])
        return images | {
            name: self._values(_joined(table.column(self._columns[name])), name, where, first)
            for name in self.schema
            if name not in images
        }

    def _values(self, column: pa.Array, name: str, where: str, first: int) -> npt.NDArray[Any]:
        """Return the values of a field."""
        return _array(column, self.schema[name], f"{where}, {self._columns[name]}", first, self._axes.get(name, ()))

    def _table(self, block_id: int, data: Sequence[memoryview]) -> pa.Table:
        is_checked = self.blocks[block_id].crc is not None
        return self._groups.read(block_id, list(self._columns.values()), self._ranges[block_id], data, is_checked)

    # -- encoded images --------------------------------------------------------------------------------

    def _decoded(self, table: pa.Table, block_id: int) -> Arrays:
        """Decode the images of a block."""
        first, (shape, where) = int(self.starts[block_id]), (self.schema["pixel"].shape, self.url)
        images = self._decode_images(table, first)
        for i, image in enumerate(images, first):
            if image.shape != shape:
                raise DataError(
                    f"{where}, record {i}: an image of {image.shape}, expected {shape} like the first. Give resize: "
                    "[height, width] with backend: image-parquet."
                )
        return {"pixel": np.stack(images)}

    def _decode_images(self, table: pa.Table, first: int) -> list[npt.NDArray[np.uint8]]:
        """Decode a column of images; ``first`` is the index of the first record, for errors."""
        images = []
        for i, data in enumerate(_joined(table.column(self._images)).field("bytes"), first):
            where = f"{self.url}, record {i}"
            if not data.is_valid:
                raise DataError(
                    f"{where}: has no bytes of an image, at most its path. Write the images themselves, as "
                    "Dataset.push_to_hub and datasets.table.embed_table_storage do."
                )
            images.append(decode_image(data.as_buffer(), where, self.options["resize"], self.options["channels"]))
        return images

    def _image_field(self) -> Field:
        """Return the field of a column of images, of which the first is decoded."""
        batch = next(self._groups.reader().batches([self._images], 1))
        (first,) = self._decode_images(pa.Table.from_batches([batch]), 0)
        return Field(first.dtype, first.shape)

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        if not self._images:
            return super().salvage(block_id)
        first, table = int(self.starts[block_id]), self._table(block_id, self.fetch(block_id))

        def read_row(row: int) -> Arrays:
            record: Arrays = {"pixel": self._decode_images(table.slice(row, 1), first + row)[0]}
            if "label" in self.schema:
                column = _joined(table.column(self._columns["label"]).slice(row, 1))
                record["label"] = self._values(column, "label", self.url, first + row)[0]
            return record

        return salvage_rows(self.blocks[block_id].n, self.schema, read_row)

    def _fields(self, schema: pa.Schema, described: Mapping[str, Any]) -> dict[str, Field]:
        """Return the fields, as our converters described them or by the columns, and set the column of each."""
        if described:
            self._columns = {name: name for name in described}
            fields = fields_of(described)
            check_described(self.url, schema, fields)
            return fields
        arrays = [column.name for column in schema if holds_numbers(_stored(column.type))]
        images = [column.name for column in schema if _is_image(column.type)]
        if self.options["features"] in images or not arrays:
            self._images = value = self._choose_values(images, "images")
        else:
            value = self._choose_values(arrays, "arrays")
        if not value:
            names = ", ".join(schema.names)
            raise DataError(f"{self.url}: no column of fixed-size binary or lists of numbers. Columns: {names}.")
        field, axes = (self._image_field(), ()) if self._images else self._field(schema.field(value))
        kept = "pixel" if field.dtype == np.uint8 else "data"
        self._columns, fields, self._axes = {kept: value}, {kept: field}, {kept: axes}
        self.other_fields = tuple(name for name in schema.names if name not in (*arrays, value))
        label = self.choose_label([name for name in schema.names if name != value])
        if label:
            check_label_type(self.url, schema.field(label))
            self._columns["label"], fields["label"] = label, Field(np.dtype(np.int32))
        return fields

    def _choose_values(self, found: Sequence[str], what: str) -> str:
        """Return which of the columns of arrays, or images, is read; empty if there are none."""
        given = self.options["features"]
        chosen = [name for name in found if name == given or (not given and name in VALUE_NAMES)]
        chosen = chosen or ([] if given else list(found))
        if len(chosen) == 1 or (not found and not given):
            return "".join(chosen)
        fault = f"no {what} in {given!r}" if given else f"{' and '.join(chosen)} are {what}"
        raise DataError(f"{self.url}: {fault}. Name one in user_conf: {{features: ...}}. Columns: {', '.join(found)}.")

    def _field(self, column: pa.Field) -> tuple[Field, tuple[int, ...]]:
        """Return the field of a column of arrays without our metadata, and the order of its axes in the file.

        The shape is that of the type, or else that of the first record.
        """
        kind = _stored(column.type)
        if pa.types.is_fixed_size_binary(kind):
            return Field(np.dtype(np.uint8), (kind.byte_width,)), ()
        sizes, leaf = list[int](), kind
        while is_list(leaf):
            sizes.append(leaf.list_size if pa.types.is_fixed_size_list(leaf) else 0)
            leaf = leaf.value_type
        self.rounds_data = leaf not in (pa.uint8(), pa.float32())
        dtype = np.dtype(np.uint8 if leaf == pa.uint8() else np.float32)
        if isinstance(column.type, pa.FixedShapeTensorType):
            stored = column.type.shape
            axes = tuple(column.type.permutation or range(len(stored)))
            shapes = [tuple(stored[i] for i in order) for order in (axes, np.argsort(axes))]
            # pyarrow writes the inverse of the permutation that the specification defines
            if any(axes[axis] != i for i, axis in enumerate(axes)):
                raise DataError(
                    f"{self.url}: column {column.name!r} has permuted axes, {list(axes)}: records of {shapes[0]} by "
                    f"the specification of Arrow, {shapes[1]} as pyarrow writes them. Write them in order."
                )
            return Field(dtype, shapes[0]), axes
        if 0 in sizes:
            first = _joined(pa.Table.from_batches([next(self._groups.reader().batches([column.name], 1))]).column(0))
            inner = first[0].as_py()
            for i in range(len(sizes)):
                if not inner:
                    raise DataError(f"{self.url}, {column.name}, record 0: no values, so the shape is not known.")
                sizes[i], inner = len(inner), inner[0]
        return Field(dtype, tuple(sizes)), ()

    @classmethod
    def write(
        cls,
        url: str,
        records: Records,
        storage_options: fs.Options = None,
        block_bytes: int = BLOCK_BYTES,
        compression: str | None = None,
        class_names: Sequence[str] = (),
        table_facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Write records in row groups of ``block_bytes``, with page checksums.

        Parameters
        ----------
        compression : {None, "zstd", "snappy", "lz4"}
            Compressed files are smaller, but slower to read.
        class_names : sequence of str
            Written to the schema's metadata.
        table_facts : mapping, optional
            `TableFacts.to_dict` of a table that the records are from, written there too.
        """
        rows = Rechunker(url, records)
        schema = schema_for(rows.schema, class_names, table_facts)
        per_group = max(1, block_bytes // max(rows.record_bytes, 1))
        with fs.staged(url, storage_options) as path, path.open("wb") as file:
            writer = pq.ParquetWriter(
                file,
                schema,
                compression=compression or "none",
                use_dictionary=False,
                write_statistics=False,
                write_page_checksum=True,
            )
            with writer:
                for group in rows.chunks(per_group):
                    writer.write_table(pa.Table.from_batches([_batch(group, schema)]), row_group_size=per_group)


@STORES.register("image-parquet")
class ImageParquetStore(ParquetStore):
    """Encoded images in a Parquet file, as Hugging Face's datasets write them: structs of bytes and path."""

    holds = "images"
    table_format = ""
    # files of records are written by its base class
    suffixes = ()
    magic = b""

    def index(self) -> None:
        super().index()
        if self.count and not self._images:
            raise DataError(f"{self.url}: no column of encoded images, structs of bytes and path. Leave backend out.")


def _is_image(kind: pa.DataType) -> bool:
    """Return whether values are structs with ``bytes``."""
    is_struct = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
    return is_struct and kind.field("bytes").type in (pa.binary(), pa.large_binary())


def _stored(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _joined(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    array = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _array(column: pa.Array, field: Field, where: str, first: int, axes: tuple[int, ...] = ()) -> npt.NDArray[Any]:
    """Return the values of a column, whose ``first`` record this is in the file; ``axes`` is their order there."""
    if not field.shape or pa.types.is_fixed_size_binary(column.type):
        return column_array(column, field, where, first)
    # a tensor is one list
    is_tensor = not is_list(column.type.value_type)
    flat = flat_lists(column, [field.size_bytes // field.dtype.itemsize] if is_tensor else field.shape, where, first)
    numbers = flat.cast(pa.uint8()) if pa.types.is_boolean(flat.type) else flat
    shape = [field.shape[axis] for axis in axes] or field.shape
    values = np.from_dlpack(numbers).reshape(len(column), *shape)
    if axes:
        values = np.ascontiguousarray(values.transpose(0, *(axis + 1 for axis in axes)))
    # raises an error for what is too large for float32
    return as_values(values, where, first, np.promote_types(field.dtype, np.float32)).astype(field.dtype, copy=False)
