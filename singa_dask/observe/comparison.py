"""Comparison: results of the runs of one job under several topologies, as a table and as a page."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from singa_dask import fs
from singa_dask.errors import ConfigError
from singa_dask.observe.curves import Panel, PlottedCurve
from singa_dask.observe.event_texts import layer_metrics
from singa_dask.observe.figure import draw, draw_bars
from singa_dask.observe.html import picture, table, write_page
from singa_dask.observe.journal import read_objects
from singa_dask.observe.run_directory import METRICS, read_summary

Points = list[list[float]]
Row = dict[str, str]

BEST_IS_LEAST = ("s to target", "samples to target")
N_POINTS, MAX_METRICS = 80, 3
"""Points of a median curve over several seeds, and most metrics whose curves are drawn."""

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
    """Seconds of training, and samples of all worker groups, at each event of a run.

    ``events`` are the metrics of all groups, ordered by time; ``batch`` is the number of samples of a group's step.
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
        None; ``curves``: for each metric of the first worker group, points of (seconds, samples, value).
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
    if restarts := summary.get("restarts", 0):  # the summary counts samples and time only since the last restart
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
    """Add statistics over the completed runs of a topology to it.

    ``statistics``: median, min, max and number of values of each figure; ``staleness``: the sum over the runs.
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
    """Return the cells of each topology by the title of their column; all rows have the same columns.

    A cell is the median over the seeds; with several seeds the smallest and largest values follow in parentheses.
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
    """Return the last metrics to show by title: up to three of the tests, else of validation or training."""
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
    """Return (seeds, reason) for the runs of a topology that did not complete."""
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


def write_report(comparison: Mapping[str, Any]) -> str:
    """Return the report of a comparison as an HTML page; without matplotlib it has no pictures."""
    try:
        pictures = [*_curves(comparison), *_staleness(comparison)]
    except ConfigError as error:
        pictures = [f'<p class="soft">{escape(str(error))}</p>']
    cells = rows(comparison)
    for row, topology in zip(cells, comparison["topologies"], strict=True):
        row["topology"] += f" ({topology['units']})" if topology["units"] else ""
    best = {(title, i) for title in BEST_IS_LEAST for i in _least(comparison, title)}
    parts = [
        _introduction(comparison),
        "<h2>Results</h2>",
        table(cells, best=best),
        _missing(comparison),
        *pictures,
        "<h2>Runs</h2>",
        table(_runs(comparison), ("end", "run directory")),
    ]
    return write_page(f"{comparison['job']}: topologies compared", [part for part in parts if part])


def _introduction(comparison: Mapping[str, Any]) -> str:
    seeds, target, limit = comparison["seeds"], comparison["target"], comparison["limit_s"]
    ends = [f"it reaches {target['text']}"] if target else []
    ends += [f"it has trained for {limit:g} s"] if limit else []
    n = len(comparison["topologies"])
    until = f" A run ends when {', or when '.join(ends)}, or after its last step." if ends else ""
    each = "each once" if len(seeds) == 1 else f"each with seeds {seeds[0]} to {seeds[-1]}"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(comparison["time"]))
    spread = " Figures are medians over the seeds, followed by the smallest and largest values."
    return (
        f"<p>One job under {n} topolog{'y' if n == 1 else 'ies'}, {each}, one run after the other on "
        f"{escape(comparison['cluster'])}.{until}{spread if len(seeds) > 1 else ''}</p>"
        f'<p class="soft">{when}, singa-dask {escape(comparison["version"])}. The numbers of steps, and of steps '
        "between tests, are divided by the number of worker groups, so all topologies train on as many samples. Time "
        "starts at the first step, and includes tests. Metrics are those of the first worker group.</p>"
    )


def _least(comparison: Mapping[str, Any], title: str) -> list[int]:
    """Return the indices of the topologies with the smallest median among those whose runs all reached the target."""
    key = "target_seconds" if title == "s to target" else "target_samples"
    medians = {
        i: each["statistics"][key]["median"]
        for i, each in enumerate(comparison["topologies"])
        if key in each["statistics"] and each["statistics"][key]["n"] == len(each["runs"])
    }
    return [i for i, median in medians.items() if median == min(medians.values())]


