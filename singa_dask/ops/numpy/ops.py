"""NumpyOps: the reference backend, all kernels in numpy.

A faster backend is a subclass that overrides kernels, and inherits those that it does not cover.
"""

from __future__ import annotations

from singa_dask.ops.contract import Ops
from singa_dask.ops.numpy.elementwise import NumpyElementwise
from singa_dask.ops.numpy.images import NumpyImages
from singa_dask.ops.numpy.linear import NumpyLinear
from singa_dask.ops.numpy.memory import NumpyMemory
from singa_dask.ops.numpy.normalisation import NumpyNormalisation
from singa_dask.ops.numpy.random import NumpyRandom
from singa_dask.ops.numpy.recurrent import NumpyRecurrent
from singa_dask.ops.numpy.softmax import NumpyBinary, NumpySoftmax
from singa_dask.ops.numpy.updates import NumpyUpdates


class NumpyOps(
    NumpyMemory,
    NumpyElementwise,
    NumpyLinear,
    NumpySoftmax,
    NumpyBinary,
    NumpyImages,
    NumpyNormalisation,
    NumpyRecurrent,
    NumpyRandom,
    NumpyUpdates,
    Ops,
):
    """Kernels for host memory, float32 or float64, in numpy; see `singa_dask.ops.contract`."""

    name = "numpy"
