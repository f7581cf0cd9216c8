"""JobRecord: the state of one job on the scheduler."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from distributed import Future
from tornado.locks import Condition

from singa_dask.redaction import redact
from singa_dask.runtime.dashboard.activity import Activity
from singa_dask.runtime.job.job_end import JobEnd, exit_code_of, outcome
from singa_dask.runtime.job.scheduler.event_log import PAGE, EventLog
from singa_dask.runtime.job.scheduler.evidence import Evidence
from singa_dask.runtime.job.scheduler.group_metrics import MetricsMerger
from singa_dask.runtime.job.scheduler.stalls import Stalls
from singa_dask.runtime.job.state.job_facts import JobFacts
from singa_dask.runtime.job.state.job_state import JobState
from singa_dask.runtime.job.state.submission import JobSpec
from singa_dask.runtime.planning.layout import plan_processes

logger = logging.getLogger(__name__)

KEPT_EVENTS = 10_000


class JobRecord:
    """A job on the scheduler.

    Attributes
    ----------
    token : str
        Secret that protects the endpoints of the job. Only Dask workers that host units of the job get it.
    placements : dict of int to str
        For the newest incarnation, the JSON that all its processes get; see `Sites.share`.
    futures : dict of Future to (int, int)
        Incarnation and process of each Dask task that runs units.
    n_client_losses : int
        How often the connection to the job's client was lost.
    began : float
        Start of the job, in seconds since the epoch.
    activity : Activity
        Curves of the job, and recent activity of its workers.
    """

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.state = JobState(spec)
        self.token = secrets.token_hex(16)
        self.placements: dict[int, str] = {}
        self.futures: dict[Future[Any], tuple[int, int]] = {}
        self.stalls = Stalls()
        self.evidence = Evidence()
        self.merger = MetricsMerger(self.state.cluster.nworkers_per_group)
        self.began, self._began_at = time.time(), time.monotonic()
        self.activity = Activity()
        self.n_client_losses = 0
        self._is_shown = True
        self.events = EventLog(KEPT_EVENTS)
        self._n_events = 0
        self._steps: dict[str, Any] = {}
        self._changed = Condition()
        self._job: dict[str, Any] = json.loads(spec.job)
        self._topology = plan_processes(self.state.cluster).describe()

    def add_event(self, what: Mapping[str, Any]) -> None:
        """Give an event a number, and keep it for followers.

        Metrics are kept as means, once all workers of a group have reported. Only the newest event that
        reports steps is kept, and it has no number.
        """
        event = {"unit": "driver", "time": time.time(), **what}
        if event["event"] == "over":
            self._complete(event)
            if self._steps:  # number the newest steps, so that clients that follow the job after its end get them, too
                self._number(self._steps)
                self._steps = {}
        elif event["event"] == "metrics":
            merged = self.merger.add(event)
            if merged is None:
                return
            event = merged
        self.show(self.activity.add_event, event)
        if event["event"] == "steps":
            self._steps = {**event, "steps": {**self._steps.get("steps", {}), **event["steps"]}}
        else:
            self._number(event)
        self._changed.notify_all()

    def show(self, take: Callable[..., None], *given: Any) -> None:
        """Call ``take(*given)`` to update the `activity`. An error ends these updates, but not the job."""
        if self._is_shown:
            try:
                take(*given)
            except Exception:
                self._is_shown = False
                logger.exception("%s: curves and rates of the job are not shown any more", self.spec.job_id)

    def _number(self, event: Mapping[str, Any]) -> None:
        self.events.append({**event, "n": self._n_events})
        self._n_events += 1

    async def next_events(self, after: int, wait_s: float) -> list[dict[str, Any]]:
        """Return the events whose numbers are higher than ``after``; wait for them as `Jobs.events` does."""
        events = self.events.after(after)
        if not events and wait_s:
            await self._changed.wait(timedelta(seconds=wait_s))
            events = self.events.after(after)
        return [*events, self._steps] if self._steps and wait_s and len(events) < PAGE else events

    def _complete(self, over: dict[str, Any]) -> None:
        """Add metrics, steps and times to the last event of the job."""
        last_step = self.merger.last_step
        over |= {"latest": self.merger.latest, "last_step": last_step, "samples_per_s": self.merger.samples_per_s}
        over["seconds"] = time.monotonic() - self._began_at
        for report in over["reports"].values():
            if report["state"] == "lost":  # the last metrics of the unit may be of a later step than its heartbeat
                report["step"] = max(report["step"], last_step)

    def facts(self) -> JobFacts:
        """Return the facts that users see."""
        spec, state, merger = self.spec, self.state, self.merger
        facts = JobFacts(
            id=spec.job_id,
            name=self._job["name"],
            owner=spec.owner,
            run_url=redact(spec.run_url),
            topology=self._topology,
            train_steps=self._job["train_steps"],
            state=self._state(),
            step=max(min(state.steps.values(), default=-1), merger.last_step),
            steps=dict(state.steps),
            metrics=dict(merger.latest),
            samples_per_s=merger.samples_per_s,
            began=self.began,
            exit_code=None,
            detached=bool(spec.driver),
            priority=spec.priority,
            restarts=len(state.restarts),
            n_events=self._n_events,
        )
        over = next(reversed(self.events), None)
        if over is None or over["event"] != "over":
            return facts
        end = JobEnd.of(over)
        how, step, reason = outcome(end)
        exit_code = exit_code_of(how, end)
        return replace(facts, state=how, step=step, reason=reason, ended=over["time"], exit_code=exit_code)

    def _state(self) -> str:
        phase = self.state.phase
        if self.state.is_stopping:
            return "stopping"
        if phase == "running":
            return "running"
        return "restarting" if self.state.incarnation > 0 or phase == "placing" else "starting"
