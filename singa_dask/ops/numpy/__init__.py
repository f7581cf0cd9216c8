"""NumpyOps: the reference backend, all kernels in NumPy.

The docstrings of this package are the contract of every backend: what each kernel computes, for which shapes and
dtypes, and which arrays may share memory. A faster backend is a subclass that overrides some of the kernels.

A kernel writes its result to ``out`` and returns nothing, unless its docstring says otherwise. Pass ``out`` and the
arguments after ``out`` by keyword. After its first call a kernel allocates no memory of batch size. Float arrays of
one call have one dtype, float32 or float64, and any strides, unless a kernel says otherwise. ``N`` is the number of
rows in the batch.
"""

from __future__ import annotations

from singa_dask.ops.numpy.binary import NumpyBinary
from singa_dask.ops.numpy.elementwise import NumpyElementwise
from singa_dask.ops.numpy.images import NumpyImages
from singa_dask.ops.numpy.linear import NumpyLinear
from singa_dask.ops.numpy.normalisation import NumpyNormalisation
from singa_dask.ops.numpy.random import NumpyRandom
from singa_dask.ops.numpy.recurrent import NumpyRecurrent
from singa_dask.ops.numpy.softmax import NumpySoftmax
from singa_dask.ops.numpy.updates import NumpyUpdates

__all__ = ["NumpyOps"]


class NumpyOps(
    NumpyLinear,
    NumpySoftmax,
    NumpyBinary,
    NumpyImages,
    NumpyNormalisation,
    NumpyRecurrent,
    NumpyElementwise,
    NumpyRandom,
    NumpyUpdates,
):
    """Kernels for host memory, float32 or float64, in numpy. `for_thread` creates an object for another thread.

    Attributes
    ----------
    name : str
        Name of the backend in the key ``ops`` of a job, e.g. ``"onednn"``.
    """

    name = "numpy"
