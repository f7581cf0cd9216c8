"""What the contract of the kernels is run with: every backend, in both precisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from tests.backends import BACKENDS, backend
from tests.contracts.arrays import BASES


@pytest.fixture(params=BACKENDS)
def ops(request: pytest.FixtureRequest) -> Iterator[NumpyOps]:
    yield backend(request.param)
    BASES.clear()


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> np.dtype[Any]:
    return np.dtype(request.param)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)
