"""Timelines: draw the work of each thread in a step of a trace."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from singa_dask import fs
from singa_dask.errors import DataError
from singa_dask.lazy import require
from singa_dask.observe.pictures.figure import COLOURS, STYLE, saved

KINDS = {"forward": COLOURS[5], "backward": COLOURS[0], "wait": "#dddddd"}
"""Colours of layers and waits. Messages and updates have the colour `REST`."""
REST = COLOURS[1]
MAX_TRACKS = 24
INCHES, TRACK_INCHES = 10.0, 0.28


class Interval(NamedTuple):
    """An activity of the thread ``track`` (``process: name``).

    Times are milliseconds from the start of the step.
    """

    track: str
    kind: str
    start: float
    duration: float


def read_trace(path: str) -> list[Interval]:
    """Return the last step in a ``trace.json``; raise `DataError` if the file is missing or not a trace."""
    try:
        return last_step(json.loads(fs.read_bytes(fs.absolute(path))))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not a trace. Expected the trace.json that run --profile writes.") from error


def last_step(trace: Mapping[str, Any]) -> list[Interval]:
    """Return the intervals of the last step of a trace in Chrome's format.

    Return all intervals if it has no steps.
    """
    events = trace["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    done = [event for event in events if event["ph"] == "X"]
    steps = [event for event in done if event.get("cat") == "step"]
    start = min((event["ts"] for event in done), default=0.0)
    end = max((event["ts"] + event["dur"] for event in done), default=0.0)
    if steps:
        last = max(steps, key=lambda event: float(event["ts"]))
        start, end = last["ts"], last["ts"] + last["dur"]
    found = []
    for event in done:
        first, past = max(event["ts"], start), min(event["ts"] + event["dur"], end)
        if first < past and event.get("cat") != "step":
            track = f"{event['pid']}: {names[event['pid'], event['tid']]}"
            kind = event.get("cat", event["name"].rpartition(" ")[2])
            found.append(Interval(track, kind, (first - start) / 1e3, (past - first) / 1e3))
    return found


def draw_steps(steps: Mapping[str, Sequence[Interval]]) -> bytes:
    """Return an SVG with a timeline for each title, one below the other, on the same scale.

    A timeline has at most `MAX_TRACKS` rows, one for each thread, ordered by process.

    Raises
    ------
    ConfigError
        matplotlib is not installed.
    """
    matplotlib = require("matplotlib", "plot", "an SVG picture")
    figures, patches = (require(f"matplotlib.{name}", "plot", "a picture") for name in ("figure", "patches"))
    rows = {title: sorted({each.track for each in step}, key=_by_process)[:MAX_TRACKS] for title, step in steps.items()}
    heights = [1 + len(tracks) for tracks in rows.values()]
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        figure = figures.Figure(figsize=(INCHES, 0.8 + TRACK_INCHES * sum(heights)), layout="constrained")
        ratios = {"height_ratios": heights}
        all_axes = figure.subplots(len(steps), 1, sharex=True, squeeze=False, gridspec_kw=ratios).flatten()
        for axes, (title, step) in zip(all_axes, steps.items(), strict=True):
            bars = defaultdict[tuple[str, str], list[tuple[float, float]]](list)
            for each in sorted(step, key=lambda each: each.kind != "wait"):  # draw waits first, below other work
                bars[each.track, each.kind].append((each.start, each.duration))
            for (track, kind), times in bars.items():
                if track in rows[title]:
                    place = (rows[title].index(track) - 0.4, 0.8)
                    axes.broken_barh(times, place, color=KINDS.get(kind, REST), linewidth=0)
            axes.set_yticks(range(len(rows[title])), rows[title])
            axes.invert_yaxis()
            axes.set_title(title, loc="left", fontsize=10)
        all_axes[-1].set_xlabel("time (ms)")
        handles = [patches.Patch(color=c, label=k) for k, c in {**KINDS, "messages and updates": REST}.items()]
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), fontsize=9)
    return saved(figure, ".svg")


def _by_process(track: str) -> tuple[int, str]:
    return int(track.partition(":")[0]), track
