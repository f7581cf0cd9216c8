"""JobRecord: what the scheduler knows of a job beside its state, and what it keeps of jobs that have ended."""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any

from distributed import Future

from singa_dask.comm.secret import Secret
from singa_dask.redaction import redact
from singa_dask.runtime.dashboard.activity import Activity
from singa_dask.runtime.job.job_state import JobState
from singa_dask.runtime.job.report import MetricsMerger, exit_code_of, outcome
from singa_dask.runtime.job.spec import JobSpec
from singa_dask.runtime.planning.placement import plan_processes

KEPT_EVENTS = 10_000
PAGE = 200
"""Number of events that are sent at once: the scheduler does nothing else meanwhile."""
NUMBER = itemgetter("n")


class JobRecord:
    """A job on the scheduler.

    Parameters
    ----------
    spec : JobSpec

    Attributes
    ----------
    state : JobState
        Decides what happens next.
    secret : Secret
        Of the job's endpoints. It goes to the Dask workers that host units, and to nobody else.
    futures : dict of Future to (int, int)
        Life and process of each task that runs units.
    stalls : Stalls
    merger : MetricsMerger
    began : float
        Seconds since the epoch.
    activity : Activity
        Curves, and what workers do.
    events : EventLog
        The newest events, as followers get them.
    """

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.state = JobState(spec)
        self.secret = Secret.new()
        self.futures: dict[Future[Any], tuple[int, int]] = {}
        self.stalls = Stalls()
        self.merger = MetricsMerger(self.state.cluster.nworkers_per_group)
        self.began, self._began_at = time.time(), time.monotonic()
        self.activity = Activity()
        self.events = EventLog(KEPT_EVENTS)
        self._n_events = 0
        self._train_steps = int(json.loads(spec.job)["train_steps"])
        self._topology = plan_processes(self.state.cluster).describe()

    def add_event(self, what: Mapping[str, Any]) -> dict[str, Any] | None:
        """Keep an event; return it with its number, as followers get it, or None if it adds nothing.

        Metrics of a worker are held back until those of its whole group are there. Steps have no number, and are not
        kept: newer ones come soon.
        """
        event = {"unit": "driver", "time": time.time(), **what}
        if event["event"] == "over":
            self._complete(event)
        elif event["event"] == "metrics":
            merged = self.merger.add(event)
            if merged is None:
                return None
            event = merged
        self.activity.add_event(event)
        if event["event"] == "steps":
            return event
        event["n"] = self._n_events
        self._n_events += 1
        self.events.append(event)
        return event

    def _complete(self, over: dict[str, Any]) -> None:
        """Add to the last event what is known here."""
        last_step = self.merger.last_step
        over |= {"latest": self.merger.latest, "last_step": last_step, "seconds": time.monotonic() - self._began_at}
        for report in over["reports"].values():
            if report["state"] == "lost":  # it may have told its step in metrics only
                report["step"] = max(report["step"], last_step)

    def facts(self) -> dict[str, Any]:
        """Return what people ask of a job, as plain values.

        Returns
        -------
        dict
            ``id``, ``name``, ``owner``, ``run_url``; ``state``: starting, running, restarting, stopping, done, failed
            or stopped; ``step``: of the slowest worker group, -1 before the first; ``train_steps``, as the job says;
            ``steps`` of each worker group by its number as a str; ``metrics``: the latest of each phase;
            ``samples_per_s``, summed over the worker groups; ``began`` and ``ended``, seconds since the epoch, None
            while it runs; ``reason`` why it ended, empty if nothing is to be said; ``exit_code``, None while it runs;
            ``detached``; ``priority``; ``restarts``; ``topology`` as in ``summary.json``; ``n_events``.
        """
        spec, state, merger = self.spec, self.state, self.merger
        facts: dict[str, Any] = {
            "id": spec.job_id,
            "name": spec.name,
            "owner": spec.owner,
            "run_url": redact(spec.run_url),
            "state": self._state(),
            "step": max(min(state.steps.values(), default=-1), merger.last_step),
            "train_steps": self._train_steps,
            "steps": dict(state.steps),
            "metrics": dict(merger.latest),
            "samples_per_s": round(sum(merger.speeds.values()), 1),
            "began": self.began,
            "ended": None,
            "reason": "",
            "exit_code": None,
            "detached": bool(spec.driver),
            "priority": spec.priority,
            "restarts": state.n_restarts,
            "topology": self._topology,
            "n_events": self._n_events,
        }
        over = next(reversed(self.events), None)
        if over is not None and over["event"] == "over":
            facts["state"], facts["step"], facts["reason"] = outcome(over)
            facts["ended"], facts["exit_code"] = over["time"], exit_code_of(facts["state"], over)
        return facts

    def _state(self) -> str:
        phase = self.state.phase
        if self.state.is_stopping:
            return "stopping"
        if phase == "running":
            return "running"
        return "restarting" if self.state.life > 0 or phase == "placing" else "starting"


