"""Records in SINGA's key-value file: each value a RecordProto.

Records of one length are views of the mapped file; others are gathered block by block.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from singa_dask.data import fs
from singa_dask.data.kvfile import KVFile, write_pairs
from singa_dask.data.record import check_schema, decode_records, decode_values, encode_record, schema_of
from singa_dask.data.store import STORES, Arrays, Store, count_of, cut_blocks
from singa_dask.errors import DataError

__all__ = ["KVFileStore"]


@STORES.register("kvfile")
class KVFileStore(Store):
    """Records of a file that SINGA wrote, or could have written.

    Raises
    ------
    DataError
        The file is torn (its last pair is not whole), empty, or its values are no records.
    """

    suffixes = (".bin", ".dat", ".kvfile")

    def __init__(self, url: str, storage_options: fs.Options = None) -> None:
        super().__init__(url, storage_options)
        self._index = KVFile(url, storage_options)
        if self._index.torn_bytes:
            raise DataError(
                f"{self._index.url}: torn at byte {self._index.offsets[-1]}: record {self._index.count} is not whole, "
                f"{self._index.torn_bytes} bytes are left over."
            )
        if not self._index.count:
            raise DataError(f"{self._index.url}: no records.")
        self.blocks = cut_blocks(self._index.url, self._index.offsets)
        self.schema = schema_of(self._decode(0, 1, "block 0"))
        self.mapped = self._index.stride > 0 and "pixel" in self.schema and fs.local_path(url) is not None

    def read_block(self, block_id: int) -> Arrays:
        block = self.blocks[block_id]
        where = f"block {block_id}"
        arrays = self._decode(int(self.starts[block_id]), block.n, where)
        return check_schema(arrays, self.schema, f"{self._index.url}, {where}")

    def _decode(self, first: int, n: int, where: str) -> Arrays:
        values = self._index.values(first, n)
        try:
            if isinstance(values, np.ndarray):
                arrays = decode_records(values)
                if arrays is not None:
                    return arrays
            return decode_values([memoryview(np.ascontiguousarray(value)) for value in values], decode_records)
        except ValueError as error:
            raise DataError(f"{self._index.url}, {where} (records from {first} on): {error}.") from error

    @classmethod
    def write(cls, url: str, records: Arrays, storage_options: fs.Options = None, keys: str = "%08d") -> None:
        """Write records under keys made from their numbers.

        Parameters
        ----------
        keys : str
            Pattern; SINGA's tools have ``%08d`` (MNIST) and ``%05d`` (CIFAR).
        """
        count_of(url, records)
        write_pairs(url, _pairs(records, keys), storage_options)

    def close(self) -> None:
        self._index.close()


def _pairs(records: Arrays, keys: str) -> Iterator[tuple[str, bytes]]:
    name = "data" if "data" in records else "pixel"
    values = np.ascontiguousarray(records[name])
    labels = records["label"].tolist() if "label" in records else [None] * len(values)
    for i, (value, label) in enumerate(zip(values, labels, strict=True)):
        pixel, data = (None, value) if name == "data" else (value.tobytes(), None)
        yield (keys % i if "%" in keys else keys), encode_record(values.shape[1:], label, pixel, data)
