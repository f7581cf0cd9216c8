"""JobRecord: what the scheduler knows of a job beside its state: tasks, metrics, and the newest events."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from distributed import Future

from singa_dask.comm.secret import Secret
from singa_dask.runtime.dashboard.activity import Activity
from singa_dask.runtime.job.event_log import EventLog
from singa_dask.runtime.job.job_state import JobState
from singa_dask.runtime.job.report import MetricsMerger, exit_code_of, outcome
from singa_dask.runtime.job.spec import JobSpec
from singa_dask.runtime.job.stalls import Stalls
from singa_dask.runtime.planning.placement import plan_processes

__all__ = ["JobRecord"]

KEPT_EVENTS = 10_000


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
            ``detached``; ``restarts``; ``topology`` as in ``summary.json``; ``n_events``.
        """
        spec, state, merger = self.spec, self.state, self.merger
        facts: dict[str, Any] = {
            "id": spec.job_id,
            "name": spec.name,
            "owner": spec.owner,
            "run_url": spec.run_url,
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
