"""Find the likeliest classes, and convert class names to the type of the labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data.codecs.equal_names import name_key

# types of labels
BOOLEAN, INTEGER, NUMBER = "boolean", "integer", "number"
# names of the classes of boolean labels
BOOLEANS = ("false", "true")
# digits with leading zeros are a code, not a number
DIGITS = re.compile(r"-?(0|[1-9]\d*)")
DECIMAL = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")


def are_floats(kind: pa.DataType) -> bool:
    """Return whether the numbers of a column may have decimals."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and kind.scale > 0))


def label_type(kind: str, is_floating: bool) -> str:
    """Return the type of the labels in a column, given the column's `column_kind`; empty for strings."""
    if kind == "number":
        return NUMBER if is_floating else INTEGER
    return BOOLEAN if kind == "boolean" else ""


def class_values(names: Sequence[str], of_type: str) -> npt.NDArray[Any]:
    """Return the values of classes, (classes,) bool, int64, float64 or str.

    Parameters
    ----------
    names : sequence of str
        Names of the classes.
    of_type : str
        Type of the values; see `label_type`. The names themselves are returned if a name cannot be converted to this
        type, or if two names have the same value.
    """
    keys = [name_key(name) for name in names]
    values: npt.NDArray[Any] = np.array(names, None if names else np.str_)
    if of_type == BOOLEAN and {*keys} <= {*BOOLEANS}:
        values = np.array([key == "true" for key in keys], np.bool_)
    elif of_type == INTEGER and all(map(DIGITS.fullmatch, keys)):
        numbers = [int(key) for key in keys]
        if all(-(1 << 63) <= number < 1 << 63 for number in numbers):
            values = np.array(numbers, np.int64)
    elif of_type in (INTEGER, NUMBER) and all(map(DECIMAL.fullmatch, keys)):
        # keep the names if float64 cannot represent a whole number
        if all(float(key) == int(key) for key in keys if DIGITS.fullmatch(key)):
            values = np.array([float(key) for key in keys], np.float64)
    is_typed = len(np.unique(values)) == len(names) and (values.dtype.kind != "f" or bool(np.isfinite(values).all()))
    return values if is_typed else np.array(names, np.str_)


def likeliest(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the class number with the highest score, along the last axis.

    Among equal scores, the last class is the likeliest, as in SINGA and in the kernels `top` and `count_in_top`.
    """
    best: npt.NDArray[Any] = scores.shape[-1] - 1 - np.argmax(scores[..., ::-1], axis=-1)
    return best


def classes_of(
    numbers: npt.NDArray[np.int64], names: Sequence[str], n_classes: int, of_type: str = ""
) -> npt.NDArray[Any]:
    """Return the value of each class number, or the class number itself if classes have no names."""
    if not names:
        return numbers
    values, unnamed = class_values(names[:n_classes], of_type), range(len(names), n_classes)
    if unnamed and values.dtype.kind not in "if":
        values = np.array([*names, *map(str, unnamed)])
    elif unnamed:
        values = np.array([*values, *unnamed], values.dtype)
    return values[numbers]


def numbers_of_values(labels: npt.NDArray[Any], values: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return the class number of each numeric label; -1 for a label that is not the value of a class.

    ``values`` has the value of each class.
    """
    order = np.argsort(values, kind="stable")
    at = np.minimum(np.searchsorted(values[order], labels), len(values) - 1)
    return np.where(values[order][at] == labels, order[at], -1).astype(np.int32)
