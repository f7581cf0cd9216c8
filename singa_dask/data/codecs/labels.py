"""Labels: which field of records they are, and their conversion to 32-bit integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.errors import DataError

LABEL_NAMES = ("label", "labels", "y", "class", "target", "targets")
"""A field with one of these names, in upper or lower case, is the label, in all formats."""
MAX_SHOWN = 20


def labels_among(names: Iterable[str]) -> list[str]:
    """Return the names of fields that say that these are labels."""
    return [name for name in names if name.lower() in LABEL_NAMES]


def is_point(names: Sequence[str]) -> bool:
    """Return whether the only name of a label may be that of a coordinate, with x beside it."""
    return [name.lower() for name in labels_among(names)] == ["y"] and "x" in map(str.lower, names) and len(names) > 2


def label_field(names: Sequence[str], given: str = "") -> str:
    """Return the name of the field with the label: the given one, or the only one of `LABEL_NAMES`; empty if none is.

    Raises
    ------
    ValueError
        There is no field of the given name, or several could be meant.
    """
    if given and given not in names:
        more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
        raise ValueError(f"no {given!r} for the label. Fields: {', '.join(names[:MAX_SHOWN])}{more}")
    found = labels_among(names)
    if not given and len(found) > 1:
        raise ValueError(f"{' and '.join(found)} could each be the label. Set user_conf: {{label: NAME}}")
    return given or next(iter(found), "")


def as_labels(values: npt.NDArray[Any], where: str, first: int = 0) -> npt.NDArray[np.int32]:
    """Convert numbers to labels; an int32 array is returned as it is.

    Parameters
    ----------
    values : (n,) numbers
    where : str
        URL or layer, for the error.
    first : int
        Index of the first record, for the error.

    Raises
    ------
    DataError
        A number is not an integer, or does not fit in 32 bits.
    """
    found = find_wrong_label(values)
    if found is not None:
        raise DataError(f"{where}, record {first + found[0]}: {found[1]}.")
    return values.astype(np.int32, copy=False)


def find_wrong_label(values: npt.NDArray[Any]) -> tuple[int, str] | None:
    """Return index of the first invalid label and the reason; None if all are valid."""
    if values.dtype.kind not in "biuf":
        return 0, f"labels of type {values.dtype}, expected integers"
    if values.dtype.kind in "biu" and np.can_cast(values.dtype, np.int32):
        return None
    with np.errstate(invalid="ignore"):
        wrong = values.astype(np.int32) != values
    if not wrong.any():
        return None
    index = int(wrong.argmax())
    value = values[index]
    if values.dtype.kind == "f" and not float(value).is_integer():
        return index, f"the label {value} is not an integer. Labels are indices of classes"
    return index, f"the label {value} does not fit in 32 bits"


def is_numeric(kind: np.dtype[Any]) -> bool:
    """Return whether values of a dtype are real numbers or booleans."""
    return kind.kind in "biuf"


def is_rounded(kind: np.dtype[Any]) -> bool:
    """Return whether float32 does not have all values of a dtype of numbers."""
    return np.promote_types(kind, np.float32) != np.float32


def value_name(kind: np.dtype[Any]) -> str:
    """Return the field that holds values of a dtype: ``pixel`` for uint8, otherwise ``data``."""
    return "pixel" if kind == np.uint8 else "data"


def as_values(
    values: npt.NDArray[Any], where: str, first: int = 0, dtype: npt.DTypeLike = np.float32
) -> npt.NDArray[Any]:
    """Convert numbers to the values of records.

    Parameters
    ----------
    values : (n, ...) numbers
    where : str
        URL, for the error.
    first : int
        Index of the first record, for the error.
    dtype : dtype
        Of the result: float32, or float64.

    Returns
    -------
    (n, ...) uint8 or float
        uint8 is returned as it is; others are rounded to the nearest float32, which is exact for integers up to
        2**24.

    Raises
    ------
    DataError
        A finite number is too large for float32, or the values are not numbers.
    """
    if not is_numeric(values.dtype):
        raise DataError(f"{where}: values of type {values.dtype}, expected numbers.")
    if values.dtype == np.uint8:
        return values
    try:
        with np.errstate(over="raise"):
            return values.astype(dtype, copy=False)
    except FloatingPointError:
        limit = np.finfo(np.float32).max
        rows = values.reshape(len(values), -1)
        row = int((np.isfinite(rows) & (abs(rows) > limit)).any(axis=1).argmax())
        value = rows[row][np.isfinite(rows[row]) & (abs(rows[row]) > limit)][:1]
        raise DataError(
            f"{where}, record {first + row}: the value {', '.join(map(str, value))} is too large for float32, "
            f"expected at most {limit:.3g}. Scale the data first."
        ) from None


def find_wrong_weight(weights: npt.NDArray[Any]) -> tuple[int, str] | None:
    """Return the index of the first of (n, ...) weights that is negative or not finite, and what is wrong, or None."""
    wrong = ~((weights >= 0) & (weights <= np.finfo(np.float32).max)).reshape(-1)
    if not wrong.any():
        return None
    row = int(wrong.argmax())
    return row, f"the weight {weights.reshape(-1)[row]:g}, expected a number from 0 on that fits in a float of 32 bits"
