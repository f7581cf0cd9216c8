"""Kernels of oneDNN, for x86-64 CPUs on Linux."""

from singa_dask.ops.onednn.library import BFLOAT16, DISTRIBUTION
from singa_dask.ops.onednn.ops import OneDnnOps

__all__ = ["BFLOAT16", "DISTRIBUTION", "OneDnnOps"]
