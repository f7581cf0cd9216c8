"""Comparison: what the runs of one job under several topologies have reached, as their run directories say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from singa_dask.data import fs
from singa_dask.observe.journal import read_objects
from singa_dask.observe.progress import layer_metrics
from singa_dask.observe.run_directory import METRICS, read_summary

__all__ = ["Target", "add_statistics", "measure"]

Points = list[list[float]]

FIGURES = (
    "seconds", "samples", "samples_per_s", "step_ms", "wait_data_ms", "wait_params_ms", "sent_per_step",
    "received_per_step", "staleness_mean", "restarts",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """The value of a metric at which a run ends.

    Attributes
    ----------
    metric : str
        Phase and name, e.g. ``test.accuracy``.
    value : float
    less_is_better : bool
    """

    metric: str
    value: float
    less_is_better: bool

    @property
    def phase(self) -> str:
        """``train``, ``test`` or ``validation``."""
        return self.metric.partition(".")[0]

    @property
    def name(self) -> str:
        """Name of the metric in events."""
        return self.metric.partition(".")[2]

    def is_reached(self, value: float | None) -> bool:
        """Return whether a value is as good as that of the target."""
        if value is None:
            return False
        return value <= self.value if self.less_is_better else value >= self.value

    def __str__(self) -> str:
        return f"{self.metric} {'≤' if self.less_is_better else '≥'} {self.value:g}"


class _Clock:
    """Seconds of training, and samples that all worker groups have trained on, at each event of a run.

    Parameters
    ----------
    events : sequence of mapping
        Metrics events of all groups, in the order of time.
    batch : int
        Samples of one step of a worker group.
    """

    def __init__(self, events: Sequence[Mapping[str, Any]], batch: int) -> None:
        self._batch = batch
        self._shown: dict[int, list[tuple[float, int]]] = {}
        for event in events:
            if event["phase"] == "train":
                n_steps = event["step"] + 1
                shown = self._shown.setdefault(event["group"], [])
                if not shown:
                    began = event["time"] - n_steps * batch / max(event.get("samples_per_s") or 0.0, 1e-9)
                    shown.append((max(began, event["time"] - 1e6), 0))
                shown.append((event["time"], n_steps))
        starts = [shown[0][0] for shown in self._shown.values()]
        self._began = min(starts) if starts else min((event["time"] for event in events), default=0.0)

    def seconds(self, event: Mapping[str, Any]) -> float:
        return max(round(float(event["time"]) - self._began, 3), 0.0)

    def samples(self, event: Mapping[str, Any]) -> int:
        n_steps = float(event["step"] + (event["phase"] == "train"))
        for group, shown in self._shown.items():
            if group != event["group"]:
                times, steps = (np.asarray(column) for column in zip(*shown, strict=True))
                n_steps += float(np.interp(event["time"], times, steps))
        return round(n_steps * self._batch)


def measure(url: str, batch: int, target: Target | None) -> dict[str, Any]:
    """Return what a run has reached.

    Parameters
    ----------
    url : str
        Its run directory.
    batch : int
        Samples of one step of a worker group.
    target : Target, optional

    Returns
    -------
    dict
        ``state``, ``reason``, ``seconds``, ``samples``, ``samples_per_s``, ``restarts``, ``step_ms``, ``wait_data_ms``,
        ``wait_params_ms``; ``sent_per_step`` and ``received_per_step``: bytes between processes, for a step of a worker
        group; ``staleness``, ``staleness_mean``; ``final``: the last metrics; ``target``: seconds and samples to it, or
        None; ``curves``: of each metric of the first worker group, points of (seconds, samples, value).
    """
    summary = read_summary(url)
    found = [event for event in read_objects(fs.join(url, METRICS)) if event.get("event") == "metrics"]
    events = sorted(found, key=lambda event: float(event["time"]))
    clock = _Clock(events, batch)
    curves: dict[str, Points] = {}
    for event in (each for each in events if each["group"] == 0):
        at = [clock.seconds(event), clock.samples(event)]
        for name, value in layer_metrics(event).items():
            if value is not None:
                curves.setdefault(f"{event['phase']}.{name}", []).append([*at, value])
    seconds = max((points[-1][0] for points in curves.values()), default=0.0)
    whole = {}
    if restarts := summary.get("restarts", 0):  # the units of the last life know of their own samples and time only
        samples = max(map(clock.samples, events), default=0)
        whole = {"samples": samples, "samples_per_s": round(samples / seconds, 1) if seconds else None}
    n_steps = max(summary.get("samples", 0) / batch, 1)
    finals = {f"{phase}.{name}": value for phase in ("test", "validation", "train")
              for name, value in summary.get(phase, {}).items()}  # fmt: skip
    return {
        **{key: summary.get(key) for key in ("state", "reason", "samples", "samples_per_s", "staleness")},
        **whole,
        "restarts": restarts,
        "seconds": seconds,
        "steps": summary.get("steps", 0),
        "step_ms": summary.get("step_ms", {}).get("median"),
        **{f"wait_{key}_ms": summary.get("wait_ms", {}).get(key) for key in ("data", "params")},
        **{f"{key}_per_step": summary.get("bytes", {}).get(key, 0) / n_steps for key in ("sent", "received")},
        "staleness_mean": summary.get("staleness_mean"),
        "final": finals,
        "target": _first_time(target, curves) if target else None,
        "curves": curves,
    }


def _first_time(target: Target, curves: Mapping[str, Points]) -> dict[str, float] | None:
    for seconds, samples, value in curves.get(target.metric, ()):
        if target.is_reached(value):
            return {"seconds": seconds, "samples": samples}
    return None


def add_statistics(topology: dict[str, Any]) -> None:
    """Add to a topology what its runs have in common.

    ``statistics``: median, min, max and number of the values of each figure in the runs that are done; ``staleness``:
    the sum over them.
    """
    done = [run for run in topology["runs"] if run["state"] == "done"]
    values: dict[str, list[float]] = {}
    for run in done:
        for name, value in _figures(run).items():
            if value is not None:
                values.setdefault(name, []).append(value)
    topology["statistics"] = {
        name: {"median": float(np.median(found)), "min": min(found), "max": max(found), "n": len(found)}
        for name, found in values.items()
    }
    topology["staleness"] = dict(sum((Counter(run["staleness"]) for run in done), Counter[str]()))


def _figures(run: Mapping[str, Any]) -> dict[str, float | None]:
    target = run["target"] or {}
    return {
        **{name: run[name] for name in FIGURES},
        **{f"target_{name}": target.get(name) for name in ("seconds", "samples")},
        **{f"final.{name}": value for name, value in run["final"].items()},
    }
