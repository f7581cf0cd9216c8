"""The label of a record: find its field, and convert it to 32-bit integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.errors import DataError, FaultError, Remedy
from singa_dask.wording import listed

LABEL_NAMES = ("label", "labels", "y", "class", "target", "targets")
"""In all formats, a field with one of these names, in upper or lower case, is the label."""


def labels_among(names: Iterable[str]) -> list[str]:
    """Return the names that usually mean a label, such as "label" or "class"; see `LABEL_NAMES`."""
    return [name for name in names if name.lower() in LABEL_NAMES]


def is_point(names: Sequence[str]) -> bool:
    """Return whether the only possible label is y, but there is an x, so that both may be coordinates."""
    return [name.lower() for name in labels_among(names)] == ["y"] and "x" in map(str.lower, names) and len(names) > 2


def label_field(names: Sequence[str], label: str = "") -> str:
    """Return the field with the label: ``label`` if passed, else the only field among `LABEL_NAMES`.

    The result is empty if no field could be the label. Raises a `ValueError` if the field ``label`` does not exist, or
    if several fields could be the label.
    """
    if label and label not in names:
        raise ValueError(f"no {label!r} for the label. Fields: {listed(names)}")
    candidates = labels_among(names)
    if not label and len(candidates) > 1:
        remedy = Remedy("label", "Set user_conf: {label: NAME}")
        raise FaultError(f"{' and '.join(candidates)} could each be the label. {remedy.text}", remedy)
    return label or next(iter(candidates), "")


def as_labels(values: npt.NDArray[Any], where: str, first: int = 0) -> npt.NDArray[np.int32]:
    """Convert numbers to labels. An int32 array is returned unchanged.

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
    wrong = find_wrong_label(values)
    if wrong is not None:
        raise DataError(f"{where}, record {first + wrong[0]}: {wrong[1]}.")
    return values.astype(np.int32, copy=False)


def find_wrong_label(values: npt.NDArray[Any]) -> tuple[int, str] | None:
    """Return the index of the first invalid label, and the reason; None if all labels are valid."""
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
