"""Device: the device of the kernels, its streams, and the capture of kernels for replay."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from singa_dask.ops.contract.arrays import Array, Key

__all__ = ["CapturedKernels", "Device", "Event", "Transfers"]

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
