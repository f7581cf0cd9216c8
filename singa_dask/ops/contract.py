"""The types of kernels, for the layers, nets, updaters and units that get a backend as a value.

`Ops` is the class of the reference, `singa_dask.ops.numpy`: its docstrings say what each kernel computes, from which
shapes and dtypes, and what may share memory. The other backends extend it, and are tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from singa_dask.arrays import Array, DType
from singa_dask.ops.formulas import Formula

if TYPE_CHECKING:
    from singa_dask.ops.numpy import NumpyOps as Ops
else:
    # a stand-in for annotations, so that importing this module loads no kernels
    Ops = Any

__all__ = [
    "UNDILATED",
    "Array",
    "ArrayList",
    "Arrays",
    "CapturedKernels",
    "DType",
    "Each",
    "Event",
    "Formula",
    "Key",
    "Ops",
    "Pair",
    "Preparation",
    "Running",
    "Scalar",
    "Transfers",
]

# Result of a reduction to one number: a float on a CPU, an array of shape (1,) and dtype float64 on a GPU.
Scalar: TypeAlias = Array | float
# A vertical and a horizontal size, stride or padding of a window.
Pair: TypeAlias = tuple[int, int]
# Dilation of a window without gaps.
UNDILATED: Pair = (1, 1)
# Key of random numbers, for example (seed, layer, step).
Key: TypeAlias = Sequence[int | str]


class CapturedKernels(Protocol):
    """Kernels that were captured by `NumpyOps.capture` and are launched together."""

    @property
    def is_valid(self) -> bool:
        """Whether the kernels still have the memory that they were captured with."""

    def replay(self, key_now: Callable[[Key], Key]) -> None:
        """Enqueue the kernels once more.

        ``key_now`` returns the key of random numbers for this replay, given the key at the capture.
        """


class Event(Protocol):
    """A point in the work of a device."""

    def synchronize(self) -> None:
        """Wait until the device has reached it."""


class Transfers(Protocol):
    """Copies between a device and page-locked host memory that run beside kernels; see `NumpyOps.transfers`."""

    def mark(self) -> Event:
        """Return an event that occurs once all kernels enqueued so far are done."""

    def download(self, x: Array, out: Array, after: Event) -> Event:
        """Copy a dense device array to host memory of its dtype after an event; return the event of completion."""

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
        Their gradients, the amounts that an update subtracts.
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
        Table of the arrays on a GPU, made in the first call.
    """

    on_device: Any = None


# One array, or a list of arrays that are updated at once.
Arrays: TypeAlias = Array | ArrayList
T = TypeVar("T")


class Each(tuple[T, ...]):
    """A value for each array of an `ArrayList`, in their order."""


class Preparation(NamedTuple):
    """How a gradient is prepared for an update rule: ``clip(scale g, low, high) + decay w``.

    Attributes
    ----------
    low, high : float
        Bounds; the gradient is clipped if ``high > low``.
    scale : float
        Applied before clipping, so that the bounds are for the mean over all sharers.
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
