"""Tells which Dask workers have fallen silent, and takes units elsewhere before Dask workers close."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from distributed import Scheduler
from distributed.scheduler import heartbeat_interval
from tornado.gen import sleep

from singa_dask.runtime.job import events as ev
from singa_dask.runtime.job.job_record import JobRecord

SILENT_S = 5.0
"""A Dask worker that has not been heard of for so long is given up. Its heartbeats come each half second, and more
rarely in clusters of more than ten workers."""
MAX_LOOK_S = 1.0
"""No more of the time between two looks counts as silence: a scheduler that was held up itself has heard of nobody."""


class Heartbeats:
    """Counts for how long nothing has come from each Dask worker.

    It compares the times of heartbeats, which are those of a clock that may be set, only for being equal.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._looked_at = time.monotonic()
        # time of the last heartbeat, and seconds without another one
        self._silence: dict[str, tuple[float, float]] = {}

    def look(self) -> None:
        """Count the time since the last look for Dask workers without a heartbeat in between."""
        now = time.monotonic()
        passed, self._looked_at = min(now - self._looked_at, MAX_LOOK_S), now
        silence = {}
        for address, known in self._scheduler.workers.items():
            last_seen, seconds = self._silence.get(address, (None, 0.0))
            silence[address] = known.last_seen, seconds + passed if known.last_seen == last_seen else 0.0
        self._silence = silence

    def is_silent(self, address: str) -> bool:
        """Return whether a Dask worker is on the cluster, and has not been heard of for too long."""
        known = self._scheduler.workers.get(address)
        last_seen, seconds = self._silence.get(address, (0.0, 0.0))
        limit = max(SILENT_S, 3 * heartbeat_interval(len(self._scheduler.workers)))
        return known is not None and known.last_seen == last_seen and seconds > limit


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
