"""Records in TFRecord files of tf.train.Example: ``length | its CRC | message | its CRC``."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many, Size
from singa_dask.data.blocks import cut_blocks
from singa_dask.data.codecs import labels, protobuf, record, record_schema, salvage
from singa_dask.data.codecs.class_lists import read_classes
from singa_dask.data.codecs.protobuf import BYTES, VARINT
from singa_dask.data.stores.images.image_decoding import ImageOptions, decode_image, is_image
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import STORES, LabelOptions
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError, FaultError, Remedy, data_error
from singa_dask.fs.checksums import checksum_of, masked
from singa_dask.fs.open_bytes import open_bytes
from singa_dask.fs.sources import Bytes, ReadAhead
from singa_dask.wording import listed

HEAD_BYTES, TAIL_BYTES = 12, 4
IMAGE_NAMES = ("image/encoded", "image_raw", "image", "images", "pixel", "data", "x")
# ImageNet's features for the number and the name of a class
IMAGE_LABELS = ("image/class/label", "image/class/text")
MAX_NAME = 40
BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3

Rows = npt.NDArray[np.uint8]
# kind of list, and array of its values: (n, length) uint8, (n, count) float32, or (n,) int64
Feature = tuple[int, npt.NDArray[np.generic]]


def _label(feature: Feature, classes: Mapping[bytes, int]) -> npt.NDArray[np.int32]:
    kind, values = feature
    if kind == BYTES_LIST:
        return np.array([_class(value.tobytes(), classes) for value in values], np.int32)
    if kind != INT64_LIST or values.ndim != 1:
        raise ValueError("the label is not one integer")
    wrong = labels.find_wrong_label(values)
    if wrong is not None:
        raise ValueError(wrong[1])
    return values.astype(np.int32)


def _class(name: bytes, classes: Mapping[bytes, int]) -> int:
    label = classes.get(name)
    if label is None:
        text = repr(name.decode(errors="replace"))[:MAX_NAME]
        if not classes:
            raise ValueError(f"the label {text} is text. Set classes in user_conf to the names in order")
        raise ValueError(f"the label {text} is not among the {len(classes)} names in classes")
    return label


def _image(feature: Feature, shape: Sequence[int], resize: Sequence[int] | None, channels: int) -> Arrays:
    kind, values = feature
    if kind == INT64_LIST:
        raise ValueError("the image is neither bytes nor floats")
    if kind == BYTES_LIST and is_image(values[0].tobytes()):
        images = [decode_image(value.tobytes(), "an image", resize, channels) for value in values]
        if len({image.shape for image in images}) > 1:
            raise ValueError("the images have different sizes. Pass --resize HxW, or set resize: [H, W] in the job")
        return {"pixel": np.stack(images)}
    if shape and np.prod(shape, dtype=np.int64) != values.shape[1]:
        raise ValueError(f"{values.shape[1]} values do not fit the shape {tuple(shape)}")
    return {"pixel" if kind == BYTES_LIST else "data": values.reshape(len(values), *(shape or values.shape[1:]))}


def _numbers(features: Mapping[str, Feature], names: Sequence[str], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the concatenated values of numeric features, (records, values)."""
    columns = []
    for name in names:
        kind, values = features.get(name, (0, np.empty(0)))
        if kind not in (FLOAT_LIST, INT64_LIST):
            fault = f"{name} is bytes, expected numbers" if kind else f"there is no feature called {name}"
            raise ValueError(f"{fault}. Features: {', '.join(sorted(features))}")
        columns.append(values.reshape(len(values), -1).astype(dtype))
    return np.concatenate(columns, axis=1)


def _features(rows: Rows) -> dict[str, Feature] | None:
    """Return the features of all messages, by name.

    A message stores its features in the map Example.features.feature.
    """
    top = _fields(rows, 1)
    entries = _fields(top[0], 1) if top else top
    if entries is None:
        return None
    features = {}
    for entry in entries:
        name, value = _fields(entry, 1), _fields(entry, 2)
        if name is None or value is None or (name and (name[0] != name[0][0]).any()):
            return None
        if not name or not value:
            continue
        feature = _feature(value[0])
        if feature is None:
            return None
        if feature[1].size:
            features[name[0][0].tobytes().decode(errors="replace")] = feature
    return features


