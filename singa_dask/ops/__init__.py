"""Kernels: arrays in, arrays out, the same names on every device.

`get_ops` gives a value that is passed on to every layer; nothing here is global.
"""

from __future__ import annotations

from singa_dask.ops import philox
from singa_dask.ops.numpy_ops import NumpyOps
from singa_dask.registry import Registry

__all__ = ["OPS", "NumpyOps", "get_ops", "philox"]

OPS: Registry[NumpyOps] = Registry("device")
OPS.register("cpu", "numpy")(NumpyOps)


def get_ops(name: str = "cpu") -> NumpyOps:
    """Return the kernels of a device.

    Parameters
    ----------
    name : str
        ``"cpu"``, or a backend by its own name.

    Raises
    ------
    ConfigError
        No such device; says what is known.
    """
    return OPS.find(name)()
