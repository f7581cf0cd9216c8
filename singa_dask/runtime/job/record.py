"""What is known of a job: its record on the scheduler, the history of those that have ended, and the result."""

from __future__ import annotations

import json
import logging
import math
import secrets
import time
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from distributed import Future
from distributed.comm.addressing import get_address_host
from tornado.locks import Condition

from singa_dask.conf import ClusterConf
from singa_dask.layers.metrics import add_totals
from singa_dask.redaction import redact
from singa_dask.runtime.dashboard.activity import Activity
from singa_dask.runtime.job.events import JobSpec
from singa_dask.runtime.job.job_state import JobState
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import SIGNAL_CODES
from singa_dask.runtime.planning.layout import Layout, plan_processes
from singa_dask.runtime.units.learning import facts_of_workers
from singa_dask.runtime.units.server import MORE
from singa_dask.shown import plural

logger = logging.getLogger(__name__)


class MetricsMerger:
    """Averages the metrics of the workers of each group, once all of them have reported.

    Parameters
    ----------
    n_workers : int
        Number of workers in a group.

    Attributes
    ----------
    latest : dict of str to dict
        Last metrics of each phase, of the first worker group.
    last_step : int
        Last step that any worker has reported metrics for; -1 before.
    speeds : dict of int to float
        Samples per second of each worker group, the last time.
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.latest: dict[str, dict[str, float]] = {}
        self.last_step = -1
        self.speeds: dict[int, float] = {}
        self._reported: dict[tuple[str, int, int], list[Mapping[str, Any]]] = {}
        # newest step of each phase and group that is complete: steps that are computed again are not shown again
        self._shown: dict[tuple[str, int], int] = {}

    def add(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Add the metrics of one worker; return those of its group if they are complete, and were not before."""
        self.last_step = max(self.last_step, event["step"])
        key = (event["phase"], event["group"], event["step"])
        if event["step"] <= self._shown.get(key[:2], -1):
            return None
        reported = self._reported.setdefault(key, [])
        if reported and reported[0].get("life", 0) != event.get("life", 0):
            reported.clear()
        reported.append(event)
        if len(reported) < self.n_workers:
            return None
        del self._reported[key]
        reported.sort(key=lambda report: report["worker"])  # sums do not depend on the order of arrival
        self._shown[key[:2]] = event["step"]
        totals = add_totals(report["metrics"] for report in reported)
        metrics = {name: total / count if count else 0.0 for name, (total, count) in totals.items()}
        if event["group"] == 0:
            self.latest[event["phase"]] = metrics
        speeds = {
            name: float(np.mean([report[name] for report in reported]))
            for name in ("samples_per_s", "wait_data_ms", "wait_params_ms")
            if name in event
        }
        if "samples_per_s" in speeds:
            self.speeds[event["group"]] = speeds["samples_per_s"]
        keep = {name: event[name] for name in ("event", "step", "phase", "group", "time", "lr") if name in event}
        # in a partitioned net some workers read no records
        epochs = [report["epoch"] for report in reported if report.get("epoch") is not None]
        return {**keep, **({"epoch": max(epochs)} if epochs else {}), **speeds, "metrics": metrics}


