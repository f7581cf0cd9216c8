"""Records in an Arrow IPC file: fixed-size binary columns, one record batch per block.

The default format of the converters. Blocks of a local file are views of its memory map; a remote block is one ranged
read. Compressed files are supported, but their blocks are copies.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask import fs
from singa_dask.data.codecs.record import as_labels, describe_fields, fields_of
from singa_dask.data.codecs.table import check_label_type
from singa_dask.data.stores.class_names import parse_names
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import BLOCK_BYTES, STORES, LabelOptions, Rechunker, rows_per_block
from singa_dask.data.types import Arrays, Block, Field, Records
from singa_dask.errors import DataError
from singa_dask.fs.range_reader import Bytes, check_decompressed, limit_of

STREAM = b"\xff" * 4
MAGIC = b"ARROW1"
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

    magic = MAGIC
    title = "an Arrow IPC file"
    suffixes = (".arrow", ".feather")
    damage = DAMAGE
    write_options = ("block_bytes", "compression", "class_names", "table_facts")

    def index(self) -> None:
        source = self.open_source()
        self._schema, batches = _read_footer(source)
        self.schema = _fields(self.url, self._schema)
        self._label, described = "label", metadata_of(self._schema)
        if described:
            check_options(self.url, described, self.options)
        else:
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
        return {
            name: column_array(batch.column(columns[name]), field, f"{where}, {columns[name]}")
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
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema, options=options) as writer:
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


def check_options(url: str, described: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Raise a `DataError` if options name other fields than a file of our converters has, which are not chosen."""
    fields = list(described["fields"])
    columns = [name for name, _ in (described.get("table") or {}).get("labels", [])]
    names = {
        "features": [name for name in fields if name != "label"],
        # of several labels none can be chosen
        "label": [name for name in fields if name == "label"] + (columns if len(columns) == 1 else []),
    }
    for key, known in names.items():
        if options.get(key) and options[key] not in known:
            there = f"It has {' or '.join(known)}" if known else "It has none"
            raise DataError(
                f"{url}: no {options[key]!r} for {key}: a conversion has chosen what its records are. {there}."
            )


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
        raise DataError(f"{url}: no column of fixed-size binary. Columns: {', '.join(schema.names)}.")
    return fields


def check_described(url: str, schema: pa.Schema, fields: Mapping[str, Field]) -> None:
    """Raise a `DataError` if a column has not as many bytes as its metadata says."""
    for name, field in fields.items():
        kind = schema.field(name).type
        if field.shape and getattr(kind, "byte_width", 0) != field.size_bytes:
            raise DataError(f"{url}: column {name} of {kind} is described as {field.shape} {field.dtype}.")


def column_array(column: pa.Array, field: Field, where: str) -> npt.NDArray[Any]:
    """Return the values of a column of integers, or of fixed-size binary, as an array."""
    if column.null_count:
        raise DataError(f"{where}: {column.null_count} records are null.")
    if not field.shape:
        # column.to_numpy() would import pandas, if installed
        return as_labels(np.from_dlpack(column), where)
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
        how = "Write a file: pyarrow.ipc.new_file, or ds.to_parquet of a data set that save_to_disk has written."
        raise DataError(f"{reader.url}: a stream of Arrow, which has no index. {how}")
    if len(tail) < 10 or not tail.endswith(MAGIC):
        raise DataError(f"{reader.url}: not an Arrow IPC file, or truncated: it does not end with {MAGIC!r}.")
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
    schema = pa.ipc.open_file(pa.py_buffer(MAGIC + b"\0\0" + footer + tail)).schema
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
