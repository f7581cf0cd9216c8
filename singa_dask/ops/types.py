"""Types of what kernels take and return, beside the arrays themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from singa_dask.arrays import Array

# What a reduction to one number returns: a number on a CPU, an array (1,) float64 on a GPU.
Scalar: TypeAlias = Array | float
# Vertical and horizontal: the size, stride or padding of a window.
Pair: TypeAlias = tuple[int, int]
# The dilation of a window without gaps between its places.
UNDILATED: Pair = (1, 1)
# The key of random numbers, e.g. (seed, layer, step).
Key: TypeAlias = Sequence[int | str]


class CapturedKernels(Protocol):
    """Kernels that were captured once and are launched together; `NumpyOps.capture` makes it."""

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
    """Copies between a device and page-locked host memory that run beside kernels; `NumpyOps.transfers` makes it."""

    def mark(self) -> Event:
        """Return the event that all kernels enqueued so far are done."""

    def download(self, x: Array, out: Array, after: Event) -> Event:
        """Copy a dense device array to host memory of its dtype after an event; return the event of its arrival."""

    def upload(self, x: Array, out: Array, after: Event) -> None:
        """Copy host memory to a dense device array of its dtype after an event; later kernels wait for it."""

    def synchronize(self) -> None:
        """Wait for all copies."""


class Running(NamedTuple):
    """The running statistics of a batch normalisation.

    Attributes
    ----------
    mean, var : (C,)
        Their values.
    grad_mean, grad_var : (C,)
        Their gradients, what an update subtracts.
    rate : float
        1 minus the decay rate.
    """

    mean: Array
    var: Array
    grad_mean: Array
    grad_var: Array
    rate: float


class ArrayList(tuple[Array, ...]):
    """Arrays (n_i,) of several params, of one dtype: their values, their gradients, or one name of their state.

    Make it once, and use it in each step.

    Attributes
    ----------
    on_device : object
        What a GPU keeps to find the arrays: it is made in the first call.
    """

    on_device: Any = None


# Of one param, or of several that are updated at once.
Arrays: TypeAlias = Array | ArrayList
T = TypeVar("T")


class Each(tuple[T, ...]):
    """What differs between the arrays of an `ArrayList`: one of it for each of them, in their order."""


class Preparation(NamedTuple):
    """What is done to a gradient before a rule sees it: ``clip(scale g, low, high) + decay w``.

    Attributes
    ----------
    low, high : float
        Bounds; the gradient is clipped if ``high > low``.
    scale : float
        Applied before the bounds, which hold for the mean over all sharers.
    decay : float
        Weight decay, not below 0.
    value_factor : float
        Multiplies the values before the rule changes them: decoupled weight decay.
    """

    low: float = 0.0
    high: float = 0.0
    scale: float = 1.0
    decay: float = 0.0
    value_factor: float = 1.0
