"""``show``: what a run was, how it ended, and where its time went."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from singa_dask.cli.echo import echo
from singa_dask.cli.tables import columns
from singa_dask.observe import short_url, to_json
from singa_dask.observe.run_facts import facts_of
from singa_dask.observe.stored_run import StoredRun
from singa_dask.runtime.checkpoints.lookup import find_steps

WORDS = {"compute": "computing, tests, checkpoints", "data": "waiting for data", "params": "waiting for params"}
MAX_DEVICES = 8


def show(url: str, as_json: bool, as_csv: bool) -> None:
    """Describe a run."""
    if as_json and as_csv:
        raise click.UsageError("--json describes the run, and --csv prints its metrics. Give one of them.")
    run = StoredRun(url)
    if as_csv:
        sys.stdout.write(_table(run))
        return
    facts = {**facts_of(run), "checkpoints": find_steps(url)}
    echo(to_json(facts, indent=2) if as_json else "\n".join(_lines(facts)))


def _table(run: StoredRun) -> str:
    """Return the metrics as CSV."""
    names, rows = run.metrics_table()
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([names, *rows])
    return out.getvalue()


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the description."""
    why = ": it has no summary, so it was killed, or runs on another machine" if facts["state"] == "unknown" else ""
    yield f"{facts['id']}: {facts['state']}{why}"
    if facts.get("reason"):
        yield f"  {facts['reason']}"
    for sentence in facts["learning"].get("sentences", ()):
        yield f"  {sentence}"
    yield ""
    yield from columns([(name, text) for name, text in _rows(facts) if text])
    if facts["metrics"]:
        yield ""
        yield from _metrics(facts["metrics"])
    if facts["time"]:
        yield ""
        yield "time of training"
        yield from columns([(WORDS[kind], f"{100 * share:.1f} %") for kind, share in facts["time"].items()], (1,), "  ")
    if facts["step_parts"]:
        yield ""
        yield "profiled step (ms)"
        parts = facts["step_parts"].items()
        yield from columns([(name.removesuffix("_ms"), _number(value)) for name, value in parts], (1,), "  ")
    if facts["layers"]:
        yield ""
        yield from _layers(facts["layers"])


def _rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "job", facts["job"]
    yield "directory", short_url(facts["run"])
    if facts["started"]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(facts["started"]))
        yield "started", f"{when} on {facts['host']}, in {facts['directory']}"
    yield "command", facts["command"]
    yield "version", facts["version"]
    yield "topology", describe_topology(facts["topology"])
    yield "devices", _devices(facts["devices"])
    ahead = f" of {facts['train_steps']}" if facts["state"] != "done" and facts["train_steps"] else ""
    yield "steps", f"{facts['steps']}{ahead} in {facts['seconds']:.1f} s"
    speed = f"{facts['samples_per_s']:.0f} samples/s" if "samples_per_s" in facts else ""
    step = facts.get("step_ms", {})
    yield "speed", f"{speed}, {step['median']:.2f} ms a step (95 % within {step['p95']:.2f} ms)" if step else speed
    if facts["staleness"]:
        yield "staleness", f"{facts['staleness_mean']:.2f} updates on average"
    if facts["best"]:
        yield "best", "{metric} = {value:.4f} at step {step}".format(**facts["best"])
    if facts["resumes"]:
        yield "resumed", f"{facts['resumes']} time{'s' if facts['resumes'] > 1 else ''}"
    if facts.get("restarts"):
        again = f"{facts['recomputed_steps']} steps computed again, {facts['lost_s']:.1f} s lost"
        yield "restarts", f"{facts['restarts']}: {again}"
    if facts.get("bad_records"):
        yield "bad records", str(facts["bad_records"])
    yield "memory", f"{facts['peak_memory'] / 2**20:.0f} MiB at most a process" if facts.get("peak_memory") else ""
    yield "checkpoints", _checkpoints(facts["checkpoints"])


def describe_topology(topology: Mapping[str, Any]) -> str:
    """Return a topology in words."""
    if not topology:
        return ""
    parts = [
        f"{topology[f'n{kind}_groups']} {kind} group{'s' if topology[f'n{kind}_groups'] != 1 else ''} of "
        f"{topology[f'n{kind}s_per_group']}"
        for kind in ("worker", "server")
    ]
    n_processes = len(topology.get("processes", ()))
    in_processes = f", in {n_processes} process{'es' if n_processes > 1 else ''}" if n_processes else ""
    return f"{', '.join(parts)}{in_processes}"


def _devices(devices: Mapping[str, str]) -> str:
    names = dict.fromkeys(devices.values())
    counts = {name: list(devices.values()).count(name) for name in names}
    return ", ".join(f"{n} × {name}" for name, n in list(counts.items())[:MAX_DEVICES])


def _checkpoints(found: Mapping[int, str]) -> str:
    """Return the steps of the checkpoints, of many the first and the last ones."""
    steps = [str(step) for step in sorted(found)]
    shown = steps if len(steps) <= 8 else [*steps[:2], "...", *steps[-4:]]
    return f"steps {', '.join(shown)}" if len(steps) != 1 else f"step {steps[0]}"


def _metrics(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of the last metrics."""
    names = list(dict.fromkeys(name for each in metrics.values() for name in each if name != "step"))
    rows = [("last metrics", "step", *names)]
    for phase, each in metrics.items():
        rows.append((f"  {phase}", str(each["step"]), *(_number(each.get(name)) for name in names)))
    yield from columns(rows, range(1, len(names) + 2))


def _layers(layers: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield a table of the time of each layer."""
    names = list(dict.fromkeys(name for each in layers.values() for name in each))
    rows = [("layer", *(name.replace("_ms", " (ms)") for name in names))]
    rows += [(f"  {layer}", *(_number(each.get(name)) for name in names)) for layer, each in layers.items()]
    yield from columns(rows, range(1, len(names) + 1))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
