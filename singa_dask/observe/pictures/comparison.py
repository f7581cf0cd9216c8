"""Comparison: results of the runs of one job under several topologies, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from singa_dask import fs
from singa_dask.observe.event_texts import layer_metrics
from singa_dask.observe.files.journal import read_objects
from singa_dask.observe.files.run_directory import METRICS, read_summary

Points = list[list[float]]
Row = dict[str, str]


FIGURES = (
    "seconds", "samples", "samples_per_s", "step_ms", "wait_data_ms", "wait_params_ms", "sent_per_step",
    "received_per_step", "staleness_mean", "restarts",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """The value of a metric, such as ``test.accuracy``, at which a run ends."""

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
        """Return whether a value is at least as good as the target."""
        if value is None:
            return False
        return value <= self.value if self.less_is_better else value >= self.value

    def __str__(self) -> str:
        return f"{self.metric} {'≤' if self.less_is_better else '≥'} {self.value:g}"


class _Clock:
    """Converts the times of events to seconds of training, and to numbers of samples of all worker groups.

    ``events`` are the metrics of all groups, ordered by time. ``batch`` is the number of samples in a step of a group.
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
    """Return the results of a run.

    Parameters
    ----------
    url : str
        The run directory.
    batch : int
        Number of samples in a step of a worker group.
    target : Target or None
        Value of a metric at which the run ends.

    Returns
    -------
    dict
        - ``state``, ``reason``, ``seconds``, ``samples``, ``samples_per_s``, ``restarts``, ``step_ms``,
          ``wait_data_ms``, ``wait_params_ms``, ``staleness``, ``staleness_mean``.
        - ``sent_per_step``, ``received_per_step``: bytes between processes for each step of a worker group.
        - ``final``: the last metrics.
        - ``target``: seconds and samples until the target was reached, or None.
        - ``curves``: for each metric of the first worker group, points of (seconds, samples, value).
    """
    summary = read_summary(url)
    events = [event for event in read_objects(fs.join(url, METRICS)) if event.get("event") == "metrics"]
    events.sort(key=lambda event: float(event["time"]))
    clock = _Clock(events, batch)
    curves: dict[str, Points] = {}
    for event in (each for each in events if each["group"] == 0):
        at = [clock.seconds(event), clock.samples(event)]
        for name, value in layer_metrics(event).items():
            if value is not None:
                curves.setdefault(f"{event['phase']}.{name}", []).append([*at, value])
    reached = target and next((point for point in curves.get(target.metric, ()) if target.is_reached(point[2])), None)
    seconds = max((points[-1][0] for points in curves.values()), default=0.0)
    whole = {}
    if restarts := summary.get("restarts", 0):  # the summary counts samples and their time only since the last restart
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
        "target": reached and dict(zip(("seconds", "samples"), reached, strict=False)),
        "curves": curves,
    }


def add_statistics(topology: dict[str, Any]) -> None:
    """Add to a topology the statistics over its completed runs.

    The added keys are ``statistics``, with median, min, max and number of values of each result, and ``staleness``,
    summed over the runs.
    """
    done = [run for run in topology["runs"] if run["state"] == "done"]
    values: dict[str, list[float]] = {}
    for run in done:
        figures = {name: run[name] for name in FIGURES}
        figures |= {f"target_{name}": (run["target"] or {}).get(name) for name in ("seconds", "samples")}
        figures |= {f"final.{name}": value for name, value in run["final"].items()}
        for name, value in figures.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    topology["statistics"] = {
        name: {"median": float(np.median(each)), "min": min(each), "max": max(each), "n": len(each)}
        for name, each in values.items()
    }
    topology["staleness"] = dict(sum((Counter(run["staleness"]) for run in done), Counter[str]()))


def rows(comparison: Mapping[str, Any]) -> list[Row]:
    """Return a row of cells for each topology, by title of the column. All rows have the same columns.

    A cell has the median over the seeds. With several seeds, the smallest and largest values follow in parentheses.
    """
    finals, has_target = _final_names(comparison), comparison["target"] is not None
    cells = []
    for topology in comparison["topologies"]:
        spreads = topology["statistics"]
        row = {"topology": topology["name"]}
        if has_target:
            row["s to target"] = _to_target(spreads)
            row["samples to target"] = _spread(spreads, "target_samples") or row["s to target"]
        row |= {title: _spread(spreads, f"final.{name}") for title, name in finals.items()}
        row |= {
            "seconds": "" if has_target else _spread(spreads, "seconds"),
            "restarts": _spread(spreads, "restarts") if spreads.get("restarts", {}).get("max") else "",
            "samples/s": _spread(spreads, "samples_per_s"),
            "staleness": _spread(spreads, "staleness_mean"),
            "KiB sent a step": _spread(spreads, "sent_per_step", 1 / 1024),
            "ms wait for params": _spread(spreads, "wait_params_ms"),
            "ms wait for data": _spread(spreads, "wait_data_ms"),
            "ms a step": _spread(spreads, "step_ms"),
            "KiB received a step": _spread(spreads, "received_per_step", 1 / 1024),
        }
        cells.append(row)
    return cells


def _final_names(comparison: Mapping[str, Any]) -> dict[str, str]:
    """Return the last metrics to show, {title: name}: up to three of tests, validations or training."""
    known = {name: None for topology in comparison["topologies"] for name in topology["statistics"]}
    names = [name.removeprefix("final.") for name in known if name.startswith("final.")]
    for phase in ("test", "validation", "train"):
        chosen = [name for name in names if name.startswith(f"{phase}.")]
        if chosen:
            return {name.replace(".", " ", 1): name for name in sorted(chosen)[:3]}
    return {}


def _to_target(spreads: Mapping[str, Any]) -> str:
    n_done = int(spreads["seconds"]["n"]) if "seconds" in spreads else 0
    if "target_seconds" not in spreads:
        return "not reached" if n_done else ""
    n = spreads["target_seconds"]["n"]
    return _spread(spreads, "target_seconds") + (f", {n} of {n_done}" if n < n_done else "")


def _spread(spreads: Mapping[str, Any], name: str, scale: float = 1.0) -> str:
    if name not in spreads:
        return ""
    spread = spreads[name]
    median, low, high = (short(float(f"{spread[key] * scale:.3g}")) for key in ("median", "min", "max"))
    return median if spread["n"] < 2 or low == high else f"{median} ({low}–{high})"


def why_not(topology: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (seeds, reason) pairs for the runs of a topology that did not complete."""
    if topology["reason"]:
        return [("no run", topology["reason"])]
    seeds: dict[str, list[str]] = {}
    for run in topology["runs"]:
        if run["state"] != "done":
            seeds.setdefault(run["reason"] or run["state"], []).append(str(run["seed"]))
    return [(f"seed{'s' if len(each) > 1 else ''} {', '.join(each)}", reason) for reason, each in seeds.items()]


def short(value: float) -> str:
    """Format a number for a table, e.g. ``160k``, ``0.95``."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:.4g}"
