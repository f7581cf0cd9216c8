"""Kernels of oneDNN, for x86-64 CPUs on Linux."""

from singa_dask.ops.onednn.library import DISTRIBUTION
from singa_dask.ops.onednn.ops import OneDnnOps

__all__ = ["DISTRIBUTION", "OneDnnOps"]
