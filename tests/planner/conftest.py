"""A small perceptron, and costs that are measured once for a module."""

from __future__ import annotations

import pytest

from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, loads
from tests.cli.conftest import TINY


@pytest.fixture(scope="session")
def tiny() -> JobConf:
    """Return a job of batches of 20 with one fully connected layer, without tests."""
    return loads(TINY, "tiny", ["test_freq=0", "disp_freq=0"], registries=REGISTRIES).job
