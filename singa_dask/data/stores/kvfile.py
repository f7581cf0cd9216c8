"""Records in SINGA's key-value file: each value a RecordProto.

Records of one length are views of the mapped file; others are gathered block by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from singa_dask.data import fs
from singa_dask.data.codecs.kvfile import SHARD, KVFile, file_url, write_pairs
from singa_dask.data.codecs.record import (
    check_schema,
    decode_records,
    decode_values,
    encode_record,
    salvage_values,
    schema_of,
)
from singa_dask.data.stores.block_sizes import Rechunker, cut_blocks, rows_per_block
from singa_dask.data.stores.manifest import CachedIndex
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import STORES
from singa_dask.data.types import Arrays, Records
from singa_dask.errors import DataError

__all__ = ["KVFileStore"]


@STORES.register("kvfile")
class KVFileStore(RangeStore):
    """Records of a key-value file in SINGA's format.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
    truncated : bool
        Open a file whose last pair is incomplete, without that pair, and set ``truncation``.

    Raises
    ------
    DataError
        The file is empty, its values are not records, or it is truncated. With ``truncated=True`` still an error if
        the rest is longer than a record can be.
    """

    title = "a key-value file"
    suffixes = (".bin", ".dat", ".kvfile")
    directory_files = (SHARD,)
    accepts_truncated = True

    def __init__(self, url: str, storage_options: fs.Options = None, truncated: bool = False) -> None:
        super().__init__(url, storage_options, truncated=truncated)

    def index(self) -> None:
        source = self.open_source(file_url(self.url, self.storage_options))
        cached = CachedIndex(source.url, source.size, self.storage_options)
        known = self.manifest.opening if self.manifest is not None else cached.find()
        self._pairs = KVFile(source, known)
        if self.manifest is None:
            cached.keep(self._pairs.index_info)
        if self._pairs.truncated_bytes:
            self._drop_truncated()
        if not self._pairs.count:
            raise DataError(f"{self._pairs.url}: no records.")
        self.blocks = cut_blocks(self._pairs.url, self._pairs.offsets)
        self.schema = schema_of(self._decode(0, 1, "block 0", self._pairs.read(0, 1)))
        self.mapped = self.is_local and self._pairs.stride > 0 and "pixel" in self.schema

    def _drop_truncated(self) -> None:
        index = self._pairs
        rest = f"record {index.count} is incomplete, {index.truncated_bytes} bytes are left"
        # more than any record: caused by a wrong length in the middle of the file
        if not self.options["truncated"] or index.truncated_bytes > np.diff(index.offsets).max(initial=0):
            raise DataError(f"{index.url}: truncated at byte {index.offsets[-1]}: {rest}.")
        self.truncation = f"truncated at byte {index.offsets[-1]}: {rest}"

    def manifest_info(self) -> dict[str, Any]:
        return self._pairs.index_info()

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        where = f"block {block_id}"
        arrays = self._decode(int(self.starts[block_id]), self.blocks[block_id].n, where, data[0])
        return check_schema(arrays, self.schema, f"{self._pairs.url}, {where}")

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        values = [
            memoryview(np.ascontiguousarray(value)) for value in self._pairs.values(first, n, self.fetch(block_id)[0])
        ]
        return salvage_values(values, self.schema, decode_records)

    def _decode(self, first: int, n: int, where: str, data: memoryview) -> Arrays:
        values = self._pairs.values(first, n, data)
        try:
            if isinstance(values, np.ndarray):
                arrays = decode_records(values)
                if arrays is not None:
                    return arrays
            return decode_values([memoryview(np.ascontiguousarray(value)) for value in values], decode_records)
        except ValueError as error:
            raise DataError(f"{self._pairs.url}, {where} (records from {first} on): {error}.") from error

    @classmethod
    def write(cls, url: str, records: Records, storage_options: fs.Options = None, keys: str = "%08d") -> None:
        """Write records with keys made of their indices.

        Parameters
        ----------
        keys : str
            Pattern. SINGA's tools use ``%08d`` (MNIST) and ``%05d`` (CIFAR).
        """
        write_pairs(url, _pairs(Rechunker(url, records), keys), storage_options)


def _pairs(rows: Rechunker, keys: str) -> Iterator[tuple[str, bytes]]:
    name = "data" if "data" in rows.schema else "pixel"
    shape = rows.schema[name].shape
    for block in rows.chunks(rows_per_block(rows.record_bytes)):
        labels = block["label"].tolist() if "label" in block else [None] * len(block[name])
        first = rows.taken - len(labels)
        for i, (value, label) in enumerate(zip(np.ascontiguousarray(block[name]), labels, strict=True), first):
            pixel, data = (None, value) if name == "data" else (value.tobytes(), None)
            yield (keys % i if "%" in keys else keys), encode_record(shape, label, pixel, data)