@dataclass(frozen=True)
class Result:
    """Result of a job. Its fields, except ``error``, are those of ``summary.json``.

    Attributes
    ----------
    state : str
        done, failed or stopped.
    restarts : int
        Number of times that the units were started again after a loss.
    recomputed_steps : int
        Steps of the first worker group that were computed again.
    lost_s : float
        Time from each loss to the first step after it, summed, in seconds.
    step_ms, wait_ms : dict of str to float
        Milliseconds for a step; `StepTimer` defines a step on a GPU. A worker waits for ``data``, for ``params``, and
        for ``cores`` that other threads use.
    bytes : dict of str to int
        ``sent`` and ``received``: arrays between processes. ``local`` and ``remote``: blocks of records that were read
        on a host that stores them, and others.
    ops : str
        Kernels of the first worker.
    devices : dict of str to str
        Device of each worker, ``"cpu"`` or ``"cuda:<index in its process>"``, and its kernels.
    threads : int
        Number of threads of the first worker.
    layers : dict of str to dict of str to float
        In a job that is profiled, medians of the recorded steps of the first worker: ``forward_ms`` and
        ``backward_ms`` of each layer, without waits. Where workers compute parts of one net, those of the worker
        that takes longest.
    step_parts : dict of str to float
        Of the same steps: ``compute_ms``, and the waits ``data_ms``, ``params_ms``, and for other workers of a
        partitioned net ``workers_ms``.
    peak_memory : int
        Peak memory of a process of the job, in bytes; the maximum over all processes.
    bad_records : int
        Number of records that could not be read, each once for every input layer of a worker.
    samples : int
        Number of records that all workers have trained on, since they were started last.
    updates : dict of str to int
        ``applied``: updates of slices by the servers, since they were started last: of each slice one for each step of
        each worker group. ``refused``: those that came again.
    staleness : dict of str to int
        Number of gradients by the number of updates that their slice had seen since the values that they were computed
        from, ``"0"`` to ``"64"`` or ``"more"``.
    staleness_mean : float
        Mean over all gradients.
    learning : dict
        Facts of the first worker group, see `facts_of_workers`; ``summary.json`` has ``sentences`` too.
    exit_code : int
    reason : str
        One line; empty if the job is done and did not end early.
    error : str
        Traceback of the unit that failed; empty if the reason is enough.
    """

    job: str
    id: str
    state: str
    steps: int
    seconds: float
    topology: dict[str, Any]
    restarts: int
    train: dict[str, float]
    test: dict[str, float]
    validation: dict[str, float]
    step_ms: dict[str, float]
    samples_per_s: float
    wait_ms: dict[str, float]
    bytes: dict[str, int]
    recomputed_steps: int = 0
    lost_s: float = 0.0
    ops: str = ""
    devices: dict[str, str] = field(default_factory=dict)
    threads: int = 0
    layers: dict[str, dict[str, float]] = field(default_factory=dict)
    step_parts: dict[str, float] = field(default_factory=dict)
    peak_memory: int = 0
    bad_records: int = 0
    samples: int = 0
    updates: dict[str, int] = field(default_factory=dict)
    staleness: dict[str, int] = field(default_factory=dict)
    staleness_mean: float = 0.0
    learning: dict[str, Any] = field(default_factory=dict)
    exit_code: int = 0
    reason: str = ""
    error: str = field(default="", repr=False)

    def summary(self) -> dict[str, Any]:
        """Return the object of ``summary.json``."""
        facts = asdict(self)
        del facts["error"]
        for name in ("layers", "learning", "step_parts"):
            if not facts[name]:
                del facts[name]
        return facts


def summarise(
    name: str,
    job_id: str,
    layout: Layout,
    over: Mapping[str, Any],
) -> Result:
    """Combine the reports of a job into its result.

    Parameters
    ----------
    layout : Layout
        Of the job file.
    over : mapping
        Last event of the job: ``reports`` of each unit; ``failure``, the first one or None, with ``reason``,
        ``exit_code``, ``error``, ``expected``; ``signal``, the name of the one that stopped the job, and ``by``, who
        sent it, if not its client; ``processes``, the units of each; ``restarts``, ``recomputed_steps``, ``lost_s``;
        ``latest``, the last metrics of each phase; ``seconds``.
    """
    reports, failure, latest = over["reports"], over["failure"], over["latest"]
    workers = [report for report in reports.values() if "step_ms" in report]
    first = [report for report in workers if report["unit"].startswith("worker-0-")]
    state, steps, reason = outcome(over)
    return Result(
        job=name,
        id=job_id,
        state=state,
        steps=steps,
        seconds=round(over["seconds"], 3),
        topology={**layout.describe(), "processes": over["processes"]},
        restarts=over["restarts"],
        train=dict(latest.get("train", {})),
        test=dict(latest.get("test", {})),
        validation=dict(latest.get("validation", {})),
        step_ms={key: _average(report["step_ms"][key] for report in first) for key in ("median", "p95")},
        samples_per_s=round(sum(report["samples"] / max(report["seconds"], 1e-9) for report in workers), 1),
        wait_ms={key: _average(report["wait_ms"][key] for report in first) for key in ("data", "params", "cores")},
        bytes={
            **{key: sum(_bytes(reports, units, key) for units in over["processes"]) for key in ("sent", "received")},
            **{key: sum(int(report["read"][key]) for report in workers) for key in ("local", "remote")},
        },
        recomputed_steps=over["recomputed_steps"],
        lost_s=over["lost_s"],
        ops=next((str(report["ops"]) for report in first), ""),
        devices={report["unit"]: f"{report['device']} ({report['ops']})" for report in workers},
        threads=next((int(report["threads"]) for report in first), 0),
        layers=_merge_layers(report["layers"] for report in first if "layers" in report),
        step_parts=dict(reports.get("worker-0-0", {}).get("step_parts", {})),
        peak_memory=max((int(report.get("peak_memory", 0)) for report in reports.values()), default=0),
        bad_records=sum(int(report.get("bad_records", 0)) for report in reports.values()),
        samples=round(sum(report["samples"] for report in workers)),
        **_updates([report["updates"] for report in reports.values() if "updates" in report]),
        learning=facts_of_workers(report["learning"] for report in first if report.get("learning")),
        exit_code=exit_code_of(state, over),
        reason=reason,
        error="" if not failure or failure.get("expected") else str(failure.get("error", "")),
    )


