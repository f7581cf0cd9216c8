"""NumpyMemory: the CPU as a device, with host arrays as its arrays and numbers as scalars."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

import numpy as np

from singa_dask.arrays import Array, ArrayPool, DType
from singa_dask.ops.contract import CapturedKernels, Scalar, Transfers

Ops = TypeVar("Ops", bound="NumpyMemory")

# Number of values per piece in kernels of several passes, so that the piece stays in the CPU cache.
PIECE_VALUES = 1 << 15
# Maximum number of views of scratch memory that are kept.
MAX_VIEWS = 1 << 10


class NumpyMemory:
    """The device that kernels run on, and its memory.

    Host arrays are NumPy arrays; on a CPU they are device arrays, too. Use an object in one thread only, because its
    calls share scratch memory.

    Attributes
    ----------
    device : str
        ``"cpu"``, or ``"cuda:<number>"``.
    supports_capture : bool
        Whether `capture` works.
    prefers_large_kernels : bool
        Whether one kernel on large arrays is faster than several kernels on parts that stay in the cache.
    n_grown : int
        Number of times that scratch memory was replaced by a larger array.
    """

    device = "cpu"
    supports_capture = False
    prefers_large_kernels = False

    def __init__(self) -> None:
        self.n_grown = 0
        self._scratch: dict[str, Array] = {}
        self._views: dict[Any, Array] = {}
        self._recycled = ArrayPool()

    def activate(self) -> AbstractContextManager[None]:
        """Return a context manager that a thread enters once, around all its calls of kernels."""
        return nullcontext()

    def for_thread(self: Ops) -> Ops:
        """Return kernels of the same device for another thread."""
        return type(self)()

    def synchronize(self) -> None:
        """Wait for all kernels."""

    @staticmethod
    def count() -> int:
        """Return how many devices of this kind the process sees."""
        return 1

    def transfers(self) -> Transfers | None:
        """Return an object that copies to and from the device in parallel with kernels.

        The result is None if the device shares the host's memory.
        """
        return None

    def capture(self, run: Callable[[], None]) -> CapturedKernels:
        """Capture the kernels that a function calls, without running them, for the device to replay.

        ``run`` calls the kernels. ``run`` must have been called once before, must read nothing from the host except
        random keys, and must not change weights of convolutions.

        Raises
        ------
        TypeError
            The device does not support capturing.
        """
        raise TypeError(f"{self.device} captures no kernels")

    def bound(self, name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Return a function that repeats a call of a kernel on the same memory.

        The function is valid as long as `conditions` returns the same value.
        """
        return partial(getattr(self, name), *args, **kwargs)

    def conditions(self) -> tuple[object, ...]:
        """Return a value that changes when functions of `bound` become invalid."""
        return ()

    def release(self) -> None:
        """Free memory that is cached for reuse, so that other processes can use it."""

    # -- arrays ----------------------------------------------------------------------------------------

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """Return uninitialised memory."""
        return np.empty(shape, dtype)

    def recycled(self, size: int, dtype: DType) -> Array:
        """Return an uninitialised 1-D array. Its memory is reused once nothing refers to the array."""
        return self._recycled.empty(size, dtype)

    def zeros(self, shape: Sequence[int], dtype: DType) -> Array:
        """Return memory filled with zeros."""
        return np.zeros(shape, dtype)

    def pinned(self, shape: Sequence[int], dtype: DType) -> Array:
        """Return zeros in page-locked host memory, which copies to and from the device fastest."""
        return np.zeros(shape, dtype)

    def features(self, shape: Sequence[int], dtype: DType) -> Array:
        """Return zeros for a feature of a net.

        Images (N, C, H, W) are in memory in the order N, H, W, C, all other features in C order.
        """
        return in_layout(np.zeros(math.prod(shape), dtype), shape)

    def scratch(self, name: str, shape: Sequence[int], dtype: DType) -> Array:
        """Return uninitialised memory in the layout of `features`, valid until the next call with this name."""
        key = (name, tuple(shape), dtype)
        view = self._views.get(key)
        if view is None:
            kind = np.dtype(dtype)
            n_bytes = math.prod(shape) * kind.itemsize
            is_small = name not in self._scratch or self._scratch[name].size < n_bytes
            if is_small:
                self._scratch[name] = np.empty(n_bytes, np.uint8)
                self.n_grown += 1
            if is_small or len(self._views) >= MAX_VIEWS:
                self._views.clear()  # drop all views, because some may show the smaller array
            view = self._views[key] = in_layout(self._scratch[name][:n_bytes].view(kind), shape)
        return view

    def pieces(self, first: Array, *more: Array | None, n_values: int = PIECE_VALUES) -> Iterator[tuple[Any, ...]]:
        """Divide arrays with the same number of rows into pieces of at least one row.

        Parameters
        ----------
        first, *more : (N, ...)
            None stays None.
        n_values : int
            Maximum number of values in a piece of the first array. A row that has more values is a piece of its own.
        """
        n_rows = max(1, n_values * len(first) // max(1, first.size))
        for start in range(0, len(first), n_rows):
            yield tuple(None if array is None else array[start : start + n_rows] for array in (first, *more))

    def copy(self, x: Array, out: Array) -> None:
        """``out = x``. Dtypes may differ, and either array may be a host array."""
        np.copyto(out, x, casting="unsafe")

    def clear(self, out: Array) -> None:
        """``out = 0``."""
        out[...] = 0

    def from_host(self, x: Array) -> Array:
        """Return a host array as a device array; if possible, the array itself."""
        return x

    def to_host(self, x: Scalar) -> Array:
        """Return a device array as a host array, if possible as a view. Waits for the kernels that compute it."""
        return np.asarray(x)

    def address(self, x: Array | None) -> int:
        """Return the address of an array on the device; 0 if it is only in host memory."""
        return 0

    def constant(self, values: Array | float | None) -> Array | float | None:
        """Return constant values, such as the mean of all images, in a form that kernels accept.

        Numbers are returned unchanged.
        """
        return values

    def labels(self, values: Array, before: Array | None = None) -> Array:
        """Return integers of a batch in the form that kernels read fastest. The host can still read them.

        Parameters
        ----------
        values : (N,) integers
            Integers such as labels, or indices of rows of a table.
        before : array, optional
            The result for the previous batch, whose memory is reused.
        """
        return values

    # -- scalars -----------------------------------------------------------------------------------------

    def finite(self, x: Array) -> bool:
        """Return whether all values are finite. Waits for the kernels that compute them."""
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(np.sum(x, dtype=np.float64))
        # check all values, because a sum of finite values may overflow
        return math.isfinite(total) or bool(np.isfinite(x).all())

    def accumulate(self, value: Scalar, total: Scalar) -> Scalar:
        """Return ``total + value`` without waiting for the result.

        Parameters
        ----------
        value : float, or result of a kernel such as `cross_entropy`
            The value to add. A kernel may overwrite it in its next call.
        total : float, or result of this method
            The total so far. It may be overwritten.
        """
        return total + value

    def reset(self, total: Scalar) -> Scalar:
        """Return a total of zero, in the memory of ``total``, which is a result of `accumulate`."""
        return 0.0

    def poll(self, total: Scalar) -> float | None:
        """Return the newest value of a total on the host, or None if there is none yet. Never waits.

        On a GPU each call requests the current value, which a later call returns.
        """
        return float(total)


def channels_last(images: Array) -> Array:
    """Return a view of (N, C, H, W) as (N, H, W, C)."""
    return images.transpose(0, 2, 3, 1)


def in_layout(flat: Array, shape: Sequence[int]) -> Array:
    """Return flat memory as a view with the shape and layout of a feature."""
    if len(shape) != 4:
        return flat.reshape(shape)
    n, c, h, w = shape
    return flat.reshape(n, h, w, c).transpose(0, 3, 1, 2)
