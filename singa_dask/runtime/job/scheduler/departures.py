"""Departures: move the units of Dask workers away before they close."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from tornado import gen

from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.state import events as ev

if TYPE_CHECKING:
    from singa_dask.runtime.job.scheduler.jobs import Jobs

LOOK_S = 0.1
RETIRE = "retire_workers"


class Departures:
    """Moves units away from Dask workers that are about to close, also before Dask retires them."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._retire = jobs.scheduler.handlers[RETIRE]

    def announce(self, worker: str) -> None:
        """Begin to move the units of a Dask worker that is about to close."""
        for job_id in list(self._jobs.records):
            self._jobs.handle(job_id, ev.Leaving(worker))

    async def retire(self, **options: Any) -> Any:
        """Retire Dask workers as Dask does, after their units have moved to other Dask workers."""
        names = options.get("names") or ()
        leaving = {*(options.get("workers") or ())}
        leaving |= {address for address, known in self._jobs.scheduler.workers.items() if known.name in names}
        for address in sorted(leaving):
            self.announce(address)
        await self.wait(leaving)
        return await self._retire(**options)

    async def wait(self, leaving: Collection[str]) -> None:
        """Wait until no job needs units or snapshots on the leaving Dask workers.

        The wait takes at most ``limit("departed")``.
        """
        end = time.monotonic() + limit("departed")
        records = self._jobs.records
        while time.monotonic() < end and any(record.state.needs(leaving) for record in list(records.values())):
            await gen.sleep(LOOK_S)
