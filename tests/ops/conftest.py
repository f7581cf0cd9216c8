"""The backends that pass the contract of the kernels: a new one is an entry here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps, get_ops

BACKENDS = ["numpy"]


@pytest.fixture(params=BACKENDS)
def ops(request: pytest.FixtureRequest) -> NumpyOps:
    return get_ops(request.param)


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> np.dtype[Any]:
    return np.dtype(request.param)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)
