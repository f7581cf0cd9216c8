"""Departures: takes the units of Dask workers elsewhere before these close."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from distributed import Scheduler
from tornado.gen import sleep

from singa_dask.runtime.job import events as ev
from singa_dask.runtime.job.job_record import JobRecord

__all__ = ["Departures"]

TIMEOUT_S = 12.0
LOOK_S = 0.1
RETIRE = "retire_workers"


class Departures:
    """Moves units away from Dask workers that are about to close, or to be retired by Dask.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    jobs : mapping of str to JobRecord
        The jobs on the cluster, by id.
    handle : callable
        (job id, event) hands an event to a job.
    """

    def __init__(self, scheduler: Scheduler, jobs: Mapping[str, JobRecord], handle: Callable[[str, Any], None]) -> None:
        self._scheduler = scheduler
        self._jobs = jobs
        self._handle = handle
        self._retire = scheduler.handlers[RETIRE]
        # Dask's own operation, with a step before it
        scheduler.handlers[RETIRE] = self.retire

    def announce(self, worker: str) -> None:
        """Take the units of a Dask worker elsewhere; does not wait."""
        for job_id in list(self._jobs):
            self._handle(job_id, ev.Leaving(worker))

    async def wait(self, worker: str) -> None:
        """Wait until jobs train without a Dask worker, which may have the only copy of a snapshot; not for ever."""
        await self._wait({worker})

    async def retire(self, **given: Any) -> Any:
        """Retire Dask workers, as Dask does, once their units are elsewhere."""
        names = given.get("names") or ()
        leaving = {*(given.get("workers") or ())}
        leaving |= {address for address, known in self._scheduler.workers.items() if known.name in names}
        for address in sorted(leaving):
            self.announce(address)
        await self._wait(leaving)
        return await self._retire(**given)

    async def _wait(self, leaving: Collection[str]) -> None:
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end and any(each.state.needs(leaving) for each in list(self._jobs.values())):
            await sleep(LOOK_S)
