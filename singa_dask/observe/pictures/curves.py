"""Curves of runs: metrics, learning rate, speed and waits over steps, grouped into panels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.observe.event_texts import layer_metrics
from singa_dask.observe.files.stored_run import PHASES, StoredRun

MAX_POINTS = 2000
"""Maximum number of points of a curve in a picture."""
AXES = {"step": "step", "epoch": "epoch", "time": "time (s)", "samples": "samples", "rate": "learning rate",
        "processes": "processes"}  # fmt: skip
"""Horizontal axes over which curves can be drawn, with their labels. The axis of learning rates is logarithmic."""
LOG_SPAN = 30.0
"""A vertical axis is logarithmic if its largest value is more than this multiple of its smallest value."""
LOSSES = ("loss", "error")
WAITS = {"wait_data_ms": "data", "wait_params_ms": "params"}
OTHERS = ("lr", "samples_per_s", *WAITS)


@dataclasses.dataclass(frozen=True)
class PlottedCurve:
    """One line of a panel, with at most `MAX_POINTS` points.

    Attributes
    ----------
    run : int
        Index of the run.
    kind : str
        Distinguishes the lines of a run: the phase, or for waits ``data`` or ``params``.
    x, y : ndarray, 1-D float64
        The points. Values of ``y`` that are not finite are nan.
    group : int or None
        Worker group of the curve; None if it is for the whole run.
    low, high : ndarray or None
        Edges of a band around the line; None without a band.
    """

    run: int
    kind: str
    x: np.ndarray
    y: np.ndarray
    group: int | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Panel:
    """Curves that share their axes. Curves of single worker groups come first.

    ``label`` is the label of the vertical axis, with its unit; ``from_zero`` is True if this axis starts at zero.
    ``mark`` is the position of a vertical line, and ``goal`` the position of a horizontal line.
    """

    label: str
    curves: list[PlottedCurve]
    from_zero: bool = False
    mark: float | None = None
    goal: float | None = None

    @property
    def is_log(self) -> bool:
        """Whether the vertical axis is logarithmic: all values are positive, and span more than `LOG_SPAN`."""
        values = np.concatenate([curve.y for curve in self.curves] or [np.empty(0)])
        values = values[np.isfinite(values)]
        return not self.from_zero and values.size > 0 and 0 < LOG_SPAN * values.min() < values.max()


def panels_of(runs: Sequence[StoredRun], axis: str = "step") -> list[Panel]:
    """Return the panels of runs: losses, other metrics, learning rate, samples per second, waits.

    ``axis`` is the horizontal axis, a key of `AXES`. Time counts from the start of a run, without the gaps between a
    stop and the next resume.
    """
    recorded = [_records(run, axis) for run in runs]
    names = {name: None for records in recorded for _, _, values in records for name in values}
    metrics = sorted(names.keys() - set(OTHERS), key=lambda name: (not name.endswith(LOSSES), name))

    def panel(label: str, keys: Mapping[str, str], from_zero: bool = False, total: bool = False) -> Panel:
        curves = []
        for i, records in enumerate(recorded):
            for kind, key in keys.items():
                phase = kind if kind in PHASES else "train"
                points = [(place, event, values[key]) for place, event, values in records
                          if event["phase"] == phase and key in values]  # fmt: skip
                curves += _curves(i, kind, points, total)
        curves.sort(key=lambda curve: curve.group is None)
        # start at zero for a constant value; otherwise the axis would only show the last digits of the value
        values = {float(value) for curve in curves for value in curve.y}
        return Panel(label, curves, from_zero or (len(values) == 1 and min(values) > 0))

    panels = [panel(name, dict.fromkeys(PHASES, name)) for name in metrics]
    panels.append(panel("learning rate", {"": "lr"}))
    panels.append(panel("speed (samples/s)", {"": "samples_per_s"}, from_zero=True, total=True))
    panels.append(panel("wait per step (ms)", {kind: key for key, kind in WAITS.items()}, from_zero=True))
    return [each for each in panels if each.curves]


def _records(run: StoredRun, axis: str) -> list[tuple[float, Mapping[str, Any], dict[str, float]]]:
    """Return, for each metrics event of a run: position on the horizontal axis, event, and values by name."""
    records: list[tuple[float, Mapping[str, Any], dict[str, float]]] = []
    for place, event in zip(_places(run, axis), run.metrics, strict=True):
        values = {name: event[name] for name in OTHERS if event.get(name) is not None}
        # in files, values that are not finite are stored as null
        for name, value in layer_metrics(event).items():
            values[name] = math.nan if value is None else value
        records.append((place, event, values))
    return records


def _places(run: StoredRun, axis: str) -> list[float]:
    """Return the position of each metrics event of a run on the horizontal axis."""
    if axis != "time":
        return [float(event.get(axis) or 0) for event in run.metrics]
    starts = [(float(each["time"]), float(each.get("seconds_before", 0))) for each in run.commands]
    starts = starts or [(min((float(event["time"]) for event in run.metrics), default=0.0), 0.0)]
    places = []
    for event in run.metrics:
        began, before = next((each for each in reversed(starts) if each[0] <= event["time"]), starts[0])
        places.append(max(float(event["time"]) - began + before, 0.0))
    return places


def _curves(run: int, kind: str, recorded: list[tuple[float, Any, Any]], total: bool) -> list[PlottedCurve]:
    """Return the curves of one kind of a run.

    A run with one worker group has one curve. A run with several has the mean (with ``total``, the sum) over its groups
    and, without ``total``, a curve for each group.
    """
    groups: dict[int, list[tuple[float, float]]] = {}
    for place, event, value in recorded:
        groups.setdefault(int(event.get("group", 0)), []).append((place, float(value)))
    if len(groups) < 2:
        return [_curve(run, kind, points) for points in groups.values()]
    by_step: dict[int, list[tuple[float, float]]] = {}
    for place, event, value in recorded:
        by_step.setdefault(int(event["step"]), []).append((place, float(value)))
    scale = len(groups) if total else 1
    whole = [tuple(np.mean(points, axis=0)) for _, points in sorted(by_step.items())]
    of_groups = [] if total else [_curve(run, kind, points, group) for group, points in sorted(groups.items())]
    return [*of_groups, _curve(run, kind, [(x, scale * y) for x, y in whole])]


def _curve(run: int, kind: str, points: Iterable[tuple[float, float]], group: int | None = None) -> PlottedCurve:
    x, y = np.array(sorted(points, key=lambda point: point[0]), np.float64).T
    y[~np.isfinite(y)] = math.nan
    kept = thin(y, MAX_POINTS)
    return PlottedCurve(run, kind, x[kept], y[kept], group)


def thin(y: np.ndarray, n_points: int) -> np.ndarray:
    """Return the indices of at most ``n_points`` values to draw, so that no spike is lost.

    The values are divided into stretches of equal length. Each stretch keeps its smallest and its largest value, and
    one nan if it has any. The first and the last value are kept, too.
    """
    if len(y) <= n_points:
        return np.arange(len(y))
    kept = {0, len(y) - 1}
    for part in np.array_split(np.arange(len(y)), max((n_points - 2) // 3, 1)):
        values = y[part]
        missing = np.isnan(values)
        kept |= {int(part[np.argmax(missing)])} if missing.any() else set()
        if not missing.all():
            kept |= {int(part[np.nanargmin(values)]), int(part[np.nanargmax(values)])}
    return np.array(sorted(kept))