class EventLog:
    """Keeps the newest events of a job, in order of the key ``n``, which numbers them from 0.

    Metrics and messages below warnings, which come with the steps, do not push out what comes seldom: warnings,
    errors, restarts, checkpoints.

    Parameters
    ----------
    limit : int
        Number of events that are kept of either kind.
    """

    def __init__(self, limit: int) -> None:
        self._frequent: deque[dict[str, Any]] = deque(maxlen=limit)
        self._rare: deque[dict[str, Any]] = deque(maxlen=limit)

    def __reversed__(self) -> Iterator[dict[str, Any]]:
        return merge(reversed(self._frequent), reversed(self._rare), key=NUMBER, reverse=True)

    def append(self, event: dict[str, Any]) -> None:
        """Add the next event."""
        (self._frequent if _is_frequent(event) else self._rare).append(event)

    def after(self, n: int) -> list[dict[str, Any]]:
        """Return the first `PAGE` events with numbers higher than ``n``."""
        found = []
        for events in (self._frequent, self._rare):
            start = bisect_right(events, n, key=NUMBER)
            found.append(islice(events, start, start + PAGE))
        return list(islice(merge(*found, key=NUMBER), PAGE))

    def newest(self, limit: int) -> EventLog:
        """Return a log with the newest events of either kind."""
        log = EventLog(limit)
        log._frequent.extend(self._frequent)
        log._rare.extend(self._rare)
        return log


def _is_frequent(event: Mapping[str, Any]) -> bool:
    kind = event["event"]
    return kind == "metrics" or (kind == "log" and event.get("level") not in ("WARNING", "ERROR", "CRITICAL"))


STALL_S = 60.0
"""After this time without a step a warning is given; again each time that it has doubled."""


class Stalls:
    """Watches the steps of one job."""

    def __init__(self) -> None:
        self._steps: Mapping[str, int] = {}
        self._since: float | None = None
        self._next = STALL_S

    def look(self, steps: Mapping[str, int], waits: Mapping[str, tuple[str, float]], now: float) -> str:
        """Return a warning if the job has made no step for long; else an empty string.

        Parameters
        ----------
        steps : mapping of str to int
            Step of each worker group.
        waits : mapping of str to (str, float)
            What each unit waits for, and for how many seconds.
        now : float
            Seconds.
        """
        if self._since is None or steps != self._steps:
            self._steps, self._since, self._next = dict(steps), now, STALL_S
        still = now - self._since
        if still < self._next:
            return ""
        self._next *= 2
        longest = sorted(waits.items(), key=lambda item: -item[1][1])
        said = "; ".join(f"{unit} waits for {what} ({seconds:.0f} s)" for unit, (what, seconds) in longest)
        return f"no step for {still:.0f} s. {said or 'No unit waits: a step, a test or a start takes long'}."


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
