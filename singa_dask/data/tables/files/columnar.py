"""Columnar files that are read as Parquet in memory: Feather, other Arrow files, and ORC."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import pyarrow as pa

from singa_dask import fs
from singa_dask.errors import DataError
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.decompression import check_decompressed, limit_of
from singa_dask.fs.range_reader import RangeReader
from singa_dask.fs.sources import Bytes, BytesInMemory
from singa_dask.lazy import LazyModule

pq = LazyModule("pyarrow.parquet")

ARROW_MAGIC = b"ARROW1"
PARQUET_MAGIC = b"PAR1"
STREAM = b"\xff" * 4
ORC_MAGIC = b"ORC"
FEATHER_1 = b"FEA1"
SUFFIXES = (".feather", ".orc")
# offset of the schema message in an Arrow file
SCHEMA_AT = 8
PARQUET_SUFFIXES = (".parquet", ".pq", ".parq")
ROWS = 1 << 14


def is_columnar(url: str, head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is an Arrow stream, ORC, or Feather.

    Other Arrow files count as columnar, unless they have a column of fixed-size binary; such files are read by
    `ArrowStore`.
    """
    if not head.startswith(ARROW_MAGIC):
        return head.startswith((STREAM, ORC_MAGIC)) or url.lower().endswith(SUFFIXES)
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(head[SCHEMA_AT:]))
    except (pa.ArrowException, OSError, ValueError):
        # the schema is longer than the head, or damaged; `ArrowStore` raises the error
        return False
    return not any(pa.types.is_fixed_size_binary(kind) for kind in schema.types)


def open_columns(url: str, storage_options: fs.Options = None) -> Bytes:
    """Open a Parquet file; convert an Arrow or ORC file to Parquet in memory.

    Raises
    ------
    DataError
        The file is missing, empty, damaged, Feather of version 1, larger than the limit, or has columns of a type that
        Parquet lacks.
    """
    source = RangeReader(url, storage_options)
    if url.lower().endswith(PARQUET_SUFFIXES):  # decide by the suffix, which saves a request for a remote file
        return source
    head = bytes(source.read(0, min(len(ARROW_MAGIC), source.size)))
    if head.startswith(FEATHER_1):
        source.close()
        how = "Write version 2, as pandas.DataFrame.to_feather does."
        raise DataError(f"{url}: the file is Feather version 1, which has no types for categories and lists. {how}")
    if not (head == ARROW_MAGIC or head.startswith((STREAM, ORC_MAGIC))):
        return source
    try:
        # read the whole file here: for a damaged file, pyarrow may request and allocate more bytes than the file has
        data = bytes(source.read(0, source.size))
        written = _as_parquet(source, data, limit_of(storage_options))
        return BytesInMemory(url, written, (len(data), checksum_of(data)))
    except (pa.ArrowException, OSError, ValueError) as error:
        kind = "an ORC file" if head.startswith(ORC_MAGIC) else "Arrow"
        raise DataError(
            f"{url}: the file is not {kind}, is damaged, or has types that Parquet lacks: {error}"
        ) from error
    finally:
        source.close()


def _as_parquet(source: Bytes, data: bytes, limit: int) -> bytes:
    batches: Iterable[pa.RecordBatch]
    file = pa.BufferReader(data)
    if data.startswith(ORC_MAGIC):
        from pyarrow import orc

        opened = orc.ORCFile(file)
        schema, batches = opened.schema, (opened.read_stripe(i) for i in range(opened.nstripes))
    elif data.startswith(ARROW_MAGIC):
        reader = pa.ipc.open_file(file)
        schema, batches = reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        stream = pa.ipc.open_stream(file)
        schema, batches = stream.schema, _streamed(source, stream)
    written, n_bytes = io.BytesIO(), 0
    with pq.ParquetWriter(written, schema, write_statistics=False) as writer:
        for batch in batches:
            # validate offsets of lists and indices of categories, because later code does not
            batch.validate(full=True)
            n_bytes += batch.nbytes
            check_decompressed(source.url, n_bytes, limit)
            writer.write_table(pa.Table.from_batches([batch], schema), row_group_size=ROWS)
    return written.getvalue()


def _streamed(source: Bytes, stream: pa.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream; raise a `DataError` if the stream has no end mark."""
    yield from stream
    if bytes(source.read(source.size - 8, 8)) != STREAM + bytes(4):
        raise DataError(f"{source.url}: the Arrow stream has no end. It is truncated, or still being written.")
