"""Memory: arrays of a device, their way to it and back, and scalars that are summed there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from singa_dask.ops.contract.arrays import Array, DType, Scalar

__all__ = ["Memory"]


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
