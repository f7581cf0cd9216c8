"""Arguments of launches: grids, strides, and the types that kernels compute in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.arrays import DType
from singa_dask.ops.cupy.device import Array, in_memory
from singa_dask.ops.cupy.value_kernel import PACK_BYTES

# Threads per block in elementwise kernels.
THREADS = 256
WARP = 32
# Maximum number of blocks; for more values, each thread computes several.
MAX_BLOCKS = 1 << 14


def strides_of(x: Array) -> tuple[np.int64, ...]:
    """Return the strides of an array in values, as arguments of a kernel."""
    return tuple(np.int64(step // x.itemsize) for step in x.strides)


def flattened(x: Array) -> Array:
    """Return a view (n,) of an array without gaps in the order of its memory."""
    return x.transpose(in_memory(x)).reshape(-1)


def blocks(n: int, threads: int = THREADS) -> int:
    """Return the number of blocks for n values: one thread per value, but at most `MAX_BLOCKS`."""
    return max(1, min(-(-n // threads), MAX_BLOCKS))


# Maximum number of values that kernels index by int32. It is half the range of int32, because threads step beyond the
# last value.
INT_VALUES = 1 << 30


def run(function: Any, n: int, *arguments: Sequence[Any]) -> None:
    """Launch a kernel with a thread for each of n values."""
    function((blocks(n),), (THREADS,), tuple(value for some in arguments for value in some))


def ints(*values: int) -> tuple[np.int32, ...]:
    """Return numbers as int32 arguments of a kernel."""
    return tuple(np.int32(value) for value in values)


def sum_type(dtype: DType) -> Any:
    """Return the dtype that kernels compute in, `wide` of types.cuh."""
    return np.float64 if dtype == np.float64 else np.float32


def index_type(n_values: int) -> np.dtype[Any]:
    """Return the dtype of indices: int32 if it is large enough, because int64 takes twice the work."""
    return np.dtype(np.int32 if n_values <= INT_VALUES else np.int64)


def divisor(d: int) -> np.uint64:
    """Return the factor and shift by which `quotient` of types.cuh divides by d."""
    d = max(1, d)
    shift = 31 + (d - 1).bit_length()
    return np.uint64(-(-(1 << shift) // d) << 8 | shift)


def pack_width(channels: int, *arrays: Array) -> int:
    """Return how many neighbouring channels a thread reads at once: at most PACK_BYTES per array."""
    for width in (8, 4, 2):
        if channels % width == 0 and all(
            width * x.itemsize <= PACK_BYTES and x.data.ptr % (width * x.itemsize) == 0 for x in arrays
        ):
            return width
    return 1


# Maximum number of threads in a block that computes one row.
ROW_THREADS = 512


def row_threads(n: int) -> int:
    """Return the number of threads of a block for a row of n values, whole warps."""
    return min(ROW_THREADS, max(1, -(-n // WARP)) * WARP)
