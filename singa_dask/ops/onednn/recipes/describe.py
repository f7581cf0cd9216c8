"""Descriptions of arrays and of primitives, for recipes."""

from __future__ import annotations

from typing import Any

from numpy.lib.stride_tricks import as_strided

from singa_dask.ops.contract import Array
from singa_dask.ops.onednn.call import channels_last_strides, layout
from singa_dask.ops.onednn.library import Engine, Unsupported

__all__ = ["described", "fast", "flat"]


def described(engine: Engine, x: Array) -> int:
    """Describe an array as primitives take it: images as N, H, W, C, others as they are."""
    return engine.md(x.shape, x.dtype, channels_last_strides(x) if x.ndim == 4 else layout(x))


def fast(engine: Engine, name: str, *args: Any) -> int:
    """Describe a primitive.

    Raises
    ------
    Unsupported
        oneDNN has none, or only its reference implementation, which is slower than numpy.
    """
    description = engine.describe(name, *args)
    implementation = engine.implementation(description)
    if implementation.startswith("ref"):
        raise Unsupported(f"dnnl_{name}: only {implementation}")
    return description


def flat(*arrays: Array) -> list[Array]:
    """Return arrays of the same layout without gaps as flat views, others as they are."""
    first = layout(arrays[0])
    dense = sum((size - 1) * step for size, step in zip(arrays[0].shape, first, strict=True)) + arrays[0].itemsize
    if dense != arrays[0].nbytes or any(layout(array) != first or min(first) <= 0 for array in arrays):
        return list(arrays)
    return [as_strided(array, (array.size,), (array.itemsize,)) for array in arrays]
