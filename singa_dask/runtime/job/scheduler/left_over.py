"""LeftOver: end incarnations on Dask workers that did not end them in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import SITE, Op

if TYPE_CHECKING:
    from singa_dask.runtime.job.scheduler.jobs import Jobs


class LeftOver:
    """Finds units and snapshots of ended incarnations by the heartbeats of Dask workers, and removes them."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._ended_at = time.monotonic()
        self._looked_at: dict[str, float] = {}  # Dask worker -> time of the newest heartbeat that was examined
        self._workers: set[str] = set()  # Dask workers that still host units of ended incarnations

    def add_ended_job(self) -> None:
        """Record that a job ends now. For a while, late parts of its snapshots may still arrive."""
        self._ended_at = time.monotonic()

    def forget(self, worker: str) -> None:
        """Forget a Dask worker that is gone."""
        self._looked_at.pop(worker, None)
        self._workers.discard(worker)

    def tick(self) -> bool:
        """End old incarnations that heartbeats still report; return whether any may be left."""
        for address, known in self._jobs.scheduler.workers.items():
            if self._looked_at.get(address) == known.last_seen:  # no heartbeat has arrived since the last look
                continue
            self._looked_at[address] = known.last_seen
            self._workers.discard(address)
            for job_id, hosted in known.metrics.get(SITE, {}).items():
                record = self._jobs.records.get(job_id)
                incarnations = [(progress["process"], progress["incarnation"]) for progress in hosted]
                if record is None and not incarnations:
                    incarnations = [(None, -1)]  # no units, but parts of snapshots are left there
                for process, incarnation in incarnations:
                    if record is not None and record.state.roster.has(process, incarnation):
                        continue
                    self._workers.add(address)
                    reason = "the job continues elsewhere" if record else "the job is over"
                    facts = {"incarnation": incarnation, "process": process, "forget": record is None}
                    self._jobs.scheduler.loop.add_callback(
                        self._jobs.sites.ask, address, limit("answer"), Op.END, job_id=job_id, reason=reason, **facts
                    )
        is_new = time.monotonic() - self._ended_at < limit("answer")
        return is_new or bool(self._workers)
