"""History: the jobs of a scheduler that have ended."""

from __future__ import annotations

import time
from typing import NamedTuple

from singa_dask.runtime.dashboard.activity import Activity
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.scheduler.event_log import EventLog
from singa_dask.runtime.job.scheduler.job_facts import JobFacts
from singa_dask.runtime.job.scheduler.record import JobRecord

KEPT_JOBS = 1000
JOBS_WITH_EVENTS = 20
EVENTS_OF_A_JOB = 1000


class _Ended(NamedTuple):
    """A job that ended at time ``since``, started by ``client``."""

    events: EventLog
    activity: Activity
    client: str
    since: float
    is_heard: bool = False


class History:
    """Keeps the facts of the 1000 jobs that ended last, and events and curves of the 20 newest ones.

    Events of other jobs are kept while their clients have not read the last event. A lost client may come back within
    ``limit("client")``.

    Attributes
    ----------
    facts : dict of str to JobFacts
        Facts by the id of the job, the newest last.
    """

    def __init__(self) -> None:
        self.facts: dict[str, JobFacts] = {}
        self._kept: dict[str, _Ended] = {}

    def add(self, record: JobRecord) -> None:
        """Keep a job that has ended, with all of its events until `trim` is called."""
        job_id = record.spec.job_id
        self.drop(job_id)
        self.facts[job_id] = record.facts()
        now = time.monotonic()
        self._kept[job_id] = _Ended(record.events, record.activity, record.spec.client, now)
        while len(self.facts) > KEPT_JOBS:
            del self.facts[next(iter(self.facts))]
        heard = [each for each, ended in self._kept.items() if ended.is_heard or now - ended.since > limit("client")]
        for old in heard[: max(len(self._kept) - JOBS_WITH_EVENTS, 0)]:
            del self._kept[old]

    def drop(self, job_id: str) -> None:
        """Forget a job, because a new job with its id begins."""
        self.facts.pop(job_id, None)
        self._kept.pop(job_id, None)

    def add_facts(self, facts: JobFacts) -> None:
        """Keep the facts of a job that ended before it began to run."""
        self.drop(facts.id)
        self.facts[facts.id] = facts

    def trim(self, job_id: str, client: str | None = None) -> None:
        """Drop all but the last events of a job, because its driver, or its ``client``, has read them all."""
        ended = self._kept.get(job_id)
        if ended is not None and client in (None, ended.client):
            self._kept[job_id] = ended._replace(events=ended.events.newest(EVENTS_OF_A_JOB), is_heard=True)

    def events(self, job_id: str) -> EventLog | None:
        """Return the last events of a job, if they are still kept."""
        return self._kept[job_id].events if job_id in self._kept else None

    def activity(self, job_id: str) -> Activity:
        """Return the activity of a job; an empty one if it is no longer kept."""
        return self._kept[job_id].activity if job_id in self._kept else Activity()
