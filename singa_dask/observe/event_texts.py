"""Format the events of a job as text for users: metrics, logs, restarts, and stacks of units."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from singa_dask.shown import plural

UNKNOWN = "-"
# keys of a metrics event that are not metrics of layers
NOT_METRICS = frozenset(
    ("event", "phase", "group", "step", "time", "epoch", "lr", "samples_per_s", "wait_data_ms", "wait_params_ms")
)
RATES = ("epoch", "lr", "samples_per_s", "wait_data_ms", "wait_params_ms")
"""Numbers of a metrics event that observers get in addition to the metrics of layers."""
TEXTS = {
    "bad_record": "bad record: {reason}",
    "checkpoint": "checkpoint of step {step}: {url}",
    "placed": "start {incarnation}: units placed in {n}",
    "restart": "start {incarnation}: {reason}",
}


def duration(seconds: float | None) -> str:
    """Format seconds as ``2:05`` or ``1:02:05``; a dash if unknown."""
    if seconds is None:
        return UNKNOWN
    text = str(timedelta(seconds=math.ceil(seconds)))
    return text.removeprefix("0:").removeprefix("0")


def number(value: float | None, form: str) -> str:
    """Format a number; a dash if there is none."""
    return UNKNOWN if value is None else f"{value:{form}}"


def layer_metrics(event: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of layers in a metrics event, losses first."""
    metrics = {name: value for name, value in event.items() if name not in NOT_METRICS}
    return dict(sorted(metrics.items(), key=lambda item: (not item[0].endswith("loss"), item[0])))


def scalars(event: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield name and value of the finite numbers of a metrics event."""
    for name, value in (*layer_metrics(event).items(), *((name, event.get(name)) for name in RATES)):
        if isinstance(value, int | float) and math.isfinite(value):
            yield name, float(value)


def show_metrics(event: Mapping[str, Any]) -> str:
    """Format the metrics of an event as ``loss = 0.4512, accuracy = 0.8594``."""
    return ", ".join(f"{name} = {_shown(value)}" for name, value in layer_metrics(event).items())


def _shown(value: float | None) -> str:
    return "undefined" if value is None or math.isnan(value) else f"{value:.4f}"


def metrics_line(event: Mapping[str, Any], n_groups: int = 1, left_s: float | None = None) -> str:
    """Format metrics as in SINGA's log: ``Train @ step 60: loss = 0.4512  (1234 samples/s, 0:12 left)``."""
    group = f", group {event['group']}" if n_groups > 1 else ""
    rate = [f"{event['samples_per_s']:.0f} samples/s"] if event.get("samples_per_s") else []
    facts = ", ".join([*rate, *([] if left_s is None else [f"{duration(left_s)} left"])])
    line = f"{str(event['phase']).capitalize()} @ step {event['step']}{group}: {show_metrics(event)}"
    return f"{line}  ({facts})" if facts else line


def event_text(event: Mapping[str, Any]) -> str:
    """Describe an event that has neither metrics nor steps.

    If a unit has sent the event, the text names the unit.
    """
    kind, unit = event["event"], event.get("unit", "driver")
    facts = {**event, "n": plural(len(event.get("processes", ())), "process", "processes")}
    text = TEXTS[kind].format(**facts) if kind in TEXTS else str(event.get("message") or kind)
    return text if unit == "driver" or text.startswith(unit) else f"{unit}: {text}"


def log_text(event: Mapping[str, Any], is_named: bool = True) -> str:
    """Format a log event or a notice as ``2015-11-02 12:00:00 INFO worker-0-0: message``, in local time."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["time"]))
    name = f"{event['unit']}: " if is_named else ""
    return f"{when} {event['level']} {name}{event['message']}"


def stack_text(stacks: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the stacks of the units of a job; see `Views.stacks`."""
    lines: list[str] = []
    for unit, facts in stacks.items():
        what, seconds = facts.get("wait") or ("", 0.0)
        waits = f", waits for {what} ({seconds:.0f} s)" if what else ""
        lines.append(f"{unit} on {facts['address']}{waits}")
        lines += [*facts.get("stack", [f"  no stack: {facts.get('error')}"]), ""]
    return "\n".join(lines)
