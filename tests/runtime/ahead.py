"""Reading ahead in tests: their jobs have few steps, of records so small that a loader would read a thousand ahead."""

from __future__ import annotations

from functools import partial

from singa_dask.data import Loader
from singa_dask.layers import input as input_layer

__all__ = ["LittleAhead", "dask_setup"]

LittleAhead = partial(Loader, bytes_bound=1 << 19)


def dask_setup(worker: object) -> None:
    """Read little ahead in a Dask worker: this module is for its ``--preload``."""
    vars(input_layer)["Loader"] = LittleAhead
