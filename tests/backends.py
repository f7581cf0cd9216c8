"""The backends of kernels that tests run on, where they are installed; a new one is an entry here."""

from __future__ import annotations

import atexit
import contextlib
import shutil

import pytest

from singa_dask.errors import ConfigError
from singa_dask.ops import OPS, NumpyOps, get_ops
from tests.conftest import is_simulated

__all__ = ["BACKENDS", "backend", "need_gpus"]

# A GPU is the real one where there is one, else the simulated one: see tests/simulated.
BACKENDS = ["numpy", "onednn", "cuda:0"]

# The thread of the tests may call kernels of every backend at any time.
_HERE = contextlib.ExitStack()
atexit.register(_HERE.close)
_ENTERED: set[str] = set()


def backend(name: str, precision: str = "float32") -> NumpyOps:
    """Return the kernels of a backend, or skip the test where its library or its device is missing."""
    if name.startswith("cuda") and is_simulated() and shutil.which("g++") is None:
        pytest.skip("there is no GPU, and a simulated one needs g++")
    try:
        ops = get_ops(name, precision)
    except ConfigError as error:
        pytest.skip(str(error))
    if ops.device not in _ENTERED:
        _HERE.enter_context(ops.activate())
        _ENTERED.add(ops.device)
    return ops


def need_gpus(n: int) -> None:
    """Skip the test where there are fewer than ``n`` GPUs."""
    backend("cuda:0")
    if OPS.find("cupy").count() < n:
        pytest.skip(f"needs {n} GPUs")