def _missing(comparison: Mapping[str, Any]) -> str:
    lines = [
        f"<li><b>{escape(each['name'])}</b>, {escape(what)}: {escape(why)}</li>"
        for each in comparison["topologies"]
        for what, why in why_not(each)
    ]
    return f"<h2>Not measured</h2><ul>{''.join(lines)}</ul>" if lines else ""


def _curves(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Yield pictures of the curves over time, and over samples."""
    names, target = [each["name"] for each in comparison["topologies"]], comparison["target"]
    metrics = _shown_metrics(comparison)
    if not metrics:
        return
    yield "<h2>Curves</h2>"
    if len(comparison["seeds"]) > 1:
        yield '<p class="soft">Lines are medians over the seeds, bands are from the smallest to the largest value.</p>'
    for column, axis in ((0, "time"), (1, "samples")):
        panels = []
        for metric in metrics:
            runs = [_curves_of(each, metric) for each in comparison["topologies"]]
            curves = [_curve(i, points, column) for i, points in enumerate(runs) if points]
            is_goal = target is not None and target["metric"] == metric
            panels.append(Panel(metric, curves, goal=target["value"] if is_goal else None))
        yield picture(draw(panels, names, axis, ".svg"))


def _curves_of(topology: Mapping[str, Any], metric: str) -> list[np.ndarray]:
    curves = [run["curves"].get(metric, []) for run in topology["runs"] if run["state"] == "done"]
    return [np.asarray(points, float) for points in curves if len(points) > 1]


def _shown_metrics(comparison: Mapping[str, Any]) -> list[str]:
    known = {
        metric: None
        for topology in comparison["topologies"]
        for run in topology["runs"]
        for metric in run["curves"]
        if _curves_of(topology, metric)
    }
    wanted = [comparison["target"]["metric"]] if comparison["target"] else []
    for phase in ("test", "validation"):
        wanted += sorted(metric for metric in known if metric.startswith(f"{phase}."))
    wanted += sorted((metric for metric in known if metric.startswith("train.")), key=lambda name: "loss" not in name)
    return [metric for metric in dict.fromkeys(wanted) if metric in known][:MAX_METRICS]


def _curve(topology: int, runs: Sequence[np.ndarray], column: int) -> PlottedCurve:
    """Return the curve of one run, or the median and range of several; a run that has ended keeps its last value."""
    if len(runs) == 1:
        return PlottedCurve(topology, "", runs[0][:, column], runs[0][:, 2])
    start, end = (max(float(each[i, column]) for each in runs) for i in (0, -1))
    x = np.linspace(start, end, N_POINTS)
    y = np.stack([np.interp(x, each[:, column], each[:, 2]) for each in runs])
    return PlottedCurve(topology, "", x, np.median(y, 0), low=y.min(0), high=y.max(0))


def _staleness(comparison: Mapping[str, Any]) -> Iterator[str]:
    charts = {}
    for each in comparison["topologies"]:
        if counts := each["staleness"]:
            known = [int(name) for name in counts if name.isdigit()]
            whole = {str(i): counts.get(str(i), 0) for i in range(max(known, default=0) + 1)}
            whole |= {"more": counts["more"]} if "more" in counts else {}
            charts[f"{each['name']}: mean {short(each['statistics']['staleness_mean']['median'])}"] = whole
    if charts:
        yield (
            "<h2>Staleness of gradients</h2>"
            "<p>Share of the gradients, in percent, by their staleness: the number of updates that their slice of the "
            "params had received at its server since the values were sent from which they were computed. The workers "
            "of a group count as one: with one group for each server group the staleness is 0. With k groups at the "
            "same servers its mean is at most k - 1, whatever their speeds. Server groups, as in Distributed Hogwild, "
            "are counted separately: they see each other's changes only when they exchange them.</p>"
        )
        yield picture(draw_bars(charts))


def _runs(comparison: Mapping[str, Any]) -> list[Row]:
    return [
        {
            "topology": topology["name"],
            "seed": str(run["seed"]),
            "state": run["state"] or "",
            "steps": str(run["steps"]),
            "seconds": f"{run['seconds']:.1f}",
            "restarts": str(run["restarts"]),
            "to target": f"{run['target']['seconds']:.1f} s" if run["target"] else "",
            "end": run["reason"] or "",
            "run directory": run["path"],
        }
        for topology in comparison["topologies"]
        for run in topology["runs"]
    ]
