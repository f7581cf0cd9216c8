"""Decodes tf.train.Example messages without TensorFlow, many messages of the same layout at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from singa_dask.data.codecs import protobuf
from singa_dask.data.codecs.image import decode_image, is_image
from singa_dask.data.codecs.labels import find_wrong_label, label_field
from singa_dask.data.codecs.protobuf import BYTES, VARINT
from singa_dask.data.types import Arrays

__all__ = ["decode_examples"]

IMAGE_NAMES = ("image/encoded", "image_raw", "image", "images", "pixel", "data", "x")
# of the features of ImageNet: the number of a class, and its name
IMAGE_LABELS = ("image/class/label", "image/class/text")
MAX_NAME = 40
BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3

Rows = npt.NDArray[np.uint8]
# kind of list, and its values: (n, length) uint8, (n, count) float32, or (n,) int64
Feature = tuple[int, npt.NDArray[np.generic]]


def decode_examples(
    rows: Rows,
    shape: Sequence[int] = (),
    resize: Sequence[int] | None = None,
    channels: int = 3,
    classes: Mapping[bytes, int] | None = None,
    label: str = "",
    values: str = "",
) -> Arrays | None:
    """Decode messages of the same layout.

    The image is PNG, JPEG or bytes (``pixel``), or floats (``data``). The label is an integer, or text.

    Parameters
    ----------
    rows : (n, length) uint8
    shape : sequence of int
        Shape of a record that is no image; flat by default.
    resize, channels
        See `image.decode_image`.
    classes : mapping of bytes to int, optional
        Label of each class, by its name in UTF-8, for labels that are text.
    label : str
        Name of the feature with the label. By default image/class/label or image/class/text, or the only one called
        label, labels, y, class, target or targets.
    values : str
        Name of the feature with the image. By default the only one called image/encoded, image_raw, image, images,
        pixel, data or x.

    Returns
    -------
    dict of str to ndarray, or None
        None if the layouts of the messages differ.

    Raises
    ------
    ValueError
        A row is not an Example, or has no such feature.
    """
    features = _features(rows)
    if features is None:
        return None
    images = [name for name in (IMAGE_NAMES if not values else [values]) if name in features]
    label = label or next((name for name in IMAGE_LABELS if name in features), "")
    label = label_field(list(features), label)
    if len(images) > 1:
        raise ValueError(f"{' and '.join(images)} could each be the image. Set user_conf: {{features: NAME}}")
    if not images:
        named = values or " or ".join(IMAGE_NAMES)
        raise ValueError(f"no feature called {named}. Features: {', '.join(sorted(features))}")
    arrays = _image(features[images[0]], shape, resize, channels)
    if label:
        arrays["label"] = _label(features[label], classes or {})
    return arrays


def _label(feature: Feature, classes: Mapping[bytes, int]) -> npt.NDArray[np.int32]:
    kind, values = feature
    if kind == BYTES_LIST:
        return np.array([_class(value.tobytes(), classes) for value in values], np.int32)
    if kind != INT64_LIST or values.ndim != 1:
        raise ValueError("the label is not one integer")
    wrong = find_wrong_label(values)
    if wrong is not None:
        raise ValueError(wrong[1])
    return values.astype(np.int32)


def _class(name: bytes, classes: Mapping[bytes, int]) -> int:
    label = classes.get(name)
    if label is None:
        shown = repr(name.decode(errors="replace"))[:MAX_NAME]
        if not classes:
            raise ValueError(f"the label {shown} is text. Give classes, the names in order, in user_conf")
        raise ValueError(f"the label {shown} is not among the {len(classes)} names in classes")
    return label


def _image(feature: Feature, shape: Sequence[int], resize: Sequence[int] | None, channels: int) -> Arrays:
    kind, values = feature
    if kind == INT64_LIST:
        raise ValueError("the image is neither bytes nor floats")
    if kind == BYTES_LIST and is_image(values[0].tobytes()):
        images = [decode_image(value.tobytes(), "an image", resize, channels) for value in values]
        if len({image.shape for image in images}) > 1:
            raise ValueError("images of different sizes. Convert with --resize")
        return {"pixel": np.stack(images)}
    if shape and np.prod(shape, dtype=np.int64) != values.shape[1]:
        raise ValueError(f"{values.shape[1]} values do not fit the shape {tuple(shape)}")
    return {"pixel" if kind == BYTES_LIST else "data": values.reshape(len(values), *(shape or values.shape[1:]))}


def _features(rows: Rows) -> dict[str, Feature] | None:
    """Return the features of all messages by name, from the map Example.features.feature."""
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
    """Read the first value of a list of bytes, all values of a list of floats, or the value of a list of integers."""
    found = protobuf.columns(rows) if rows.shape[1] else []
    if not found:
        return None if found is None else (BYTES_LIST, np.empty((len(rows), 0), np.uint8))
    kind = found[0].number
    lists = found[0].values
    values = protobuf.columns(lists) if lists.shape[1] else []
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
    """Return the values of a field of messages or bytes; empty for an empty message, None if layouts differ."""
    found = protobuf.columns(rows) if rows.shape[1] else []
    if found is None:
        return None
    return [column.values for column in found if (column.number, column.wire) == (number, BYTES)]
