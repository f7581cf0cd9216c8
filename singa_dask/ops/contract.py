"""The types of kernels, for the layers, nets, updaters and units that get a backend as a value.

`Ops` is the class of the reference backend, `singa_dask.ops.numpy`. Its docstrings say what each kernel computes, for
which shapes and dtypes, and which arrays may share memory. The other backends extend this class and are tested against
it.
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
    "ConvWindow",
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


class ConvWindow(NamedTuple):
    """The windows of a convolution.

    Attributes
    ----------
    stride, pad : pair of int
    dilation : pair of int
        Distance between neighbouring pixels of a window.
    groups : int
        Number of groups into which channels and filters are divided. A filter reads only the channels of its group.
    """

    stride: Pair
    pad: Pair
    dilation: Pair = UNDILATED
    groups: int = 1


# Key of random numbers, for example (seed, layer, step).
Key: TypeAlias = Sequence[int | str]


class CapturedKernels(Protocol):
    """Kernels that `NumpyOps.capture` has captured, and that `replay` launches together."""

    @property
    def is_valid(self) -> bool:
        """Whether the kernels may be replayed, because the memory that they use is unchanged."""

    def replay(self, key_now: Callable[[Key], Key]) -> None:
        """Enqueue the kernels once more.

        ``key_now(key)`` returns the key of random numbers for this replay; ``key`` is the key at the capture.
        """


class Event(Protocol):
    """A point in the queue of a device, which `synchronize` waits for."""

    def synchronize(self) -> None:
        """Wait until the device has reached the event."""


class Transfers(Protocol):
    """Copies data between a device and page-locked host memory, in parallel with kernels; see `NumpyOps.transfers`."""

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
    mean, variance : (C,)
        Values of the running mean and variance.
    grad_mean, grad_variance : (C,)
        Gradients of the running mean and variance: the amounts that an update subtracts.
    rate : float
        1 minus the decay rate.
    """

    mean: Array
    variance: Array
    grad_mean: Array
    grad_variance: Array
    rate: float


class ArrayList(tuple[Array, ...]):
    """Arrays (n_i,) of several params, with the same dtype: their values, their gradients, or a state of an updater.

    Create the list once and use it in each step.

    Attributes
    ----------
    on_device : object
        Table of the arrays on a GPU, which the first call creates.
    """

    on_device: Any = None


# One array, or a list of arrays that one call updates.
Arrays: TypeAlias = Array | ArrayList
T = TypeVar("T")


class Each(tuple[T, ...]):
    """One value for each array of an `ArrayList`, in the same order."""


class Preparation(NamedTuple):
    """Preparation of a gradient for an update rule: ``clip(scale g, low, high) + decay w``.

    Attributes
    ----------
    low, high : float
        Bounds of the gradient. The gradient is clipped only if ``high > low``.
    scale : float
        Factor of the gradient. The factor is applied before clipping, so that the bounds apply to the mean over all
        sharers.
    decay : float
        Weight decay, at least 0.
    value_factor : float
        Factor of the values before the rule changes them, for decoupled weight decay.
    """

    low: float = 0.0
    high: float = 0.0
    scale: float = 1.0
    decay: float = 0.0
    value_factor: float = 1.0
