"""History: the jobs that have ended on a scheduler."""

from __future__ import annotations

from typing import Any

from singa_dask.runtime.dashboard.activity import Activity
from singa_dask.runtime.job.job_record import EventLog, JobRecord

__all__ = ["History"]

KEPT_JOBS = 1000
JOBS_WITH_EVENTS = 20
EVENTS_OF_A_JOB = 1000


class History:
    """Keeps the facts of the last 1000 jobs that have ended, and the last events and the curves of the newest 20.

    Attributes
    ----------
    facts : dict of str to dict
        By id, the newest last: see `JobRecord.facts`.
    """

    def __init__(self) -> None:
        self.facts: dict[str, dict[str, Any]] = {}
        self._events: dict[str, EventLog] = {}
        self._activities: dict[str, Activity] = {}

    def add(self, record: JobRecord, whole: bool = False) -> None:
        """Keep a job that is over; ``whole``: with all of its events, until `trim`."""
        job_id = record.spec.job_id
        self.drop(job_id)
        self.facts[job_id] = record.facts()
        self._events[job_id] = record.events if whole else record.events.newest(EVENTS_OF_A_JOB)
        self._activities[job_id] = record.activity
        limits = ((self.facts, KEPT_JOBS), (self._events, JOBS_WITH_EVENTS), (self._activities, JOBS_WITH_EVENTS))
        for kept, limit in limits:
            while len(kept) > limit:
                del kept[next(iter(kept))]

    def drop(self, job_id: str) -> None:
        """Forget a job, as a new one with its id begins."""
        self.facts.pop(job_id, None)
        self._events.pop(job_id, None)
        self._activities.pop(job_id, None)

    def add_facts(self, facts: dict[str, Any]) -> None:
        """Keep the facts of a job that has ended before it began."""
        self.drop(facts["id"])
        self.facts[facts["id"]] = facts

    def trim(self, job_id: str) -> None:
        """Keep only the last events of a job."""
        if job_id in self._events:
            self._events[job_id] = self._events[job_id].newest(EVENTS_OF_A_JOB)

    def events(self, job_id: str) -> EventLog | None:
        """Return the last events of a job, if they are still kept."""
        return self._events.get(job_id)

    def activity(self, job_id: str) -> Activity:
        """Return the activity of a job; an empty one if it is not kept any more."""
        return self._activities.get(job_id) or Activity()
