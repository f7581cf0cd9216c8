"""Device: the device of the kernels, its streams, their capture for replay. Memory: its arrays, copies and scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

# An array in the memory of the worker's device: numpy's on a CPU, CuPy's on a GPU, which has no types of its own.
Array: TypeAlias = np.ndarray[Any, Any]
# What a reduction to one number returns: a number on a CPU, an array (1,) float64 on a GPU.
Scalar: TypeAlias = Array | float
DType: TypeAlias = npt.DTypeLike
# Vertical and horizontal: the size, stride or padding of a window.
Pair: TypeAlias = tuple[int, int]
# The key of random numbers, e.g. (seed, layer, step).
Key: TypeAlias = Sequence[int | str]


Self = TypeVar("Self", bound="Device")


class Device(Protocol):
    """The device that kernels run on.

    Attributes
    ----------
    device : str
        ``"cpu"``, or ``"cuda:<number>"``.
    supports_capture : bool
        Whether `capture` works.
    prefers_large_kernels : bool
        Whether one kernel on much memory is faster than several on parts of it, which a CPU keeps in its cache.
    """

    device: str
    supports_capture: bool
    prefers_large_kernels: bool

    def activate(self) -> AbstractContextManager[None]:
        """Return the context in which a thread calls kernels; it enters one for all its calls."""

    def for_thread(self: Self) -> Self:
        """Return kernels of the same device for another thread, with scratch memory of their own."""

    def synchronize(self) -> None:
        """Wait for all kernels."""

    @staticmethod
    def count() -> int:
        """Return how many devices of this kind the process sees."""

    def transfers(self) -> Transfers | None:
        """Return what copies to the device and back beside kernels; None if device and host share memory."""

    def capture(self, run: Callable[[], None]) -> CapturedKernels:
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

    def release(self) -> None:
        """Return memory that is cached for reuse to the device, for other processes."""


class CapturedKernels(Protocol):
    """Kernels that were captured once and are launched together; `Device.capture` makes it."""

    @property
    def is_valid(self) -> bool:
        """Whether the memory that the kernels compute in is still theirs."""

    def replay(self, key_now: Callable[[Key], Key]) -> None:
        """Enqueue the kernels once more.

        Parameters
        ----------
        key_now : callable
            The key of random numbers at the capture -> the key of this replay.
        """


class Event(Protocol):
    """A point in the work of a device."""

    def synchronize(self) -> None:
        """Wait until the device has reached it."""


class Transfers(Protocol):
    """Copies between a device and page-locked host memory that run beside kernels; `Device.transfers` makes it."""

    def mark(self) -> Event:
        """Return the event that all kernels enqueued so far are done."""

    def download(self, x: Array, out: Array, after: Event) -> Event:
        """Copy a dense device array to host memory of its dtype after an event; return the event of its arrival."""

    def upload(self, x: Array, out: Array, after: Event) -> None:
        """Copy host memory to a dense device array of its dtype after an event; later kernels wait for it."""

    def synchronize(self) -> None:
        """Wait for all copies."""


class Memory(Protocol):
    """Memory of a device. Host arrays are numpy's; on a CPU they are the device's too."""

    # -- arrays ------------------------------------------------------------------------------------------

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """Return uninitialised memory."""

    def zeros(self, shape: Sequence[int], dtype: DType) -> Array:
        """Return memory filled with zeros."""

    def pinned(self, shape: Sequence[int], dtype: DType) -> Array:
        """Return zeros in page-locked host memory, which copies to and from the device fastest."""

    def features(self, shape: Sequence[int], dtype: DType) -> Array:
        """Return zeros for a feature of a net: images (N, C, H, W) lie in memory as N, H, W, C, others in C order."""

    def scratch(self, name: str, shape: Sequence[int], dtype: DType) -> Array:
        """Return uninitialised memory laid out as `features`, valid until the next call with this name."""

    def copy(self, x: Array, out: Array) -> None:
        """``out = x``; dtypes may differ, and either may be a host array."""

    def from_host(self, x: Array) -> Array:
        """Return a host array as a device array, itself where possible."""

    def to_host(self, x: Scalar) -> Array:
        """Return a device array as a host array, a view where possible; waits for the kernels that compute it."""

    def address(self, x: Array | None) -> int:
        """Return the address of an array on the device, 0 if it is in host memory alone."""

    def constant(self, values: Array | float | None) -> Array | float | None:
        """Return values that never change, e.g. the mean of all images, as kernels take them; a number stays one."""

    def labels(self, values: Array, before: Array | None = None) -> Array:
        """Return integers of a batch as kernels take them fastest, readable on the host as before.

        Parameters
        ----------
        values : (N,) integers
            E.g. labels, or rows of a table.
        before : array, optional
            What this returned for the previous batch, for reuse.
        """

    # -- scalars -----------------------------------------------------------------------------------------

    def finite(self, x: Array) -> bool:
        """Tell whether no value is NaN or infinite; waits for the kernels that compute them."""

    def accumulate(self, value: Scalar, total: Scalar) -> Scalar:
        """Return ``total + value`` without waiting for it.

        Parameters
        ----------
        value : float, or what a kernel returned, e.g. `Softmax.cross_entropy`
            A kernel's is valid until the next call of that kernel.
        total : float, or what this returned
            May be overwritten.
        """

    def reset(self, total: Scalar) -> Scalar:
        """Return a new total of zero in the memory of ``total``, which `accumulate` returned."""

    def poll(self, total: Scalar) -> float | None:
        """Return the newest value of a total that has reached the host, None before the first; never waits.

        If the device is behind, each call requests the current value, which a later call returns.
        """
