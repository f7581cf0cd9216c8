"""Records in Arrow IPC files: columns of fixed-size binary, described by metadata.

Arrow is the default format of converters: a record batch is a block. Blocks of a local file are views of its memory
map; a remote block is one ranged read. Blocks of compressed files are copies.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from singa_dask.data.blocks import BLOCK_BYTES, rows_per_block
from singa_dask.data.codecs.record_schema import fields_of
from singa_dask.data.stores.arrow.arrow_columns import (
    check_described,
    check_label_type,
    column_array,
    describe,
    metadata_of,
    record_batch,
    schema_for,
)
from singa_dask.data.stores.range_store import DAMAGE, RangeStore
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.stores.store import STORES, LabelOptions
from singa_dask.data.tables.files.columnar import ARROW_MAGIC, STREAM, is_columnar
from singa_dask.data.types import Arrays, Block, Field
from singa_dask.errors import DataError
from singa_dask.fs.decompression import check_decompressed, limit_of
from singa_dask.fs.sources import Bytes
from singa_dask.wording import listed


@STORES.register("arrow")
class ArrowStore(RangeStore):
    """Records of an Arrow IPC file.

    Columns of fixed-size binary are arrays. The metadata of converted files has their dtype and shape; without metadata
    they are flat arrays of uint8.
    """

    options_class = LabelOptions
    magic = ARROW_MAGIC
    title = "an Arrow IPC file"
    suffixes = (".arrow", ".feather")
    damage = (*DAMAGE, pa.ArrowException)
    write_options = ("block_bytes", "compression", "class_names", "table_facts")

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return super().matches(url, head) and not is_columnar(url, head)

    def index(self) -> None:
        source = self.open_source()
        self._schema, batches = _read_footer(source)
        self.schema = _fields(self.url, self._schema)
        self._label = "label"
        if not describe(self, self._schema):
            if {"data", "pixel"} <= self.schema.keys():
                raise DataError(f"{self.url}: data and pixel could each be the values of a record. Leave one out.")
            self.other_fields = tuple(name for name in self._schema.names if name not in self.schema)
            self._label = self.choose_label(self.other_fields)
            if self._label:
                check_label_type(self.url, self._schema.field(self._label))
                self.schema["label"] = Field(np.dtype(np.int32))
        self.blocks, self._compressed = self._find_blocks(source, batches)
        self.mapped = self.is_local and not self._compressed

    def _find_blocks(self, source: Bytes, batches: list[tuple[int, int, int]]) -> tuple[tuple[Block, ...], bool]:
        """Return the blocks, and whether a block is compressed, from the manifest or the blocks' headers."""
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
            raise DataError(f"{where}: the block has {len(batch)} records, expected {self.blocks[block_id].n}.")
        columns = {name: self._label if name == "label" else name for name in self.schema}
        first = int(self.starts[block_id])
        return {
            name: column_array(batch.column(columns[name]), field, f"{where}, {columns[name]}", first)
            for name, field in self.schema.items()
        }

    @classmethod
    def write_rows(
        cls,
        file: BinaryIO,
        rows: Rechunker,
        block_bytes: int = BLOCK_BYTES,
        compression: str | None = None,
        **described: Any,
    ) -> None:
        """Write records in blocks of ``block_bytes``. See `schema_for` for the other options.

        Parameters
        ----------
        compression : {None, "lz4", "zstd"}
            Compressed files are smaller, but their blocks are not views.
        """
        schema, options = schema_for(rows.schema, **described), pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(file, schema, options=options) as writer:
            for block in rows.chunks(rows_per_block(rows.record_bytes, block_bytes)):
                writer.write_batch(record_batch(block, schema))


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
        raise DataError(f"{url}: there is no column of fixed-size binary. {how} Columns: {listed(schema.names)}.")
    return fields


# -- footer: pyarrow reads it, but does not expose the offsets of batches -----------------------------------


def _read_footer(reader: Bytes) -> tuple[pa.Schema, list[tuple[int, int, int]]]:
    """Return the schema, and (offset, bytes of metadata, bytes of body) of each record batch."""
    tail = bytes(reader.read(max(0, reader.size - 10), min(10, reader.size)))
    if bytes(reader.read(0, min(4, reader.size))) == STREAM:
        raise DataError(
            f"{reader.url}: the file is a stream of Arrow, which has no index. Read it with backend: parquet or table."
        )
    if len(tail) < 10 or not tail.endswith(ARROW_MAGIC):
        raise DataError(f"{reader.url}: not an Arrow IPC file, or truncated: it does not end with {ARROW_MAGIC!r}.")
    (length,) = struct.unpack("<i", tail[:4])
    if not 0 < length <= reader.size - 10:
        raise DataError(f"{reader.url}: not an Arrow IPC file: its footer has {length} bytes.")
    footer = bytes(reader.read(reader.size - 10 - length, length))
    table = _root(footer)
    at = _slot(footer, table, 3)
    start, n = 0, 0
    if at:
        start = at + _unpack("<I", footer, at) + 4
        n = _unpack("<I", footer, start - 4)
    batches = [struct.unpack_from("<qi4xq", footer, start + 24 * i) for i in range(n)]
    # read the schema from the footer, because some programs omit the message at the start of the file
    schema = pa.ipc.open_file(pa.py_buffer(ARROW_MAGIC + b"\0\0" + footer + tail)).schema
    return schema, [(int(offset), int(meta), int(body)) for offset, meta, body in batches]


def _batch_header(metadata: memoryview) -> tuple[int, bool]:
    """Return the number of rows of a record batch, and whether it is compressed, given its message."""
    message = bytes(metadata[8:])
    table = _root(message)
    at = _slot(message, table, 2)
    header = at + _unpack("<I", message, at)
    rows = _slot(message, header, 0)
    return _unpack("<q", message, rows) if rows else 0, _slot(message, header, 3) > 0


def _decompressed_bytes(message: pa.Message) -> int:
    """Return the decompressed size of a record batch, according to the headers of its buffers."""
    metadata, body = bytes(message.metadata), memoryview(message.body)
    at = _slot(metadata, _root(metadata), 2)
    buffers = _slot(metadata, at + _unpack("<I", metadata, at), 2)
    vector = buffers + _unpack("<I", metadata, buffers)
    spans = (struct.unpack_from("<qq", metadata, vector + 4 + 16 * i) for i in range(_unpack("<I", metadata, vector)))
    # the length -1 means that a buffer is not compressed
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
