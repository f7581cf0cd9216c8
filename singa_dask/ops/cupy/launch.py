"""Arguments of launches: grids, the types of numbers, and how many values a thread takes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.ops.contract import DType
from singa_dask.ops.cupy.arrays import THREADS, blocks
from singa_dask.ops.cupy.device import Array

__all__ = ["index_type", "ints", "pack_width", "run", "sum_type"]

# Bytes that a thread reads or writes at once.
PACK_BYTES = 16
# Kernels count up to so many values in int; threads step beyond the last one.
INT_VALUES = 1 << 30


def run(function: Any, n: int, *arguments: Sequence[Any]) -> None:
    """Launch a kernel with a thread for each of n values."""
    function((blocks(n),), (THREADS,), tuple(value for some in arguments for value in some))


def ints(*values: int) -> tuple[np.int32, ...]:
    """Return numbers as kernels take them."""
    return tuple(np.int32(value) for value in values)


def sum_type(dtype: DType) -> Any:
    """Return the dtype that kernels compute in for values of a dtype, `wide` of types.cuh."""
    return np.float64 if dtype == np.float64 else np.float32


def index_type(n_values: int) -> np.dtype[Any]:
    """Return the dtype that kernels count values in: int32 if that is enough, as it takes half the work."""
    return np.dtype(np.int32 if n_values <= INT_VALUES else np.int64)


def pack_width(channels: int, *arrays: Array) -> int:
    """Return how many neighbouring channels a thread takes at once, at most PACK_BYTES of each array."""
    for width in (8, 4, 2):
        if channels % width == 0 and all(
            width * x.itemsize <= PACK_BYTES and x.data.ptr % (width * x.itemsize) == 0 for x in arrays
        ):
            return width
    return 1
