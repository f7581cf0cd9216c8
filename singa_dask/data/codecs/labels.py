"""Labels: integers of 32 bits, made of whatever numbers a store has; none wraps, none is cut off."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.errors import DataError

__all__ = ["as_labels", "find_wrong_label"]


def as_labels(values: npt.NDArray[Any], where: str, first: int = 0) -> npt.NDArray[np.int32]:
    """Return numbers as labels, the same array if it is int32.

    Parameters
    ----------
    values : (n,) numbers
    where : str
        URL or layer, for the error.
    first : int
        Number of the first record.

    Raises
    ------
    DataError
        One is no integer, or does not fit in 32 bits.
    """
    found = find_wrong_label(values)
    if found is not None:
        raise DataError(f"{where}, record {first + found[0]}: {found[1]}.")
    return values.astype(np.int32, copy=False)


def find_wrong_label(values: npt.NDArray[Any]) -> tuple[int, str] | None:
    """Return place of the first number that is no label, and why; None if all are."""
    if values.dtype.kind not in "biuf":
        return 0, f"labels of type {values.dtype}, expected integers"
    if values.dtype.kind in "biu" and np.can_cast(values.dtype, np.int32):
        return None
    with np.errstate(invalid="ignore"):
        wrong = values.astype(np.int32) != values
    if not wrong.any():
        return None
    place = int(wrong.argmax())
    value = values[place]
    if values.dtype.kind == "f" and not float(value).is_integer():
        return place, f"the label {value} is no integer. Labels are the numbers of classes"
    return place, f"the label {value} does not fit in 32 bits"
