"""Arrays for the contract of the kernels: drawn, laid out in memory in several ways, compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["LAYOUTS", "blank", "close", "draw", "lay", "untouched"]

Array = np.ndarray[Any, Any]
LAYOUTS = ["features", "plain", "sliced"]
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


def draw(random: np.random.Generator, shape: Sequence[int], dtype: Any) -> Array:
    """Return normal values."""
    return random.normal(size=tuple(shape)).astype(dtype)


def blank(shape: Sequence[int], dtype: Any, layout: str) -> Array:
    """Return memory of one of `LAYOUTS` that holds NaN.

    "features" is N, H, W, C (of images), "plain" as in C, "sliced" every other row and column of something larger.
    """
    if layout == "sliced":
        wide = np.full((2 * shape[0], *shape[1:-1], 2 * shape[-1] + 1), np.nan, dtype)
        return wide[::2, ..., 1::2]
    if layout == "features" and len(shape) == 4:
        n, c, h, w = shape
        return np.full((n, h, w, c), np.nan, dtype).transpose(0, 3, 1, 2)
    return np.full(tuple(shape), np.nan, dtype)


def lay(values: Array, layout: str) -> Array:
    """Return a copy of values in memory of one of `LAYOUTS`."""
    made = blank(values.shape, values.dtype, layout)
    made[...] = values
    return made


def untouched(sliced: Array) -> bool:
    """Tell whether what lies between the values of an array from `blank` is as it was."""
    base = sliced
    while isinstance(base.base, np.ndarray):
        base = base.base
    return bool(base is sliced or np.isnan(base).sum() == base.size - sliced.size or base.size == sliced.size)


def close(actual: Array, wanted: Any) -> None:
    """Compare with what float64 gives, to the precision of the array, of the largest value."""
    assert untouched(actual), "wrote between the values of its array"
    within = TOLERANCE[actual.dtype.name]
    scale = max(1.0, float(np.max(np.abs(wanted))))
    np.testing.assert_allclose(actual, wanted, rtol=within, atol=within * scale)
