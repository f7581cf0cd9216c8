"""Reading ahead in tests: their jobs have few steps, of records so small that a loader would read a thousand ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from singa_dask.data.loading import memory_budget

__all__ = ["dask_setup", "read_little_ahead"]


def read_little_ahead(set_attribute: Callable[[Any, str, Any], None]) -> None:
    """Let loaders read half a MiB ahead; takes the ``setattr`` of pytest's monkeypatch."""
    set_attribute(memory_budget, "BUFFER_BYTES", 1 << 18)
    set_attribute(memory_budget, "BATCHES_BYTES", 1 << 19)


def dask_setup(worker: object) -> None:
    """Read little ahead in a Dask worker: this module is for its ``--preload``."""
    read_little_ahead(setattr)
