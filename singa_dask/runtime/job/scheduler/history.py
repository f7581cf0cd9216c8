"""History: the ended jobs of a scheduler."""

from __future__ import annotations

import time
from typing import NamedTuple

from singa_dask.runtime.dashboard.activity import Activity
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.scheduler.event_log import EventLog
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.job.state.job_facts import JobFacts

KEPT_JOBS = 1000
JOBS_WITH_EVENTS = 20
EVENTS_OF_A_JOB = 1000


class _Ended(NamedTuple):
    """Events of a job that ended at the time ``since``.

    ``client`` is the id of the client that started the job. ``is_heard``: whether this client has read the last event.
    """

    events: EventLog
    activity: Activity
    client: str
    since: float
    is_heard: bool = False


class History:
    """Keeps the facts of the last 1000 ended jobs, and the events and curves of the last 20 ended jobs.

    Events of older jobs are kept until the client of the job has read the last event, but at most for
    ``limit("client")`` seconds, the time for a lost client to reconnect.

    Attributes
    ----------
    facts : dict of str to JobFacts
        Facts by the id of the job, the newest last.
    """

    def __init__(self) -> None:
        self.facts: dict[str, JobFacts] = {}
        self._kept: dict[str, _Ended] = {}

    def add(self, record: JobRecord) -> None:
        """Add a job that has ended. All of its events are kept until `trim` is called."""
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
        """Add the facts of a job that ended before it began to run."""
        self.drop(facts.id)
        self.facts[facts.id] = facts

    def trim(self, job_id: str, client: str | None = None) -> None:
        """Drop all but the last events of a job, because its client has read all events.

        Does nothing if ``client`` is not the client that started the job. A driver passes no ``client``.
        """
        ended = self._kept.get(job_id)
        if ended is not None and client in (None, ended.client):
            self._kept[job_id] = ended._replace(events=ended.events.newest(EVENTS_OF_A_JOB), is_heard=True)

    def events(self, job_id: str) -> EventLog | None:
        """Return the last events of a job; None if they are no longer kept."""
        return self._kept[job_id].events if job_id in self._kept else None

    def activity(self, job_id: str) -> Activity:
        """Return the activity of a job; an empty `Activity` if it is no longer kept."""
        return self._kept[job_id].activity if job_id in self._kept else Activity()