def exit_code_of(state: str, over: Mapping[str, Any]) -> int:
    """Return the exit code of a job that has ended in this state, from its last event (see `summarise`)."""
    if state == "stopped":
        return SIGNAL_CODES.get(over["signal"], 1)
    return int(over["failure"].get("exit_code", 1)) if over["failure"] else 0


def outcome(over: Mapping[str, Any]) -> tuple[str, int, str]:
    """Return how a job ended, from its last event (see `summarise`): state, number of steps, and the reason."""
    reports, failure = over["reports"], over["failure"]
    workers = [report for report in reports.values() if "step_ms" in report]
    step = max((int(report.get("step", -1)) for report in reports.values()), default=-1)
    if failure:
        last = f" Last step: {step}." if failure.get("exit_code") == 4 else ""
        return "failed", max(step, 0), _reason_of(failure, reports) + last
    waited = bool(over["signal"]) and any(report["state"] != "done" for report in reports.values())
    if waited or any(report["stopped"] for report in workers):
        # units stop without a signal where their Dask worker closes, and nobody places them anew
        what = f"stopped by {over.get('by') or over['signal'] or 'a Dask worker that has closed'}"
        return "stopped", max(step, 0), f"{what} while it waited for Dask workers" if waited else what
    return "done", max(step, 0), next((report["ended"] for report in workers if report.get("ended")), "")


