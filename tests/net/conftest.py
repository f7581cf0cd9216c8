"""The input layer that the nets of these tests read."""

from __future__ import annotations

import pytest

from singa_dask.layers import LAYERS
from tests.net.feed import Feed

__all__ = ["feed_layer"]


@pytest.fixture(autouse=True)
def feed_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``type: Feed`` known for the time of a test."""
    monkeypatch.setitem(LAYERS._classes, "Feed", Feed)
