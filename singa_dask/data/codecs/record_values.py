"""Convert arrays of numbers to the values of records."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.errors import DataError


def is_numeric(kind: np.dtype[Any]) -> bool:
    """Return whether values of a dtype are real numbers or booleans."""
    return kind.kind in "biuf"


def is_rounded(kind: np.dtype[Any]) -> bool:
    """Return whether float32 cannot represent all values of a numeric dtype."""
    return np.promote_types(kind, np.float32) != np.float32


def value_name(kind: np.dtype[Any]) -> str:
    """Return the name of the field for values of a dtype: ``pixel`` for uint8, otherwise ``data``."""
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
        Dtype of the result: float32 or float64.

    Returns
    -------
    (n, ...) uint8 or float
        uint8 values are returned unchanged. Other values are rounded to the nearest float. In float32, integers up to
        2**24 are exact.

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
    """Return the index of the first invalid weight, and the reason; None if all weights are valid.

    ``weights`` has the shape (n, ...). Weights must be finite and at least 0.
    """
    wrong = ~((weights >= 0) & (weights <= np.finfo(np.float32).max)).reshape(-1)
    if not wrong.any():
        return None
    row = int(wrong.argmax())
    return row, f"the weight {weights.reshape(-1)[row]:g}, expected a number from 0 on that fits in a float of 32 bits"
