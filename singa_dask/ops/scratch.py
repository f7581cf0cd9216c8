"""Scratch: memory for intermediate results of kernels, allocated once and reused by each call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from singa_dask.ops.contract import Array, DType

# Kernels of several passes work on pieces of so many values, which stay in cache.
PIECE_VALUES = 1 << 15


class Scratch:
    """Memory by name; an object belongs to one thread, as simultaneous calls would overwrite each other's memory."""

    def __init__(self) -> None:
        self._scratch: dict[str, Array] = {}

    def features(self, shape: Sequence[int], dtype: DType) -> Array:
        """Return zeros for a feature of a net: images (N, C, H, W) lie in memory as N, H, W, C, others in C order."""
        return in_layout(np.zeros(math.prod(shape), dtype), shape)

    def scratch(self, name: str, shape: Sequence[int], dtype: DType) -> Array:
        """Return uninitialised memory laid out like a feature, valid until the next call with this name."""
        dtype = np.dtype(dtype)
        n_bytes = math.prod(shape) * dtype.itemsize
        if name not in self._scratch or self._scratch[name].size < n_bytes:
            self._scratch[name] = np.empty(n_bytes, np.uint8)
        return in_layout(self._scratch[name][:n_bytes].view(dtype), shape)

    def pieces(self, first: Array, *more: Array | None, n_values: int = PIECE_VALUES) -> Iterator[tuple[Any, ...]]:
        """Cut arrays with the same number of rows into pieces, at least a row each.

        Parameters
        ----------
        first, *more : (N, ...)
            None stays None.
        n_values : int
            The most values of a piece of the first, unless a row has more.
        """
        n_rows = max(1, n_values * len(first) // max(1, first.size))
        for start in range(0, len(first), n_rows):
            yield tuple(None if array is None else array[start : start + n_rows] for array in (first, *more))


def channels_last(images: Array) -> Array:
    """Return a view of (N, C, H, W) as (N, H, W, C)."""
    return images.transpose(0, 2, 3, 1)


def in_layout(flat: Array, shape: Sequence[int]) -> Array:
    """Return flat memory as a view with the shape and layout of a feature."""
    if len(shape) != 4:
        return flat.reshape(shape)
    n, c, h, w = shape
    return flat.reshape(n, h, w, c).transpose(0, 3, 1, 2)
