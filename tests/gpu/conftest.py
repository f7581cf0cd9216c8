"""The device that the tests of this room compute on."""

from __future__ import annotations

import pytest

from singa_dask.ops import NumpyOps
from tests.backends import backend
from tests.net.conftest import feed_layer

__all__ = ["feed_layer", "gpu"]


@pytest.fixture
def gpu() -> NumpyOps:
    """Give kernels of the first GPU, or of a simulated one, which this thread may call."""
    return backend("cuda:0")
