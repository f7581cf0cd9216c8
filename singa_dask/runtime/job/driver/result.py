"""The result of a job: its state, exit code and summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from singa_dask.runtime.job.job_end import JobEnd, exit_code_of, outcome
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.units.learning_observer import facts_of_workers
from singa_dask.runtime.units.server import MORE


@dataclass(frozen=True)
class Result:
    """Result of a job: the fields of ``summary.json``, and ``error``.

    Attributes
    ----------
    state : str
        ``done``, ``failed`` or ``stopped``.
    restarts : int
        Number of times that units were restarted after a process was lost.
    recomputed_steps : int
        Number of steps that the first worker group had to compute again after restarts.
    lost_s : float
        Time lost by restarts, in seconds: from the loss of a process until the job reached the same step again, summed
        over all losses.
    step_ms, wait_ms : dict of str to float
        Milliseconds per step; see `StepTimer`. Empty if the job was killed. ``wait_ms`` has the times that a worker
        waits for ``data``, for ``params``, and for ``cores`` that other threads use.
    bytes : dict of str to int
        ``sent`` and ``received``: bytes of arrays that processes exchanged. ``local`` and ``remote``: bytes of record
        blocks that workers read from their own host, and from other hosts.
    ops : str
        Name of the kernels ("ops") that the first worker used.
    devices : dict of str to str
        Device and kernels of each worker, e.g. ``"cuda:0 (cupy)"``. The device is ``"cpu"`` or ``"cuda:<index in its
        process>"``.
    threads : int
        Number of threads of the first worker.
    layers : dict of str to dict of str to float
        Only for a profiled job: ``forward_ms`` and ``backward_ms`` of each layer, without waits, as medians over the
        recorded steps. If several workers compute parts of a layer, the slowest worker counts.
    step_parts : dict of str to float
        Only for a profiled job: ``compute_ms`` of the recorded steps, and the waits ``data_ms``, ``params_ms`` and
        ``workers_ms`` (for other workers of a partitioned net).
    peak_memory : int
        Largest peak memory of any process of the job, in bytes.
    bad_records : int
        Number of records that could not be read. A record counts once for every input layer of a worker that reads it.
    samples : int
        Number of records that all workers have trained on since the last start.
    updates : dict of str to int
        ``applied``: number of slice updates by the servers since the last start. In each step of a worker group, each
        slice is updated once. ``refused``: number of updates that the servers ignored because they arrived twice.
    staleness : dict of str to int
        Number of gradients by staleness, ``"0"`` to ``"64"`` or ``"more"``. The staleness of a gradient is the number
        of updates that its slice received after the worker read the values for this gradient.
    staleness_mean : float
        Mean staleness of all gradients.
    best_step : int
        Step whose params the commands use, if ``early_stopping.restore_best`` is set; else -1. ``summary.json`` then
        has the tests and validations up to this step.
    learning : dict
        Facts about the learning of the first worker group; see `facts_of_workers`. ``summary.json`` also has
        ``sentences``.
    reason : str
        Why the job failed, was stopped or ended early, in one line; empty if it made all its steps.
    error : str
        Traceback of the unit that failed; empty if ``reason`` is enough.
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
    best_step: int = -1
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
        if facts["best_step"] < 0:
            del facts["best_step"]
        return facts


def summarise(name: str, job_id: str, layout: Layout, over: JobEnd) -> Result:
    """Combine the last reports of a job's units into its result."""
    reports, latest = over.reports, over.latest
    workers = [report for report in reports.values() if "step_ms" in report]
    first = [report for report in workers if report["unit"].startswith("worker-0-")]
    state, steps, reason = outcome(over)
    return Result(
        job=name,
        id=job_id,
        state=state,
        steps=steps,
        seconds=round(over.seconds, 3),
        topology={**layout.describe(), "processes": over.processes},
        restarts=over.restarts,
        train=dict(latest.get("train", {})),
        test=dict(latest.get("test", {})),
        validation=dict(latest.get("validation", {})),
        step_ms={key: _average(report["step_ms"][key] for report in first) for key in ("median", "p95") if first},
        # workers of an aborted job report no times
        samples_per_s=round(sum(report["samples"] / max(report["seconds"], 1e-9) for report in workers), 1)
        if workers
        else over.samples_per_s,
        wait_ms={key: _average(report["wait_ms"][key] for report in first) for key in ("data", "params", "cores")},
        bytes={
            **{key: sum(_bytes(reports, units, key) for units in over.processes) for key in ("sent", "received")},
            **{key: sum(int(report["read"][key]) for report in workers) for key in ("local", "remote")},
        },
        recomputed_steps=over.recomputed_steps,
        lost_s=over.lost_s,
        ops=next((str(report["ops"]) for report in first), ""),
        devices={report["unit"]: f"{report['device']} ({report['ops']})" for report in workers},
        threads=next((int(report["threads"]) for report in first), 0),
        layers=_merge_layers(report["layers"] for report in first if "layers" in report),
        step_parts=dict(reports.get("worker-0-0", {}).get("step_parts", {})),
        peak_memory=max((int(report.get("peak_memory", 0)) for report in reports.values()), default=0),
        bad_records=sum(int(report.get("bad_records", 0)) for report in reports.values()),
        samples=round(sum(report["samples"] for report in workers)),
        **_updates([report["updates"] for report in reports.values() if "updates" in report]),
        best_step=max((int(report.get("best_step", -1)) for report in first), default=-1),
        learning=facts_of_workers(report["learning"] for report in first if report.get("learning")),
        exit_code=exit_code_of(state, over),
        reason=reason,
        error=over.failure.error if over.failure else "",
    )


def _updates(counted: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up the counts of all servers; see `UpdateCounts`."""
    staleness: Counter[str] = sum((Counter(counts["staleness"]) for counts in counted), Counter())
    total = sum(counts["staleness_sum"] for counts in counted)
    return {
        "updates": {key: sum(counts[key] for counts in counted) for key in ("applied", "refused")},
        "staleness": {
            key: staleness[key] for key in sorted(staleness, key=lambda name: (name == MORE, len(name), name))
        },
        "staleness_mean": round(total / max(staleness.total(), 1), 4),
    }


def _merge_layers(tables: Iterable[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the longest time of each layer over the workers that compute it."""
    merged: dict[str, dict[str, float]] = {}
    for table in tables:
        for layer, times in table.items():
            known = merged.setdefault(layer, {})
            known.update({name: max(ms, known.get(name, 0.0)) for name, ms in times.items()})
    return merged


def _bytes(reports: Mapping[str, Mapping[str, Any]], units: Iterable[str], key: str) -> int:
    """Return the number of bytes that a process had sent or received when its last unit ended."""
    return max((int(reports.get(unit, {}).get("bytes", {}).get(key, 0)) for unit in units), default=0)


def _average(values: Iterable[float]) -> float:
    known = list(values)
    return round(float(np.mean(known)), 4) if known else 0.0
