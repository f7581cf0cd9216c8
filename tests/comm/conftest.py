"""What tests of transports open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Close what a test has opened."""
    with ExitStack() as opened:
        yield opened