def _feature(rows: Rows) -> Feature | None:
    """Read the first value of a list of bytes, or all values of a list of floats or integers."""
    fields = protobuf.columns(rows)
    if not fields:
        return None if fields is None else (BYTES_LIST, np.empty((len(rows), 0), np.uint8))
    kind = fields[0].number
    lists = fields[0].values
    values = protobuf.columns(lists)
    if not values:
        return None if values is None else (kind, np.empty((len(rows), 0), np.uint8))
    if kind == FLOAT_LIST:
        joined = np.concatenate([column.values for column in values], axis=1)
        return kind, np.ascontiguousarray(joined).view("<f4")
    if kind == INT64_LIST and values[0].wire == BYTES:
        packed = [protobuf.varints_of(row.tobytes()) for row in values[0].values]
        if len({len(row) for row in packed}) > 1:
            return None
        integers = np.array(packed, np.int64)
        return kind, integers[:, 0] if integers.shape[1] == 1 else integers
    if kind == INT64_LIST and len(values) > 1:
        return kind, np.stack([column.values for column in values if column.wire == VARINT], axis=1)
    return kind, values[0].values


def _fields(rows: Rows, number: int) -> list[Rows] | None:
    """Return all values of a field, for many messages at once.

    The result is empty if the field is missing, and None if the messages have different layouts.
    """
    columns = protobuf.columns(rows)
    if columns is None:
        return None
    return [column.values for column in columns if (column.number, column.wire) == (number, BYTES)]


class TFRecordOptions(ImageOptions, LabelOptions):
    """Options of TFRecord files."""

    shape: Many[Size] = KeyField(default=[])
    """Shape of a record of raw bytes or floats; flat by default."""
    classes: str | Many[str] = KeyField(default=[])
    """Class names, by label; or the URL of a text file with a line for each name, ``cat`` or ``0:cat``. Required for
    labels that are text."""
    label: str = ""
    """Name of the feature with the label. By default image/class/label or image/class/text, or the only one called
    label, labels, y, class, target or targets."""
    features: Many[str] = KeyField(default=[])
    """Name of the feature with the image or data. By default the only one called image/encoded, image_raw, image,
    images, pixel, data or x. The values of several features, which must be numbers, are concatenated."""


