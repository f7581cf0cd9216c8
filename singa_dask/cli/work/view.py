"""``view``: a job on a cluster, for people."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from singa_dask.cli.clusters import jobs_of
from singa_dask.cli.echo import echo
from singa_dask.cli.tables import Column, ago, table, terminal_width
from singa_dask.observe import short_url, show_metrics, to_json

SHORT = 10
"""Number of events that are shown."""


def view(job: str, scheduler: str | None, scheduler_file: str | None, as_json: bool) -> None:
    """Print what the scheduler knows about a job."""
    with jobs_of(scheduler, scheduler_file) as jobs:
        found = jobs.view(jobs.find(job)["id"])
    if as_json:
        echo(to_json(found))
        return
    for line in describe(found, terminal_width(), time.time()):
        echo(line)


def describe(job: Mapping[str, Any], width: int | None, now: float) -> Iterator[str]:
    """Yield the lines that describe a job; see `Views.view`."""
    running = job["ended"] is None
    span = f"for {ago(now - job['began'])}" if running else f"{ago(now - job['ended'])} ago"
    yield f"{job['id']}: {job['standing']} {span}, by {job['owner']}"
    if job["reason"]:
        yield job["reason"]
    rate = f", {job['samples_per_s']:.0f} samples/s" if running and job["samples_per_s"] else ""
    yield f"step {job['step']} of {job['train_steps']}{rate}"
    for phase, metrics in job["metrics"].items():
        yield f"{phase}: {show_metrics(metrics)}"
    yield f"run directory: {short_url(job['run_url'])}"
    if "processes" in job:
        yield ""
        yield from table(units_of(job), width)
    if job["restarts"]:
        yield ""
        yield f"restarts: {job['restarts']}"
        for reason in job.get("reasons", ()):
            yield f"  {reason}"
    if job["events"]:
        yield ""
        for event in job["events"][-SHORT:]:
            yield event_line(event)


def units_of(job: Mapping[str, Any]) -> list[Column]:
    """Return the table of the units of a job."""
    rows = [(i, each, unit) for i, each in enumerate(job["processes"]) for unit in each["units"]]
    waits = [each["waits"].get(unit) for _, each, unit in rows]
    return [
        Column("unit", [unit for *_, unit in rows]),
        Column("step", [_step(each["steps"], unit) for _, each, unit in rows], right=True),
        Column("process", [str(i) for i, *_ in rows], 2, right=True),
        Column("life", [str(each["life"]) for _, each, _ in rows], 4, right=True),
        Column("host", [each["host"] for _, each, _ in rows], 3),
        Column("Dask worker", [each["address"] for _, each, _ in rows], 1),
        Column("waits for", [f"{wait[0]} ({wait[1]:.0f} s)" if wait else "" for wait in waits]),
    ]


def _step(steps: Mapping[str, int], unit: str) -> str:
    """Return the step of a worker; nothing for a server."""
    kind, group, _ = unit.split("-")
    return str(steps[group]) if kind == "worker" and group in steps else ""


def event_line(event: Mapping[str, Any]) -> str:
    """Return a line for an event that is neither metrics nor steps."""
    kind = event["event"]
    texts = {
        "checkpoint": "checkpoint of step {step}: {url}",
        "placed": "life {life}: units placed in {n} processes",
        "restart": "life {life}: {reason}",
    }
    facts = {**event, "n": len(event.get("processes", ()))}
    text = texts[kind].format(**facts) if kind in texts else str(event.get("message") or kind)
    when = time.strftime("%H:%M:%S", time.localtime(event["time"]))
    unit = event.get("unit", "driver")
    return f"{when}  {text}" if unit == "driver" or text.startswith(unit) else f"{when}  {unit}: {text}"
