"""Records in SINGA's key-value file: each value a RecordProto.

Records of one length are views of the mapped file; others are gathered block by block.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from singa_dask.data import fs
from singa_dask.data.codecs.kvfile import KVFile, write_pairs
from singa_dask.data.codecs.record import (
    check_schema,
    decode_records,
    decode_values,
    encode_record,
    salvage_values,
    schema_of,
)
from singa_dask.data.fs.cache import key_of, open_cache
from singa_dask.data.fs.range_reader import version
from singa_dask.data.stores.manifest import Manifest, find_manifest
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.stores.store import STORES, Store, cut_blocks, rows_per_block
from singa_dask.data.types import Arrays, Records
from singa_dask.errors import DataError

__all__ = ["KVFileStore"]

LOG = logging.getLogger(__name__)

# the index of a shorter file is not cached
MIN_INDEXED_BYTES = 1 << 24


@STORES.register("kvfile")
class KVFileStore(Store):
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

    suffixes = (".bin", ".dat", ".kvfile")
    accepts_truncated = True

    def __init__(self, url: str, storage_options: fs.Options = None, truncated: bool = False) -> None:
        super().__init__(url, storage_options, truncated=truncated)
        self._manifest: Manifest | None = None
        self._index_key = ""
        self._index = KVFile(url, storage_options, self._known)
        self._cache_index()
        if self._index.truncated_bytes:
            self._drop_truncated(truncated)
        if not self._index.count:
            raise DataError(f"{self._index.url}: no records.")
        self.blocks = cut_blocks(self._index.url, self._index.offsets)
        if self._manifest is not None:
            self.blocks = self._manifest.attach(self.blocks)
            self.class_names = self._manifest.class_names
        self.schema = schema_of(self._decode(0, 1, "block 0"))
        self.mapped = self._index.stride > 0 and "pixel" in self.schema and fs.local_path(url) is not None

    def _drop_truncated(self, truncated: bool) -> None:
        index = self._index
        rest = f"record {index.count} is incomplete, {index.truncated_bytes} bytes are left"
        # more than any record: caused by a wrong length in the middle of the file
        if not truncated or index.truncated_bytes > np.diff(index.offsets).max(initial=0):
            raise DataError(f"{index.url}: truncated at byte {index.offsets[-1]}: {rest}.")
        self.truncation = f"truncated at byte {index.offsets[-1]}: {rest}"

    def _known(self, file: str, n_bytes: int) -> Mapping[str, Any] | None:
        self._manifest = find_manifest(self.url, "kvfile", file, n_bytes, self.storage_options)
        if self._manifest is not None:
            return self._manifest.opening
        return self._cached_index(file) if n_bytes > MIN_INDEXED_BYTES and fs.local_path(file) is None else None

    def _cached_index(self, file: str) -> Mapping[str, Any] | None:
        """Return the cached index of a remote file."""
        current = version(file, self.storage_options)
        if not current:
            return None
        self._index_key = key_of("index", file, current)
        try:
            found = open_cache(self.storage_options.get(fs.CACHE)).find(self._index_key)
        except DataError as error:
            LOG.warning("%s: the index is not cached: %s", file, error)
            self._index_key = ""
            return None
        return json.loads(bytes(found)) if found is not None else None

    def _cache_index(self) -> None:
        if self._index_key:
            cache = open_cache(self.storage_options.get(fs.CACHE))
            if cache.find(self._index_key) is None:
                cache.keep(self._index_key, json.dumps(self._index.index_info()).encode())

    def block_bytes(self, block_id: int) -> memoryview:
        return self.verify_crc(block_id, self._index.read(int(self.starts[block_id]), self.blocks[block_id].n))

    def manifest_info(self) -> dict[str, Any]:
        return self._index.index_info()

    def read_block(self, block_id: int) -> Arrays:
        block = self.blocks[block_id]
        where = f"block {block_id}"
        arrays = self._decode(int(self.starts[block_id]), block.n, where, self.block_bytes(block_id))
        return check_schema(arrays, self.schema, f"{self._index.url}, {where}")

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        values = [
            memoryview(np.ascontiguousarray(value))
            for value in self._index.values(first, n, self.block_bytes(block_id))
        ]
        return salvage_values(values, self.schema, decode_records)

    def _decode(self, first: int, n: int, where: str, data: memoryview | None = None) -> Arrays:
        values = self._index.values(first, n, data)
        try:
            if isinstance(values, np.ndarray):
                arrays = decode_records(values)
                if arrays is not None:
                    return arrays
            return decode_values([memoryview(np.ascontiguousarray(value)) for value in values], decode_records)
        except ValueError as error:
            raise DataError(f"{self._index.url}, {where} (records from {first} on): {error}.") from error

    @classmethod
    def write(cls, url: str, records: Records, storage_options: fs.Options = None, keys: str = "%08d") -> None:
        """Write records with keys made of their indices.

        Parameters
        ----------
        keys : str
            Pattern. SINGA's tools use ``%08d`` (MNIST) and ``%05d`` (CIFAR).
        """
        write_pairs(url, _pairs(Rechunker(url, records), keys), storage_options)

    def close(self) -> None:
        self._index.close()


def _pairs(rows: Rechunker, keys: str) -> Iterator[tuple[str, bytes]]:
    name = "data" if "data" in rows.schema else "pixel"
    shape = rows.schema[name].shape
    for block in rows.chunks(rows_per_block(rows.record_bytes)):
        labels = block["label"].tolist() if "label" in block else [None] * len(block[name])
        first = rows.taken - len(labels)
        for i, (value, label) in enumerate(zip(np.ascontiguousarray(block[name]), labels, strict=True), first):
            pixel, data = (None, value) if name == "data" else (value.tobytes(), None)
            yield (keys % i if "%" in keys else keys), encode_record(shape, label, pixel, data)
