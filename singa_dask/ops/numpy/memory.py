"""NumpyMemory: what memory of a device is, and how arrays and scalars come to it and back, on a CPU.

On a CPU that is mostly nothing: an array of the host is where it is wanted, a scalar is a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np

from singa_dask.ops.scratch import Scratch

__all__ = ["NumpyMemory"]

# Arrays are Any: a backend has its own kind.
Array = Any
Ops = TypeVar("Ops", bound="NumpyMemory")


class NumpyMemory(Scratch):
    """Memory of a device, a mixin of `NumpyOps`.

    Attributes
    ----------
    device : str
        ``"cpu"``, or ``"cuda:<number>"``.
    supports_capture : bool
        Whether it can `capture`.
    prefers_large_kernels : bool
        Whether one kernel on much memory is better than several on parts of it, which a CPU has in its cache.
    """

    device = "cpu"
    supports_capture = False
    prefers_large_kernels = False

    def activate(self) -> AbstractContextManager[None]:
        """Return a context in which a thread may call kernels; it enters one for all its calls."""
        return nullcontext()

    def for_thread(self: Ops) -> Ops:
        """Return kernels of the same device for another thread, with scratch memory of their own."""
        return type(self)()

    def synchronize(self) -> None:
        """Wait for all that was asked of the device."""

    @staticmethod
    def count() -> int:
        """Return how many of such devices this process sees."""
        return 1

    def transfers(self) -> Any:
        """Return what copies arrays to the device and back beside kernels; None where that is one memory."""
        return None

    def capture(self, run: Callable[[], None]) -> Any:
        """Return the kernels that a function calls as one graph, which the device can replay; computes nothing yet.

        Parameters
        ----------
        run : callable
            Calls kernels. It has run at least once before, and takes nothing from the host but random keys.

        Raises
        ------
        TypeError
            The device does not support it.
        """
        raise TypeError(f"{self.device} captures no kernels")

    def release(self) -> None:
        """Give memory of the device that was kept for later back, for others that use the device."""

    # -- arrays ----------------------------------------------------------------------------------------

    def empty(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return memory that holds anything."""
        return np.empty(shape, dtype)

    def zeros(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return memory that holds zeros."""
        return np.zeros(shape, dtype)

    def pinned(self, shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
        """Return zeros in host memory that copies to and from the device are fastest with."""
        return np.zeros(shape, dtype)

    def copy(self, x: Array, out: Array) -> None:
        """``out = x``; dtypes may differ, and either may be in host memory."""
        np.copyto(out, x, casting="unsafe")

    def from_host(self, x: np.ndarray[Any, Any]) -> Array:
        """Return a numpy array as one of the device, itself where possible."""
        return x

    def to_host(self, x: Array) -> np.ndarray[Any, Any]:
        """Return ``x`` as a numpy array, a view where possible; waits for what computes it."""
        return np.asarray(x)

    def address(self, x: Any) -> int:
        """Return the address of an array on the device, 0 if it is in host memory alone."""
        return 0

    def constant(self, values: Array | float) -> Array | float:
        """Return what kernels take for values that do not change, e.g. the mean of all images; a number stays one."""
        return values

    def labels(self, values: np.ndarray[Any, Any], before: Any = None) -> np.ndarray[Any, Any]:
        """Return integers of a batch as kernels take them fastest, in host memory as they are too.

        Parameters
        ----------
        values : integers
            Labels, or rows of a table.
        before : ndarray, optional
            What this returned for the batch before, if that is not used any more.
        """
        return values

    # -- scalars -----------------------------------------------------------------------------------------

    def finite(self, x: Array) -> bool:
        """Tell whether all values are numbers, and none is infinite; waits for what computes them."""
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(np.sum(x, dtype=np.float64))
        # a sum of numbers may leave the range of floats
        return math.isfinite(total) or bool(np.isfinite(x).all())

    def accumulate(self, value: Array | float, total: Array | float) -> Array | float:
        """Return ``total + value`` without waiting for it.

        Parameters
        ----------
        value : float, or what a kernel returned that counts something
        total : float
            Number to begin with, or what this returned; may be written to.
        """
        return total + value

    def reset(self, total: Array | float) -> Array | float:
        """Return what to begin anew with after ``total``, which `accumulate` returned, in the same place."""
        return 0.0

    def poll(self, total: Array | float) -> float | None:
        """Return the newest value of what `accumulate` returned that has arrived, None before one has; never waits.

        Where the device is behind, each call asks for the value of now, which a later call then finds.
        """
        return float(total)
