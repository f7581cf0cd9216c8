"""``dask-scheduler`` of Dask, with the page of jobs from the start."""

from __future__ import annotations

from copy import copy
from typing import Any

import dask.config
from distributed.cli.dask_scheduler import main

PRELOAD = "singa_dask.runtime"
dask_start: Any = main.callback


def start(preload: tuple[str, ...], **options: Any) -> Any:
    """Start a scheduler as `dask_start` does, with our module among the preloads."""
    loaded = preload or dask.config.get("distributed.scheduler.preload")
    loaded = [loaded] if isinstance(loaded, str) else [*loaded]
    return dask_start(preload=loaded if PRELOAD in loaded else [*loaded, PRELOAD], **options)


scheduler = copy(main)
scheduler.callback = start