@STORES.register("tfrecord")
class TFRecordStore(RangeStore):
    """Records of a TFRecord file, gzipped or not.

    Raises
    ------
    DataError
        The file is truncated or empty, a checksum is wrong, or a message is not an Example with an image.
    """

    options_class = TFRecordOptions
    title = "a TFRecord file"
    gzipped = True
    suffixes = (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz")

    def index(self) -> None:
        self.class_names = read_classes(self.url, self.options["classes"], self.storage_options)
        self._classes = {name.encode(): label for label, name in enumerate(self.class_names)}
        source = self.open_source()
        self._offsets = _scan(source)
        if len(self._offsets) < 2:
            raise DataError(f"{self.url}: no records. The file is empty.")
        self.blocks, self.schema = cut_blocks(self.url, self._offsets), {}
        first = source.read(0, int(self._offsets[1]))
        self.schema = record_schema.schema_of(self._read(0, 1, first, f"{self.url}, block 0"))
        if len(names := tuple(self.options["features"])) > 1:
            features = _features(np.frombuffer(first[HEAD_BYTES:-TAIL_BYTES], np.uint8)[None]) or {}
            widths = {name: features[name][1].size for name in names if features[name][1].size > 1}
            self.set_table_facts(TableFacts(names, widths=widths).to_dict())

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        where = f"{self.url}, block {block_id}"
        arrays = self._read(int(self.starts[block_id]), self.blocks[block_id].n, data[0], where)
        return record_schema.check_schema(arrays, self.schema, where)

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        block, first = self.blocks[block_id], int(self.starts[block_id])
        (data,) = self.fetch(block_id)

        def read_row(row: int) -> Arrays:
            start, end = (int(offset) - block.offset for offset in self._offsets[first + row : first + row + 2])
            return {name: array[0] for name, array in self._read(first + row, 1, data[start:end], self.url).items()}

        return salvage.salvage_rows(block.n, self.schema, read_row)

    def _decode(self, rows: Rows) -> Arrays | None:
        """Decode messages of the same layout, (n, length) uint8; return None if their layouts differ.

        An image is stored as PNG, JPEG or plain bytes, which become ``pixel``, or as floats, which become ``data``. A
        label is an integer or text.

        Raises a `ValueError` if a message is not an Example, or lacks a feature.
        """
        features, options = _features(rows), self.options
        if features is None:
            return None
        named, names = options["features"], options["features"] or IMAGE_NAMES
        images = [name for name in names if name in features]
        label = options["label"] or next((name for name in IMAGE_LABELS if name in features), "")
        if label in named:
            raise ValueError(f"{label} is both a feature and the label")
        self.label_name = labels.label_field([name for name in features if name not in named], label)
        kinds = {name: kind for name, (kind, _) in features.items() if name != self.label_name}
        if len(named) > 1 or [kinds.get(name) for name in named] == [INT64_LIST]:
            # float32 rounds 64-bit integers
            self.rounds_data = self.rounds_data or INT64_LIST in [kinds.get(name) for name in named]
            dtype = self.schema["data"].dtype if self.schema else np.dtype(np.float32)
            arrays: Arrays = {"data": _numbers(features, named, dtype)}
            return arrays | ({"label": _label(features[self.label_name], self._classes)} if self.label_name else {})
        if len(images) > 1:
            raise ValueError(f"{' and '.join(images)} could each be the image. Set user_conf: {{features: NAME}}")
        if not images:
            message = f"there is no feature called {' or '.join(names)}. Features: {', '.join(sorted(features))}"
            if named:
                raise ValueError(message)
            raise FaultError(
                f"{message}. Name the features of a record in user_conf: {{features: [...]}}", Remedy("features")
            )
        numbers = [name for name, kind in kinds.items() if kind == FLOAT_LIST]
        if not named and len(numbers) > 1 and images[0] in numbers:
            message = f"{listed(numbers)} are numbers. Name the features of a record in user_conf: {{features: [...]}}"
            raise FaultError(message, Remedy("features"))
        arrays = _image(features[images[0]], options["shape"], options["resize"], options["channels"])
        if self.label_name:
            arrays["label"] = _label(features[self.label_name], self._classes)
        return arrays

    def _read(self, first: int, n: int, data: memoryview, where: str) -> Arrays:
        """Decode the bytes of ``n`` records."""
        offsets = self._offsets[first : first + n + 1] - self._offsets[first]
        wrong = _first_wrong(data, offsets)
        if wrong is not None:
            raise DataError(
                f"{where}, record {first + wrong} (byte {self._offsets[first + wrong]}): the crc32c is wrong."
            )
        spans = zip((offsets[:-1] + HEAD_BYTES).tolist(), (offsets[1:] - TAIL_BYTES).tolist(), strict=True)
        try:
            return record.decode_values([data[start:end] for start, end in spans], self._decode)
        except ValueError as error:
            raise data_error(f"{where} (records from {first} on)", error) from error


def example_features(url: str) -> dict[str, bool]:
    """Return the features in the first record of a TFRecord file, and whether each is numeric."""
    source = open_bytes(url)
    end = int(_scan(source)[1]) if source.size else 0
    features = _features(np.frombuffer(source.read(0, end)[HEAD_BYTES:-TAIL_BYTES], np.uint8)[None]) if end else None
    return {name: kind != BYTES_LIST for name, (kind, _) in (features or {}).items()}


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
        if masked(checksum_of(head[:8])) != crc:
            raise DataError(f"{where}: the crc32c of its length is wrong, or this is not a TFRecord file.")
        offsets.append(start + HEAD_BYTES + length + TAIL_BYTES)
        if offsets[-1] > source.size:
            raise DataError(f"{where} is incomplete: the file is truncated.")
    return np.array(offsets, np.int64)


def _first_wrong(data: memoryview, offsets: npt.NDArray[np.int64]) -> int | None:
    """Return the index of the first record with a wrong checksum; None if all are right."""
    for i, (start, end) in enumerate(pairwise(offsets.tolist())):
        crc = int.from_bytes(data[end - TAIL_BYTES : end], "little")
        if masked(checksum_of(data[start + HEAD_BYTES : end - TAIL_BYTES])) != crc:
            return i
    return None
