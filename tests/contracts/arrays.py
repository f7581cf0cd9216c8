"""Arrays for the contract of the kernels: drawn, laid out in memory in several ways, compared.

They are made on the host, by `draw`, `lay` and `blank`, or by numpy. `put` takes one to the device of the kernels, in
the same layout, the gaps of what is sliced included; on a CPU it is the array itself, so what is wanted is computed
before a kernel writes. `get` brings one back, and its gaps, so that `close` finds what was written between the values:

    x, y = put(ops, lay(draw(random, shape, dtype), layout)), put(ops, blank(shape, dtype, layout))
    ops.relu(x, out=y)
    close(get(ops, y), wanted)

Labels, indices and records are given as numpy's, as layers give them. A scalar, e.g. a loss, is ``scalar(ops, value)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from singa_dask.ops import NumpyOps

__all__ = ["BASES", "LAYOUTS", "blank", "close", "draw", "get", "lay", "put", "scalar", "slopes", "untouched"]

Array = np.ndarray[Any, Any]
# A sliced array on a device and what it was sliced from, by the array's id; let go of after each test.
BASES: dict[int, tuple[Any, Any]] = {}
SLICED = (slice(None, None, 2), ..., slice(1, None, 2))
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
        return wide[SLICED]
    if layout == "features" and len(shape) == 4:
        n, c, h, w = shape
        return np.full((n, h, w, c), np.nan, dtype).transpose(0, 3, 1, 2)
    return np.full(tuple(shape), np.nan, dtype)


def lay(values: Array, layout: str) -> Array:
    """Return a copy of values in memory of one of `LAYOUTS`."""
    made = blank(values.shape, values.dtype, layout)
    made[...] = values
    return made


def whole(array: Array) -> Array:
    """Return what an array is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def put(ops: NumpyOps, array: Array) -> Any:
    """Return an array as one of the device, in the same layout; on a CPU itself."""
    if ops.device == "cpu":
        return array
    base = whole(array)
    if base.size == array.size or base.ndim != array.ndim or base[SLICED].strides != array.strides:
        return ops.from_host(array)
    there = ops.from_host(base)
    made = there[SLICED]
    BASES[id(made)] = made, there
    return made


def get(ops: NumpyOps, array: Any) -> Array:
    """Return an array of the device in host memory, with its gaps where it has any; on a CPU itself."""
    if id(array) in BASES:
        found: Array = ops.to_host(BASES[id(array)][1])[SLICED]
        return found
    return ops.to_host(array)


def scalar(ops: NumpyOps, value: Any) -> float:
    """Return what a kernel counted."""
    return float(np.ravel(ops.to_host(value))[0])


def slopes(f: Callable[[Array], Array], x: Array, gy: Array) -> Array:
    """Return the gradient of ``sum(f(x) gy)`` with respect to x by central differences, float64."""
    x, step = x.astype(np.float64), 1e-5
    made = np.empty(x.shape)
    for at in np.ndindex(x.shape):
        ahead, behind = x.copy(), x.copy()
        ahead[at] += step
        behind[at] -= step
        made[at] = np.sum((f(ahead) - f(behind)) * gy) / (2 * step)
    return made


def untouched(sliced: Array) -> bool:
    """Tell whether what lies between the values of an array from `blank` is as it was."""
    base = whole(sliced)
    return bool(base is sliced or np.isnan(base).sum() == base.size - sliced.size or base.size == sliced.size)


def close(actual: Array, wanted: Any) -> None:
    """Compare with what float64 gives, to the precision of the array, of the largest value."""
    assert untouched(actual), "wrote between the values of its array"
    within = TOLERANCE[actual.dtype.name]
    scale = max(1.0, float(np.max(np.abs(wanted))))
    np.testing.assert_allclose(actual, wanted, rtol=within, atol=within * scale)
