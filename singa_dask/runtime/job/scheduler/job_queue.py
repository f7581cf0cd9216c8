"""JobQueue: the jobs that wait until they fit on the cluster."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import Scheduler

from singa_dask.conf import ClusterConf
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import stopped
from singa_dask.runtime.job.scheduler.history import History
from singa_dask.runtime.job.state.job_facts import JobFacts
from singa_dask.runtime.planning.worker_choice import shortage

QUEUED = "while it was queued"
KEPT_TICKETS = 10_000


@dataclass
class _Waiter:
    """A queued job.

    Attributes
    ----------
    rank : tuple of (float, int)
        Position key: jobs with a lower rank go first.
    client : str
        Id of the client that waits.
    ticket : str
        See `JobQueue.turn`.
    asked_at : float
        Time of the client's last call of `JobQueue.turn`.
    end : dict
        ``reason`` and ``exit_code`` of a stopped job, which must leave the queue; empty for other jobs.
    short : str
        Why the job would not fit even on an idle cluster with the Dask workers in ``judged_for``; empty if it would.
    judged_for : list of int, optional
        Numbers of threads of the Dask workers when ``short`` was found.
    """

    rank: tuple[float, int]
    facts: JobFacts
    client: str
    ticket: str
    cluster: ClusterConf
    asked_at: float = 0.0
    end: dict[str, Any] = field(default_factory=dict)
    short: str = ""
    judged_for: list[int] | None = None


class JobQueue:
    """Keeps the queue of jobs that wait until they fit on the cluster.

    The queue is sorted by priority, then by time of arrival. Only the first job may start. If smaller jobs could
    overtake a large job, the large job might wait for ever. Clients call `turn` repeatedly to learn whether it is their
    turn; `DetachedJobs` starts detached jobs.
    """

    def __init__(self, scheduler: Scheduler, history: History) -> None:
        self._scheduler = scheduler
        self._history = history
        self._waiters: dict[str, _Waiter] = {}
        self._left: deque[str] = deque(maxlen=KEPT_TICKETS)
        self._n_joined = 0

    def turn(
        self,
        facts: Mapping[str, Any],
        client: str,
        why: str = "",
        ticket: str = "",
        cluster: Mapping[str, Any] | None = None,
        rank: tuple[float, int] | None = None,
    ) -> dict[str, Any]:
        """Add a job to the queue unless it is already queued; return the jobs before it.

        Parameters
        ----------
        facts : mapping
            Fields of `JobFacts` for the job.
        client : str
            Id of the client that asks.
        why : str
            Why the job could not start although it was first in the queue.
        ticket : str
            Random text that identifies this stay in the queue. A late call with the ticket of a job that has left the
            queue is ignored.
        cluster : mapping, optional
            The ``cluster`` block of the job.
        rank : tuple of (float, int), optional
            Rank of a restored job. By default the job comes after the queued jobs of its priority.

        Returns
        -------
        dict
            ``ahead``: ids of the jobs before this job. ``short``: why the job would not fit even on an idle cluster.
            ``end``: why the job must leave the queue; empty if it may stay.
        """
        job_id = facts["id"]
        waiter = self._waiters.get(job_id)
        if waiter is None:
            if ticket and ticket in self._left:
                return {"ahead": [], "short": "", "end": {}}
            whole = replace(JobFacts(**facts), began=time.time())
            conf, rank = ClusterConf.model_validate(cluster or {}), rank or (-whole.priority, self._n_joined)
            waiter = self._waiters[job_id] = _Waiter(rank, whole, client, ticket, conf)
            self._n_joined += 1
        waiter.client, waiter.asked_at, waiter.facts = client, time.monotonic(), replace(waiter.facts, reason=why)
        ahead = self.ahead_of(job_id)
        return {"ahead": ahead, "short": self._shortage(waiter) if ahead else "", "end": waiter.end}

    def _shortage(self, waiter: _Waiter) -> str:
        """Return why a job would not fit even on an idle cluster; empty if it would."""
        wanted = waiter.cluster.workers
        threads = [w.nthreads for w in self._scheduler.workers.values() if wanted.fits(str(w.name), w.resources)]
        if waiter.judged_for != threads:
            waiter.judged_for, waiter.short = threads, shortage(waiter.cluster, threads)
        return waiter.short

    def leave(self, job_id: str, failure: Mapping[str, Any] | None = None) -> None:
        """Remove a job from the queue. Pass a ``failure`` if the job does not start."""
        waiter = self._waiters.pop(job_id, None)
        if waiter is not None:
            self._left.append(waiter.ticket)
        if waiter is not None and failure:
            state = "stopped" if waiter.end else "failed"
            how = {"state": state, "reason": failure["reason"], "exit_code": failure["exit_code"]}
            self._history.add_facts(replace(waiter.facts, **how, ended=time.time()))

    def has(self, job_id: str) -> bool:
        """Return whether a job is queued."""
        return job_id in self._waiters

    def is_stopped(self, job_id: str) -> bool:
        """Return whether a queued job was stopped."""
        waiter = self._waiters.get(job_id)
        return waiter is not None and bool(waiter.end)

    def ahead_of(self, job_id: str, priority: int = 0) -> list[str]:
        """Return the jobs before a job, in order.

        A job that is not queued counts as the last of its ``priority``.
        """
        waiter = self._waiters.get(job_id)
        rank = waiter.rank if waiter else (-priority, self._n_joined)
        return [other for other in self._in_order() if self._waiters[other].rank < rank]

    def arrival_of(self, job_id: str) -> int:
        """Return a number that orders jobs by time of arrival; 0 if the job is not queued.

        Jobs from an earlier scheduler have negative numbers.
        """
        return self._waiters[job_id].rank[1] if job_id in self._waiters else 0

    @property
    def first(self) -> str:
        """Id of the first job; empty if no job is queued."""
        return min(self._waiters, key=lambda job_id: self._waiters[job_id].rank, default="")

    def clusters(self) -> list[ClusterConf]:
        """Return the ``cluster`` blocks of the queued jobs, in order."""
        return [self._waiters[job_id].cluster for job_id in self._in_order()]

    def note(self, job_id: str, why: str) -> None:
        """Record why the first job in the queue has not started."""
        if waiter := self._waiters.get(job_id):
            waiter.facts = replace(waiter.facts, reason=why)

    def _in_order(self) -> list[str]:
        return sorted(self._waiters, key=lambda job_id: self._waiters[job_id].rank)

    def stop(self, job_id: str, name: str, by: str = "") -> bool:
        """Remove a job from the queue when its client next calls `turn`; return whether the job is queued."""
        waiter = self._waiters.get(job_id)
        if waiter is None:
            return False
        waiter.end = stopped(QUEUED, name, by)
        return True

    def facts(self) -> dict[str, JobFacts]:
        """Return the facts of the queued jobs, by id, in order."""
        facts = {}
        for i, job_id in enumerate(self._in_order()):
            waiter = self._waiters[job_id]
            # the first job gets its reason from an attempt to start it
            reason = self._shortage(waiter) if i else waiter.facts.reason
            facts[job_id] = replace(waiter.facts, place=i + 1, reason=reason)
        return facts

    def tick(self) -> bool:
        """Drop jobs whose clients are gone; return whether any job is left."""
        now = time.monotonic()
        for job_id, waiter in list(self._waiters.items()):
            may_s = limit("waiter" if waiter.client in self._scheduler.clients else "client")
            if not waiter.facts.detached and now - waiter.asked_at > may_s:
                self.leave(job_id, waiter.end or {"reason": "the client that waited is gone", "exit_code": 1})
        return bool(self._waiters)
