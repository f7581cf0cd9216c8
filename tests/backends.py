"""The backends of kernels that tests run on, where they are installed; a new one is an entry here."""

from __future__ import annotations

import pytest

from singa_dask.errors import ConfigError
from singa_dask.ops import OPS, NumpyOps, get_ops

__all__ = ["BACKENDS", "backend"]

BACKENDS = ["numpy", "onednn"]


def backend(name: str) -> NumpyOps:
    """Return the kernels of a backend, or skip the test where its library is missing."""
    OPS.find(name)
    try:
        return get_ops(name)
    except ConfigError as error:
        pytest.skip(str(error))
