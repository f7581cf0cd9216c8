"""Kernels in numpy: what every kernel means, for CPUs without a faster one."""

from __future__ import annotations

from singa_dask.ops.numpy.ops import NumpyOps

__all__ = ["NumpyOps"]
