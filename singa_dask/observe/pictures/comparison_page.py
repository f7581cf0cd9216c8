"""The page of a comparison: tables and pictures of its results, as HTML."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from singa_dask.errors import ConfigError
from singa_dask.observe.pictures.comparison import Row, rows, why_not
from singa_dask.observe.pictures.curves import Panel, PlottedCurve
from singa_dask.observe.pictures.figure import draw
from singa_dask.observe.pictures.html import picture, table, write_page

BEST_IS_LEAST = ("s to target", "samples to target")
N_POINTS, MAX_METRICS = 80, 3
"""Number of points of a median curve over several seeds; maximum number of metrics whose curves are drawn."""


def write_report(comparison: Mapping[str, Any]) -> str:
    """Return the report of a comparison as an HTML page. Without matplotlib, the page has no pictures."""
    try:
        pictures = list(_curves(comparison))
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
        "starts at the first step, and includes tests. Metrics are from the first worker group.</p>"
    )


def _least(comparison: Mapping[str, Any], title: str) -> list[int]:
    """Return the topologies that reach the target in the smallest median time (or number of samples).

    A topology counts only if all its runs reached the target.
    """
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
    """Return the curve of a single run, or the median curve of several runs with their range."""
    if len(runs) == 1:
        return PlottedCurve(topology, "", runs[0][:, column], runs[0][:, 2])
    start, end = (max(float(each[i, column]) for each in runs) for i in (0, -1))
    x = np.linspace(start, end, N_POINTS)
    y = np.stack([np.interp(x, each[:, column], each[:, 2]) for each in runs])
    return PlottedCurve(topology, "", x, np.median(y, 0), low=y.min(0), high=y.max(0))


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
