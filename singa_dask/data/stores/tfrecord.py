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
from singa_dask.data.fs.byte_source import Bytes, ReadAhead
from singa_dask.data.fs.checksum import crc32c, masked
from singa_dask.data.stores.block_sizes import cut_blocks
from singa_dask.data.stores.class_list import read_classes
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import STORES
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError

__all__ = ["TFRecordStore"]

HEAD_BYTES, TAIL_BYTES = 12, 4


@STORES.register("tfrecord")
class TFRecordStore(RangeStore):
    """Records of a TFRecord file, gzipped or not.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
    shape : sequence of int
        Shape of a record of raw bytes or floats; flat by default.
    resize, channels
        For encoded images, see `image.decode_image`.
    classes : sequence of str, or str
        Names of the classes, by label; or the URL of a text file with a name in each line, as `read_classes` reads it.
        Needed for labels that are text.
    label : str
        Name of the feature with the label. By default image/class/label or image/class/text, or the only one called
        label, labels, y, class, target or targets.
    features : str
        Name of the feature with the image or data. By default the only one called image/encoded, image_raw, image,
        images, pixel, data or x.

    Raises
    ------
    DataError
        The file is truncated or empty, a checksum is wrong, or a message is not an Example with an image.
    """

    title = "a TFRecord file"
    gzipped = True
    suffixes = (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz")

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        shape: Sequence[int] = (),
        resize: Sequence[int] | None = None,
        channels: int = 3,
        classes: str | Sequence[str] = (),
        label: str = "",
        features: str = "",
    ) -> None:
        classes = classes if isinstance(classes, str) else tuple(classes)
        images = {"resize": resize and tuple(resize), "channels": channels}
        named = {"label": label, "features": features}
        super().__init__(url, storage_options, shape=tuple(shape), **images, classes=classes, **named)

    def index(self) -> None:
        self.class_names = read_classes(self.url, self.options["classes"], self.storage_options)
        labels = {name.encode(): label for label, name in enumerate(self.class_names)}
        options = {**self.options, "classes": labels}
        self._decode = functools.partial(decode_examples, values=options.pop("features"), **options)
        source = self.open_source()
        self._offsets = _scan(source)
        if len(self._offsets) < 2:
            raise DataError(f"{self.url}: no records. The file is empty.")
        self.blocks = cut_blocks(self.url, self._offsets)
        first = source.read(0, int(self._offsets[1]))
        self.schema = schema_of(self._read(0, 1, first, f"{self.url}, block 0"))

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        where = f"{self.url}, block {block_id}"
        arrays = self._read(int(self.starts[block_id]), self.blocks[block_id].n, data[0], where)
        return check_schema(arrays, self.schema, where)

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        block, first = self.blocks[block_id], int(self.starts[block_id])
        (data,) = self.fetch(block_id)

        def read_row(row: int) -> Arrays:
            start, end = (int(offset) - block.offset for offset in self._offsets[first + row : first + row + 2])
            return {name: array[0] for name, array in self._read(first + row, 1, data[start:end], self.url).items()}

        return salvage_rows(block.n, self.schema, read_row)

    def _read(self, first: int, n: int, data: memoryview, where: str) -> Arrays:
        """Decode the bytes of ``n`` records."""
        offsets = self._offsets[first : first + n + 1] - self._offsets[first]
        wrong = _first_wrong(np.frombuffer(data, np.uint8), offsets)
        if wrong is not None:
            raise DataError(f"{where}, record {first + wrong} (byte {self._offsets[first + wrong]}): wrong crc32c.")
        spans = zip((offsets[:-1] + HEAD_BYTES).tolist(), (offsets[1:] - TAIL_BYTES).tolist(), strict=True)
        try:
            return decode_values([data[start:end] for start, end in spans], self._decode)
        except ValueError as error:
            raise DataError(f"{where} (records from {first} on): {error}.") from error


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
