"""The backends by name, and the function that chooses one for a device."""

from __future__ import annotations

import logging
import re
from typing import Any

from singa_dask.errors import ConfigError, Problem
from singa_dask.ops.numpy import NumpyOps
from singa_dask.ops.onednn import DISTRIBUTION, OneDnnOps
from singa_dask.registry import Registry

logger = logging.getLogger(__name__)

OPS: Registry[NumpyOps] = Registry("device")
OPS.register("cpu", "numpy")(NumpyOps)
OPS.register("onednn")(OneDnnOps)
OPS.add_modules("singa_dask.ops.cupy", {"ops": "cupy"})

GPU = re.compile(r"cuda:(\d+)")


def get_ops(name: str = "auto", precision: str = "float32") -> NumpyOps:
    """Return the kernels of a device.

    Parameters
    ----------
    name : str
        Name of a backend. ``"auto"`` is the fastest backend for the CPU that is installed, ``"cuda:<number>"`` a GPU by
        its number in this process, and ``"cupy"`` the first GPU.
    precision : str
        Dtype of the features: ``"float32"``, ``"float64"``, ``"bf16"`` or ``"tf32"``. ``"tf32"`` is float32, but a GPU
        rounds the factors of matrix products and convolutions.

    Raises
    ------
    ConfigError
        The device does not exist, cannot be used, or does not support the precision. In the last case the path of the
        error is ``precision``.
    """
    if name == "cupy" or name.startswith("cuda"):
        return _on_gpu(name, precision)
    ops = _fastest(precision) if name == "auto" else OPS.find(name)()
    if precision == "bf16":
        _check_bfloat16(ops, forced=name != "auto")
    return ops


def _on_gpu(name: str, precision: str) -> NumpyOps:
    """Return the kernels of a GPU."""
    number = GPU.fullmatch("cuda:0" if name == "cupy" else name)
    if number is None:
        raise ConfigError(f"unknown device {name!r}. GPUs are cuda:0, cuda:1, and so on.")
    # import this module on demand, because CuPy is an extra
    cupy_ops: Any = OPS.find("cupy")
    ops: NumpyOps = cupy_ops(int(number[1]), precision)
    return ops


def _check_bfloat16(ops: NumpyOps, forced: bool) -> None:
    """Raise `ConfigError` if a backend lacks bfloat16, or is slow in it and was not chosen by name."""
    if not isinstance(ops, OneDnnOps):
        message = f"bf16 needs ops onednn or cupy, not {ops.name}. Install {DISTRIBUTION!r}, or use float32."
    elif not ops.does_bfloat16:
        message = "bf16 needs AVX-512, which this CPU lacks. Use float32."
    elif not (ops.is_fast_in_bfloat16 or forced):
        message = (
            "bf16 is three times slower than float32 on this CPU, which has neither AVX512_BF16 nor AMX. Use float32, "
            "or set ops: onednn to compute in bf16 anyway."
        )
    else:
        return
    raise ConfigError(Problem(("precision",), message))


def _fastest(precision: str) -> NumpyOps:
    """Return the fastest kernels for a CPU, and log their name."""
    if precision == "float64":
        return NumpyOps()
    try:
        ops = OneDnnOps()
    except ConfigError as error:
        logger.warning("%s Until then, jobs use NumPy, which is several times slower on images.", str(error))
        return NumpyOps()
    logger.info("ops: oneDNN %s", ops.version)
    return ops
