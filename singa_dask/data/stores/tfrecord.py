"""Records in TFRecord files of tf.train.Example: ``length | its CRC | message | its CRC``. CRCs are verified."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.codecs.example import decode_examples
from singa_dask.data.codecs.record import check_schema, decode_values, salvage_rows, schema_of
from singa_dask.data.fs.byte_source import Bytes, ReadAhead, open_bytes
from singa_dask.data.fs.checksum import crc32c, masked
from singa_dask.data.stores.store import STORES, Store, cut_blocks
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError

__all__ = ["TFRecordStore"]

HEAD_BYTES, TAIL_BYTES = 12, 4


@STORES.register("tfrecord")
class TFRecordStore(Store):
    """Records of a TFRecord file, gzipped or not.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
    shape : sequence of int
        Shape of a record of raw bytes or floats; flat by default.
    resize, channels
        For encoded images, see `image.decode_image`.

    Raises
    ------
    DataError
        The file is truncated or empty, a checksum is wrong, or a message is not an Example with an image.
    """

    suffixes = (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz")

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        shape: Sequence[int] = (),
        resize: Sequence[int] | None = None,
        channels: int = 3,
    ) -> None:
        shape, resize = tuple(shape), resize and tuple(resize)
        super().__init__(url, storage_options, shape=shape, resize=resize, channels=channels)
        self._decode = functools.partial(decode_examples, shape=shape, resize=resize, channels=channels)
        self._source = open_bytes(url, storage_options)
        self._offsets = _scan(self._source)
        if len(self._offsets) < 2:
            raise DataError(f"{url}: no records. The file is empty.")
        self.blocks = cut_blocks(url, self._offsets)
        self.schema = schema_of(self._read(0, 1, f"{url}, block 0"))

    def read_block(self, block_id: int) -> Arrays:
        where = f"{self.url}, block {block_id}"
        arrays = self._read(int(self.starts[block_id]), self.blocks[block_id].n, where)
        return check_schema(arrays, self.schema, where)

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        first = int(self.starts[block_id])

        def read_row(row: int) -> Arrays:
            return {name: array[0] for name, array in self._read(first + row, 1, self.url).items()}

        return salvage_rows(self.blocks[block_id].n, self.schema, read_row)

    def _read(self, first: int, n: int, where: str) -> Arrays:
        offsets = self._offsets[first : first + n + 1]
        data = self._source.read(int(offsets[0]), int(offsets[-1] - offsets[0]))
        offsets = offsets - offsets[0]
        wrong = _first_wrong(np.frombuffer(data, np.uint8), offsets)
        if wrong is not None:
            raise DataError(f"{where}, record {first + wrong} (byte {self._offsets[first + wrong]}): wrong crc32c.")
        spans = zip((offsets[:-1] + HEAD_BYTES).tolist(), (offsets[1:] - TAIL_BYTES).tolist(), strict=True)
        try:
            return decode_values([data[start:end] for start, end in spans], self._decode)
        except ValueError as error:
            raise DataError(f"{where} (records from {first} on): {error}.") from error

    def close(self) -> None:
        self._source.close()


def _scan(source: Bytes) -> npt.NDArray[np.int64]:
    """Return the offset of each record, and the end of the last."""
    ahead = ReadAhead(source)
    offsets = [0]
    while (start := offsets[-1]) < source.size:
        where = f"{source.url}: record {len(offsets) - 1} at byte {start}"
        if start + HEAD_BYTES > source.size:
            raise DataError(f"{where} is incomplete: the file is truncated.")
        head = ahead.read(start, HEAD_BYTES)
        length, crc = struct.unpack("<QI", head)
        if int(masked(crc32c(np.frombuffer(head[:8], np.uint8)[None]))[0]) != crc:
            raise DataError(f"{where}: wrong crc32c of its length, or not a TFRecord file.")
        offsets.append(start + HEAD_BYTES + length + TAIL_BYTES)
        if offsets[-1] > source.size:
            raise DataError(f"{where} is incomplete: the file is truncated.")
    return np.array(offsets, np.int64)


def _first_wrong(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> int | None:
    """Return the index of the first record whose checksum is wrong, or None."""
    lengths = np.diff(offsets)
    wrong: list[int] = []
    for length in np.unique(lengths).tolist():
        same = np.flatnonzero(lengths == length)
        rows = data[offsets[same][:, None] + np.arange(HEAD_BYTES, length)]
        crcs = np.ascontiguousarray(rows[:, -TAIL_BYTES:]).view("<u4")[:, 0]
        wrong += same[masked(crc32c(rows[:, :-TAIL_BYTES])) != crcs].tolist()
    return min(wrong, default=None)
