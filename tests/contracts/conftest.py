"""What the contract of the kernels is run with: every backend, in both precisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from tests.backends import BACKENDS, backend


@pytest.fixture(params=BACKENDS)
def ops(request: pytest.FixtureRequest) -> NumpyOps:
    return backend(request.param)


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> np.dtype[Any]:
    return np.dtype(request.param)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)
