"""Records in SINGA's key-value file: each value is a RecordProto.

The file is little-endian, without header, index or checksums (after SINGA's src/io/kvfile.cc). Records of one length
are views of the mapped file.
"""

from __future__ import annotations

import base64
import itertools
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.blocks import cut_blocks, rows_per_block
from singa_dask.data.codecs import record, record_schema
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.stores.store import STORES, StoreOptions
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from singa_dask.fs.sources import Bytes, ReadAhead

LENGTH = struct.Struct("<Q")
SHARD = "shard.dat"
CHUNK_BYTES = 1 << 24


def file_url(url: str, storage_options: fs.Options = None) -> str:
    """Return the URL of the file. For a directory, this is the ``shard.dat`` in it, as in SINGA 0.1."""
    return fs.join(url, SHARD) if fs.is_dir(url, storage_options) else url


class KVFile:
    """An index of the pairs in a file.

    Parameters
    ----------
    reader : Bytes
        The file.
    known : mapping, optional
        An earlier result of `index_info`, which saves a scan of the file.

    Attributes
    ----------
    offsets : (n + 1,) int64
        Offset of each pair, and the offset of the end of the last complete pair.
    stride : int
        Number of bytes of a pair, if all keys and all values have equal lengths; otherwise 0.
    truncated_bytes : int
        Number of bytes of an incomplete pair at the end of the file.
    """

    def __init__(self, reader: Bytes, known: Mapping[str, Any] | None = None) -> None:
        self.url, self.reader = reader.url, reader
        if known is None or not self._load_index(known):
            self.stride = self._constant_stride()
            self.offsets = self._even_offsets() if self.stride else self._scan()
        self.truncated_bytes = self.reader.size - int(self.offsets[-1])

    def _even_offsets(self) -> npt.NDArray[np.int64]:
        return np.arange(0, self.reader.size + 1, self.stride, dtype=np.int64)

    def index_info(self) -> dict[str, Any]:
        """Return the stride, or the compressed lengths of all pairs. Pass the result as ``known``."""
        info: dict[str, Any] = {"bytes": self.reader.size, "stride": self.stride}
        if not self.stride:
            lengths = np.diff(self.offsets).astype("<i8").tobytes()
            info["pairs"] = base64.b64encode(zlib.compress(lengths, 1)).decode()
        return info

    def _load_index(self, info: Mapping[str, Any]) -> bool:
        """Restore the index from `index_info`; return False if the index contradicts the first pair."""
        try:
            self.stride = int(info["stride"])
            if self.stride:
                self.offsets = self._even_offsets()
            else:
                # each pair has at least two lengths of 8 bytes, so the index is not larger than the file
                packed = base64.b64decode(info["pairs"])
                lengths = np.frombuffer(zlib.decompressobj().decompress(packed, self.reader.size), "<i8")
                self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            first = bytes(self.reader.scan(0, int(self.offsets[1])))
            (key_length,) = LENGTH.unpack_from(first, 0)
            (value_length,) = LENGTH.unpack_from(first, 8 + key_length)
        except (DataError, LookupError, OverflowError, TypeError, ValueError, struct.error, zlib.error):
            return False
        return int(self.offsets[-1]) <= self.reader.size and 16 + key_length + value_length == len(first)

    @property
    def count(self) -> int:
        """Number of pairs."""
        return len(self.offsets) - 1

    def values(self, first: int, n: int, data: memoryview) -> npt.NDArray[np.uint8] | list[memoryview]:
        """Return the values of ``n`` pairs: an (n, length) view, or a list for varying lengths."""
        if self.stride:
            (key_length,) = LENGTH.unpack_from(data, 0)
            return np.frombuffer(data, np.uint8).reshape(n, self.stride)[:, 16 + key_length :]
        starts = (self.offsets[first : first + n + 1] - self.offsets[first]).tolist()
        return [
            data[start + 16 + LENGTH.unpack_from(data, start)[0] : end] for start, end in itertools.pairwise(starts)
        ]

    def _constant_stride(self) -> int:
        size = self.reader.size
        header = self._header(0, self.reader)
        if header is None or size % (16 + sum(header)):
            return 0
        stride = 16 + sum(header)
        per_chunk = max(1, CHUNK_BYTES // stride) * stride
        lengths = np.frombuffer(LENGTH.pack(header[0]) + LENGTH.pack(header[1]), np.uint8)
        for start in range(0, size, per_chunk):
            data = self.reader.scan(start, min(per_chunk, size - start))
            rows = np.frombuffer(data, np.uint8).reshape(-1, stride)
            value_at = 8 + header[0]
            same = (rows[:, :8] == lengths[:8]).all() and (rows[:, value_at : value_at + 8] == lengths[8:]).all()
            if not same:
                return 0
        return stride

    def _header(self, offset: int, source: Bytes | ReadAhead) -> tuple[int, int] | None:
        """Return key and value length of the pair at ``offset``; None if it is incomplete."""
        end = source.size
        if offset + 8 > end:
            return None
        (key_length,) = LENGTH.unpack(source.read(offset, 8))
        if offset + 16 + key_length > end:
            return None
        (value_length,) = LENGTH.unpack(source.read(offset + 8 + key_length, 8))
        return (key_length, value_length) if offset + 16 + key_length + value_length <= end else None

    def _scan(self) -> npt.NDArray[np.int64]:
        offsets, ahead = [0], ReadAhead(self.reader)
        while (header := self._header(offsets[-1], ahead)) is not None:
            offsets.append(offsets[-1] + 16 + sum(header))
        return np.array(offsets, np.int64)


def put_pairs(file: BinaryIO, pairs: Iterable[tuple[str, bytes]]) -> None:
    """Write pairs to a file. Pairs with an empty value are left out, as in SINGA."""
    for name, value in pairs:
        if value:
            key = name.encode()
            file.write(b"".join((LENGTH.pack(len(key)), key, LENGTH.pack(len(value)), value)))


class KVFileOptions(StoreOptions):
    """Options of key-value files."""

    truncated: bool = False
    """Open a file whose last pair is incomplete, without that pair."""


@STORES.register("kvfile")
class KVFileStore(RangeStore):
    """Records of a key-value file in SINGA's format.

    Raises
    ------
    DataError
        The file is empty, its values are not records, or it is truncated. With ``truncated=True``, a truncated file is
        an error only if the incomplete rest is longer than a record can be.
    """

    options_class = KVFileOptions
    write_options = ("keys",)
    title = "a key-value file"
    suffixes = (".bin", ".dat", ".kvfile")
    directory_files = (SHARD,)

    def index(self) -> None:
        source = self.open_source(file_url(self.url, self.storage_options))
        self._pairs = KVFile(source, self.manifest.opening if self.manifest is not None else None)
        if self._pairs.truncated_bytes:
            self._drop_truncated()
        if not self._pairs.count:
            raise DataError(f"{self._pairs.url}: no records.")
        self.blocks = cut_blocks(self._pairs.url, self._pairs.offsets)
        first = source.read(0, int(self._pairs.offsets[1]))
        self.schema = record_schema.schema_of(self._decode(0, 1, "block 0", first))
        self.mapped = self.is_local and self._pairs.stride > 0 and "pixel" in self.schema

    def _drop_truncated(self) -> None:
        index = self._pairs
        rest = f"record {index.count} is incomplete, {index.truncated_bytes} bytes are left"
        # a rest that is longer than any record is not an incomplete record, but caused by a wrong length in the file
        if not self.options["truncated"] or index.truncated_bytes > np.diff(index.offsets).max(initial=0):
            raise DataError(f"{index.url}: truncated at byte {index.offsets[-1]}: {rest}.")
        self.truncation = f"truncated at byte {index.offsets[-1]}: {rest}"

    def manifest_info(self) -> dict[str, Any]:
        return self._pairs.index_info()

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        where = f"block {block_id}"
        arrays = self._decode(int(self.starts[block_id]), self.blocks[block_id].n, where, data[0])
        return record_schema.check_schema(arrays, self.schema, f"{self._pairs.url}, {where}")

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        values = [
            memoryview(np.ascontiguousarray(value)) for value in self._pairs.values(first, n, self.fetch(block_id)[0])
        ]
        return record.salvage_values(values, self.schema, record.decode_records)

    def _decode(self, first: int, n: int, where: str, data: memoryview) -> Arrays:
        values = self._pairs.values(first, n, data)
        try:
            return record.decode_values(values, record.decode_records)
        except ValueError as error:
            raise DataError(f"{self._pairs.url}, {where} (records from {first} on): {error}.") from error

    @classmethod
    def write_rows(cls, file: BinaryIO, rows: Rechunker, keys: str = "%08d") -> None:
        """Write records. Their keys are their indices in the format ``keys``.

        Parameters
        ----------
        keys : str
            Format of the keys. SINGA's tools use ``%08d`` (MNIST) and ``%05d`` (CIFAR).
        """
        put_pairs(file, _pairs(rows, keys))


def _pairs(rows: Rechunker, keys: str) -> Iterator[tuple[str, bytes]]:
    name = "data" if "data" in rows.schema else "pixel"
    shape = rows.schema[name].shape
    for block in rows.chunks(rows_per_block(rows.record_bytes)):
        labels = block["label"].tolist() if "label" in block else [None] * len(block[name])
        first = rows.taken - len(labels)
        for i, (value, label) in enumerate(zip(np.ascontiguousarray(block[name]), labels, strict=True), first):
            pixel, data = (None, value) if name == "data" else (value.tobytes(), None)
            yield (keys % i if "%" in keys else keys), record.encode_record(shape, label, pixel, data)
