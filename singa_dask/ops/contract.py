"""The types of kernels: for layers, nets, updaters and units, which are handed a backend as a value.

`Ops` is the class of the reference, `singa_dask.ops.numpy`: its docstrings say what each kernel computes, from which
shapes and dtypes, and what may share memory. The other backends extend it, and are tested against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from singa_dask.arrays import Array, DType
from singa_dask.ops.formulas import Formula
from singa_dask.ops.types import (
    UNDILATED,
    ArrayList,
    Arrays,
    CapturedKernels,
    Each,
    Event,
    Key,
    Pair,
    Preparation,
    Running,
    Scalar,
    Transfers,
)

if TYPE_CHECKING:
    from singa_dask.ops.numpy import NumpyOps as Ops
else:
    # for annotations alone, so that what names the types of kernels loads none
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
