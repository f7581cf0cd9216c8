"""Comparison: what the runs of one job under several topologies have reached, as their run directories say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from singa_dask.data import fs
from singa_dask.observe.journal import read_objects
from singa_dask.observe.progress import layer_metrics
from singa_dask.observe.run_directory import METRICS, read_summary
from singa_dask.observe.svg_charts import short

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


Row = dict[str, str]


def rows(comparison: Mapping[str, Any]) -> list[Row]:
    """Return the cells of each topology by the title of their column; all rows have the same columns.

    A figure is the median over the seeds; with several seeds the smallest and the largest value stand behind it, in
    parentheses.
    """
    finals = _final_names(comparison)
    return [_row(topology, finals, comparison["target"] is not None) for topology in comparison["topologies"]]


def _row(topology: Mapping[str, Any], finals: Mapping[str, str], has_target: bool) -> Row:
    statistics, n_runs = topology["statistics"], len(topology["runs"])

    def cell(name: str, scale: float = 1.0) -> str:
        return _spread(statistics.get(name), scale)

    row = {"topology": topology["name"]}
    if has_target:
        row["s to target"] = _reached(statistics.get("target_seconds"), statistics, n_runs)
        row["samples to target"] = cell("target_samples") or row["s to target"]
    row |= {title: cell(f"final.{name}") for title, name in finals.items()}
    row |= {
        "seconds": "" if has_target else cell("seconds"),
        "restarts": cell("restarts") if statistics.get("restarts", {}).get("max") else "",
        "samples/s": cell("samples_per_s"),
        "staleness": cell("staleness_mean"),
        "KiB sent a step": cell("sent_per_step", 1 / 1024),
        "ms wait for params": cell("wait_params_ms"),
        "ms wait for data": cell("wait_data_ms"),
        "ms a step": cell("step_ms"),
        "KiB received a step": cell("received_per_step", 1 / 1024),
    }
    return row


def _final_names(comparison: Mapping[str, Any]) -> dict[str, str]:
    """Return which last metrics are shown: of the target, else accuracies and losses, of tests if there are any."""
    known = {name: None for topology in comparison["topologies"] for name in topology["statistics"]}
    names = [name.removeprefix("final.") for name in known if name.startswith("final.")]
    for phase in ("test", "validation", "train"):
        chosen = [name for name in names if name.startswith(f"{phase}.")]
        if chosen:
            return {name.replace(".", " ", 1): name for name in sorted(chosen)[:3]}
    return {}


def _reached(spread: Mapping[str, float] | None, statistics: Mapping[str, Any], n_runs: int) -> str:
    n_done = int(statistics["seconds"]["n"]) if "seconds" in statistics else 0
    if spread is None:
        return "not reached" if n_done else ""
    missed = f", {spread['n']:.0f} of {n_done}" if spread["n"] < n_done else ""
    return _spread(spread) + missed


def _spread(spread: Mapping[str, float] | None, scale: float = 1.0) -> str:
    if spread is None:
        return ""
    median, low, high = (short(float(f"{spread[key] * scale:.3g}")) for key in ("median", "min", "max"))
    return median if spread["n"] < 2 or low == high else f"{median} ({low}–{high})"


def why_not(topology: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return which runs of a topology are not done, and why: what is missing, reason."""
    if topology["reason"]:
        return [("no run", topology["reason"])]
    seeds: dict[str, list[str]] = {}
    for run in topology["runs"]:
        if run["state"] != "done":
            seeds.setdefault(run["reason"] or run["state"], []).append(str(run["seed"]))
    return [(f"seed{'s' if len(found) > 1 else ''} {', '.join(found)}", reason) for reason, found in seeds.items()]


def show_table(comparison: Mapping[str, Any], console: Console) -> None:
    """Print the medians, with as many columns as fit, and why runs are missing."""
    found = [{title: cell.partition(" (")[0] for title, cell in row.items()} for row in rows(comparison)]
    # a title can be broken between words
    widths = {
        title: max(*map(len, title.split()), *(len(row[title]) for row in found))
        for title in found[0]
        if any(row[title] for row in found)
    }
    while sum(widths.values()) + 3 * len(widths) > console.width and len(widths) > 2:
        widths.popitem()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title, width in widths.items():
        table.add_column(title, justify="left" if title == "topology" else "right", width=width)
    for row in found:
        table.add_row(*(Text(row[title]) for title in widths))
    console.print(table)
    if len(comparison["seeds"]) > 1:
        console.print(f"Medians of {len(comparison['seeds'])} seeds; the report has more.", markup=False)
    for topology in comparison["topologies"]:
        for what, why in why_not(topology):
            console.print(Text(f"{topology['name']}, {what}: {why}"), soft_wrap=True)
