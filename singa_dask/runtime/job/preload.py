"""What a Dask scheduler loads with ``--preload singa_dask.runtime``: it then has `Jobs` before the first job."""

from __future__ import annotations

from typing import Any

from distributed import Scheduler

from singa_dask.runtime.job.jobs import Jobs


async def dask_setup(server: Any) -> None:
    """Add `Jobs` to a scheduler that starts, as the first job would; other servers stay as they are."""
    if isinstance(server, Scheduler):
        await server.register_scheduler_plugin(Jobs(), idempotent=True)
