"""The contract of the kernels: what each one computes, from which shapes and dtypes, and what may share memory.

A family of kernels is a `typing.Protocol` in a file of its own; `Ops` is all of them. A backend inherits `Ops` and
implements every method: `singa_dask.ops.numpy` is the reference that the others are tested against. Layers, updaters
and workers name these types, and are handed the backend as a value.

A kernel writes its result into ``out`` and returns nothing, unless it says so. After its first call it allocates no
memory of batch size. Float arrays of one call have one dtype, float32 or float64, and any strides, unless a kernel says
otherwise. ``N`` is the number of rows in the batch.
"""

from __future__ import annotations

from typing import Protocol

from singa_dask.ops.contract.device import (
    Array,
    CapturedKernels,
    Device,
    DType,
    Event,
    Key,
    Memory,
    Pair,
    Scalar,
    Transfers,
)
from singa_dask.ops.contract.elementwise import Elementwise
from singa_dask.ops.contract.images import Images
from singa_dask.ops.contract.linear import Linear
from singa_dask.ops.contract.normalisation import Normalisation, Running
from singa_dask.ops.contract.random import Random
from singa_dask.ops.contract.recurrent import Recurrent
from singa_dask.ops.contract.softmax import Binary, Softmax
from singa_dask.ops.contract.updates import ArrayList, Arrays, Preparation, Updates

__all__ = [
    "Array",
    "ArrayList",
    "Arrays",
    "Binary",
    "CapturedKernels",
    "DType",
    "Device",
    "Elementwise",
    "Event",
    "Images",
    "Key",
    "Linear",
    "Memory",
    "Normalisation",
    "Ops",
    "Pair",
    "Preparation",
    "Random",
    "Recurrent",
    "Running",
    "Scalar",
    "Softmax",
    "Transfers",
    "Updates",
]


class Ops(
    Device,
    Memory,
    Elementwise,
    Linear,
    Softmax,
    Binary,
    Images,
    Normalisation,
    Recurrent,
    Random,
    Updates,
    Protocol,
):
    """All kernels of a backend. An object belongs to one thread; `for_thread` makes one for another.

    Attributes
    ----------
    name : str
        As a job's ``ops`` has it, e.g. ``"onednn"``.
    """

    name: str