def _updates(counted: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up what the servers have counted, see `UpdateCounts`."""
    staleness: Counter[str] = sum((Counter(counts["staleness"]) for counts in counted), Counter())
    total = sum(counts["staleness_sum"] for counts in counted)
    return {
        "updates": {key: sum(counts[key] for counts in counted) for key in ("applied", "refused")},
        "staleness": {
            key: staleness[key] for key in sorted(staleness, key=lambda name: (name == MORE, len(name), name))
        },
        "staleness_mean": round(total / max(staleness.total(), 1), 4),
    }


def _reason_of(failure: Mapping[str, Any], reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Describe why the job failed, and how many other units failed in the same way."""
    reason, unit = str(failure["reason"]), str(failure.get("unit"))
    alike = [name for name, report in reports.items() if "cause" in report and report["cause"] == failure.get("cause")]
    n_others = len(set(alike) - {unit})
    return reason.replace(unit, f"{unit} and {plural(n_others, 'other')}", 1) if n_others else reason


def _merge_layers(tables: Iterable[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the longest time of each layer over the workers that have it, or a part of it."""
    merged: dict[str, dict[str, float]] = {}
    for table in tables:
        for layer, times in table.items():
            known = merged.setdefault(layer, {})
            known.update({name: max(ms, known.get(name, 0.0)) for name, ms in times.items()})
    return merged


def _bytes(reports: Mapping[str, Mapping[str, Any]], units: Iterable[str], key: str) -> int:
    """Return the traffic of a process when its last unit ended."""
    return max((int(reports.get(unit, {}).get("bytes", {}).get(key, 0)) for unit in units), default=0)


def _average(values: Iterable[float]) -> float:
    known = list(values)
    return round(float(np.mean(known)), 4) if known else 0.0


KEPT_EVENTS = 10_000
PAGE = 200
"""Number of events that are sent at once: the scheduler does nothing else meanwhile."""
KEPT_SPAN_BYTES = 1 << 26
"""Size of the profile spans that are kept of a running job. The driver usually has them within seconds."""
NUMBER = itemgetter("n")


def facts_in_line(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of a job that waits in line, by the keys of `JobRecord.facts`.

    Parameters
    ----------
    run : mapping
        The fields of its `Submission`.
    """
    job = json.loads(run["job"])
    return {
        "id": run["job_id"],
        "name": job["name"],
        "owner": run["owner"],
        "run_url": redact(run["run_url"]),
        "topology": plan_processes(ClusterConf.model_validate(job["cluster"])).describe(),
        "train_steps": job["train_steps"],
    }


class JobRecord:
    """A job on the scheduler.

    Parameters
    ----------
    spec : JobSpec

    Attributes
    ----------
    state : JobState
        Decides what happens next.
    token : str
        Of the job's endpoints. It goes to the Dask workers that host units, and to nobody else.
    shared : dict of str to str
        What all processes of a life are told, as JSON, see `Sites.share`.
    leaders : dict of str to str
        By host: the Dask worker that asks for it, and tells the others there.
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
        self.token = secrets.token_hex(16)
        self.shared: dict[str, str] = {}
        self.leaders: dict[str, str] = {}
        self.futures: dict[Future[Any], tuple[int, int]] = {}
        self.stalls = Stalls()
        self.evidence = Evidence()
        self.merger = MetricsMerger(self.state.cluster.nworkers_per_group)
        self.began, self._began_at = time.time(), time.monotonic()
        self.activity = Activity()
        self._is_shown = True
        self.events = EventLog(KEPT_EVENTS)
        self._n_events = 0
        self._steps: dict[str, Any] = {}
        self._changed = Condition()
        self._job: dict[str, Any] = json.loads(spec.job)
        self._topology = plan_processes(self.state.cluster).describe()

    def leader_of(self, worker: str) -> str:
        """Return the Dask worker that tells another one of its host what all processes are told."""
        return self.leaders.get(get_address_host(worker), worker)

    def add_event(self, what: Mapping[str, Any]) -> None:
        """Keep an event, with a number, for those who follow the job.

        Metrics of a worker are held back until those of its whole group are there. Steps have no number: only the
        newest are kept.
        """
        event = {"unit": "driver", "time": time.time(), **what}
        if event["event"] == "over":
            self._complete(event)
            if self._steps:  # all followers hear of the last steps, however late they ask
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
        """Hand something to the `activity`. If that fails nothing more is shown there, and the job goes on."""
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
        """Return some events with numbers higher than ``after``, see `Jobs.events`."""
        events = self.events.after(after)
        if not events and wait_s:
            await self._changed.wait(timedelta(seconds=wait_s))
            events = self.events.after(after)
        return [*events, self._steps] if self._steps and wait_s and len(events) < PAGE else events

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
            "name": self._job["name"],
            "owner": spec.owner,
            "run_url": redact(spec.run_url),
            "state": self._state(),
            "step": max(min(state.steps.values(), default=-1), merger.last_step),
            "train_steps": self._job["train_steps"],
            "steps": dict(state.steps),
            "metrics": dict(merger.latest),
            "samples_per_s": round(sum(merger.speeds.values()), 1),
            "began": self.began,
            "ended": None,
            "reason": "",
            "exit_code": None,
            "detached": bool(spec.driver),
            "priority": spec.priority,
            "restarts": len(state.restarts),
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
    errors, restarts, checkpoints. The spans of profile events are limited by their size.

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
        if event["event"] == "profile":
            self.drop_spans(KEPT_SPAN_BYTES)

    def drop_spans(self, kept_bytes: int = 0) -> None:
        """Drop all but the newest spans of profile events. The events stay: ``recorded`` counts what was dropped.

        A client in this process may be about to read the events that it was given: others take their places.
        """
        for i in reversed(range(len(self._rare))):
            event = self._rare[i]
            if event["event"] == "profile":
                kept_bytes -= len(event["spans"])
                if kept_bytes < 0 and event["spans"]:
                    self._rare[i] = {**event, "spans": ""}

    def after(self, n: int) -> list[dict[str, Any]]:
        """Return the first `PAGE` events with numbers higher than ``n``."""
        newer = []
        for events in (self._frequent, self._rare):
            start = bisect_right(events, n, key=NUMBER)
            newer.append(islice(events, start, start + PAGE))
        return list(islice(merge(*newer, key=NUMBER), PAGE))

    def newest(self, limit: int) -> EventLog:
        """Return a log with the newest events of either kind. The spans of profile events are dropped in both logs."""
        self.drop_spans()
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


class Evidence:
    """Tells which processes of a job live although nothing is heard of them: those without whom no step is made."""

    def __init__(self) -> None:
        self._reached: dict[str, dict[str, int]] = {}
        self._alive_at: dict[str, float] = {}

    def look(self, told: Mapping[str, Mapping[str, int]], needed_by: Mapping[str, Collection[str]], now: float) -> None:
        """Note which steps have been made.

        Parameters
        ----------
        told : mapping of str to mapping of str to int
            The step of each worker group, as each Dask worker of the job tells it.
        needed_by : mapping of str to collection of str
            By Dask worker: the groups that make no step without it.
        now : float
            Seconds.
        """
        # of each group, the two Dask workers that tell the highest steps: for each there is another one
        leaders: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for address, steps in told.items():
            for group, step in steps.items():
                leaders[group] = sorted([*leaders[group], (step, address)])[-2:]
        reached = {}
        for address, groups in needed_by.items():
            others = {group: [step for step, other in leaders[group] if other != address] for group in groups}
            known = reached[address] = {group: max(steps, default=-1) for group, steps in others.items()}
            before = self._reached.get(address, known)
            if any(step > before.get(group, step) for group, step in known.items()):
                self._alive_at[address] = now
        self._reached = reached

    def is_alive(self, address: str, now: float, within_s: float) -> bool:
        """Return whether others have made a step in the last seconds that needs a Dask worker."""
        return now - self._alive_at.get(address, -math.inf) < within_s


KEPT_JOBS = 1000
JOBS_WITH_EVENTS = 20
EVENTS_OF_A_JOB = 1000


class _Ended(NamedTuple):
    """What is kept of a job that has ended ``since`` then; ``client`` has started it."""

    events: EventLog
    activity: Activity
    client: str
    since: float
    is_heard: bool = False


class History:
    """Keeps the facts of the last 1000 jobs that have ended, and the last events and the curves of the newest 20.

    Those of more jobs stay while their clients have not had the end and may come back, see `LIMITS`.

    Attributes
    ----------
    facts : dict of str to dict
        By id, the newest last: see `JobRecord.facts`.
    """

    def __init__(self) -> None:
        self.facts: dict[str, dict[str, Any]] = {}
        self._kept: dict[str, _Ended] = {}

    def add(self, record: JobRecord) -> None:
        """Keep a job that is over, with all of its events until `trim`."""
        job_id = record.spec.job_id
        self.drop(job_id)
        self.facts[job_id] = record.facts()
        now = time.monotonic()
        self._kept[job_id] = _Ended(record.events, record.activity, record.spec.client, now)
        while len(self.facts) > KEPT_JOBS:
            del self.facts[next(iter(self.facts))]
        heard = [each for each, ended in self._kept.items() if ended.is_heard or now - ended.since > limit("client")]
        for old in heard:
            self._kept[old].events.drop_spans()
        for old in heard[: max(len(self._kept) - JOBS_WITH_EVENTS, 0)]:
            del self._kept[old]

    def drop(self, job_id: str) -> None:
        """Forget a job, as a new one with its id begins."""
        self.facts.pop(job_id, None)
        self._kept.pop(job_id, None)

    def add_facts(self, facts: dict[str, Any]) -> None:
        """Keep the facts of a job that has ended before it began."""
        self.drop(facts["id"])
        self.facts[facts["id"]] = facts

    def trim(self, job_id: str, client: str | None = None) -> None:
        """Keep only the last events of a job, which its driver has had, or its client if ``client`` is that one."""
        ended = self._kept.get(job_id)
        if ended is not None and client in (None, ended.client):
            self._kept[job_id] = ended._replace(events=ended.events.newest(EVENTS_OF_A_JOB), is_heard=True)

    def events(self, job_id: str) -> EventLog | None:
        """Return the last events of a job, if they are still kept."""
        return self._kept[job_id].events if job_id in self._kept else None

    def activity(self, job_id: str) -> Activity:
        """Return the activity of a job; an empty one if it is not kept any more."""
        return self._kept[job_id].activity if job_id in self._kept else Activity()
