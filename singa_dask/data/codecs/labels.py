"""Labels: conversion of numbers to 32-bit integers, with errors for those that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.errors import DataError

__all__ = ["as_labels", "find_wrong_label"]


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
