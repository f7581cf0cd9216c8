"""Waiting: the jobs that wait in line on a scheduler for room."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from distributed import Scheduler

from singa_dask.runtime.job.job_record import History
from singa_dask.runtime.job.names import LEFT_LINE, SIGNAL_CODES, Op, topic_of


class Line:
    """Jobs in line: those of higher priority first, and of the same priority first come, first served.

    Only the first one may start. A smaller job does not pass a larger one, which might wait for ever.
    """

    def __init__(self) -> None:
        self._keys: dict[str, tuple[int, int]] = {}
        self._n_joined = 0

    def join(self, job_id: str, priority: int = 0) -> None:
        """Put a job in line, unless it is there already."""
        if job_id not in self._keys:
            self._keys[job_id] = (-priority, self._n_joined)
            self._n_joined += 1

    def leave(self, job_id: str) -> None:
        """Take a job out of the line, if it is there."""
        self._keys.pop(job_id, None)

    def ahead_of(self, job_id: str, priority: int = 0) -> list[str]:
        """Return the jobs that start before a job, in order; one that is not in line comes last of its ``priority``."""
        key = self._keys.get(job_id, (-priority, self._n_joined))
        return sorted((each for each, other in self._keys.items() if other < key), key=self._keys.__getitem__)


CLIENT_BACK_S = 10.0
"""How long a client that has lost its connection keeps its place."""
SILENT_S = 90.0
"""How long a driver may ask nothing; it may be looking for the hosts that store the records of its job."""


@dataclass
class _Waiter:
    """A job in line.

    Attributes
    ----------
    facts : dict
        As `JobRecord.facts` has them.
    client : str
        Id of the client that waits, or of that of the job's driver on the cluster.
    is_detached : bool
    asked_at : float
        When it last asked.
    end : dict
        Why it is to leave: ``reason`` and ``exit_code``. Empty: it is not.
    """

    facts: dict[str, Any]
    client: str
    is_detached: bool
    asked_at: float
    end: dict[str, Any] = field(default_factory=dict)


class Waiting:
    """Keeps the line of jobs that wait for room. Each one's driver asks again and again whether it is its turn.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    history : History

    Attributes
    ----------
    handlers : dict of str to callable
        By operation, for the scheduler.
    """

    def __init__(self, scheduler: Scheduler, history: History) -> None:
        self._scheduler = scheduler
        self._history = history
        self._line = Line()
        self._waiters: dict[str, _Waiter] = {}
        self.handlers: dict[str, Callable[..., Any]] = {Op.LEAVE: self.leave}

    def turn(
        self, facts: Mapping[str, Any], priority: int, client: str, is_detached: bool, why: str = ""
    ) -> dict[str, Any]:
        """Put a job in line if it is not there; return where it is.

        Parameters
        ----------
        facts : mapping
            ``id``, ``name``, ``owner``, ``run_url``, ``topology`` and ``train_steps``.
        priority : int
        client : str
            Id of the client that asks.
        is_detached : bool
        why : str
            Why it could not start although it was its turn.

        Returns
        -------
        dict
            ``ahead``, the jobs that start before it, and ``end``, empty or why it is to leave.
        """
        job_id = facts["id"]
        waiter = self._waiters.get(job_id)
        if waiter is None:
            self._line.join(job_id, priority)
            whole = {**_FACTS, **facts, "began": time.time(), "detached": is_detached, "priority": priority}
            waiter = self._waiters[job_id] = _Waiter(whole, client, is_detached, 0.0)
        waiter.client, waiter.asked_at, waiter.facts["reason"] = client, time.monotonic(), why
        return {"ahead": self._line.ahead_of(job_id), "end": waiter.end}

    def leave(self, job_id: str, failure: Mapping[str, Any] | None = None) -> None:
        """Take a job out of the line; ``failure`` says why if it does not start."""
        self._line.leave(job_id)
        waiter = self._waiters.pop(job_id, None)
        if waiter is not None and failure:
            state = "stopped" if waiter.end else "failed"
            how = {"state": state, "reason": failure["reason"], "exit_code": failure["exit_code"]}
            self._history.add_facts({**waiter.facts, **how, "ended": time.time()})
            self._scheduler.log_event(topic_of(job_id), {"event": LEFT_LINE})

    def has(self, job_id: str) -> bool:
        """Return whether a job is in line."""
        return job_id in self._waiters

    def is_stopped(self, job_id: str) -> bool:
        """Return whether a job in line is to leave it."""
        waiter = self._waiters.get(job_id)
        return waiter is not None and bool(waiter.end)

    def ahead_of(self, job_id: str, priority: int = 0) -> list[str]:
        """Return the jobs that start before a job, which need not be in line."""
        return self._line.ahead_of(job_id, priority)

    def stop(self, job_id: str, name: str, by: str = "") -> bool:
        """Have a job leave the line; return whether it is there."""
        waiter = self._waiters.get(job_id)
        if waiter is None:
            return False
        who = f" by {by}" if by else ""
        waiter.end = {"reason": f"stopped{who} while it waited in line", "exit_code": SIGNAL_CODES.get(name, 1)}
        return True

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return what is known of the jobs in line, by id, in order; ``place`` is 1 for the first."""
        ids = sorted(self._waiters, key=lambda job_id: len(self._line.ahead_of(job_id)))
        return {job_id: {**self._waiters[job_id].facts, "place": i + 1} for i, job_id in enumerate(ids)}

    def tick(self, is_driven: Callable[[str], bool]) -> bool:
        """Drop jobs whose drivers are gone; return whether any is left."""
        now = time.monotonic()
        for job_id, waiter in list(self._waiters.items()):
            silent_s = now - waiter.asked_at
            if waiter.is_detached:
                is_gone = not is_driven(job_id)
            else:
                is_gone = silent_s > (SILENT_S if waiter.client in self._scheduler.clients else CLIENT_BACK_S)
            if is_gone:
                self.leave(job_id, waiter.end or {"reason": "the client that waited is gone", "exit_code": 1})
        return bool(self._waiters)


_FACTS: dict[str, Any] = {
    "state": "queued",
    "step": -1,
    "steps": {},
    "metrics": {},
    "samples_per_s": 0.0,
    "ended": None,
    "exit_code": 0,
    "restarts": 0,
    "n_events": 0,
}
