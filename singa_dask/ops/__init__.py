"""Kernels on arrays.

There is a backend for each kind of device; `singa_dask.ops.numpy` documents each kernel. `get_ops` returns a backend,
which is an object that is passed to every layer; there is no global backend. `contract` has the types of kernels. A
backend is imported on first use.
"""

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.ops.backends import OPS, get_ops
    from singa_dask.ops.bfloat16 import BFLOAT16
    from singa_dask.ops.numpy import NumpyOps
    from singa_dask.ops.onednn import OneDnnOps

__all__ = ["BFLOAT16", "OPS", "NumpyOps", "OneDnnOps", "get_ops"]

__getattr__ = lazy_names(
    __name__, {"backends": ["OPS", "get_ops"], "bfloat16": ["BFLOAT16"], "numpy": ["NumpyOps"], "onednn": ["OneDnnOps"]}
)
