"""The reference backend: all kernels in numpy."""

from __future__ import annotations

from singa_dask.ops.numpy.ops import NumpyOps

__all__ = ["NumpyOps"]
