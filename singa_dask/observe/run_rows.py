"""Rows for a list of runs, from their run directories; those of a scheduler have the same keys."""

from __future__ import annotations

import re
from typing import Any

from singa_dask.data import fs
from singa_dask.errors import ConfigError
from singa_dask.observe.journal import newest_objects
from singa_dask.observe.progress import layer_metrics
from singa_dask.observe.run_directory import METRICS
from singa_dask.observe.stored_run import StoredRun
from singa_dask.redaction import redact

NAME = re.compile(r"^name: *(.+?) *$", re.MULTILINE)
STEPS = re.compile(r"^train_steps: *(\d+)", re.MULTILINE)


def list_runs(url: str) -> list[dict[str, Any]]:
    """Return a row for each run directory in a directory, or for the run that is there.

    Returns
    -------
    list of dict
        See `singa_dask.runtime.job.jobs.Views.list`. ``state`` is also ``"lost"``: there is no summary, and nobody
        writes to the run. On other than local disks it cannot be told whether somebody does.

    Raises
    ------
    ConfigError
        There is no such directory.
    """
    if not fs.is_dir(url):
        raise ConfigError(f"--runs {url}: there is no such directory. Expected one that holds run directories.")
    urls = [url] if fs.exists(fs.join(url, "resolved.yaml")) else [fs.join(url, name) for name in fs.ls(url)]
    rows = []
    for each in urls:
        try:
            run = StoredRun(each)
        except ConfigError:  # something else that lies there
            continue
        rows.append(_row_of(run))
    return rows


def _row_of(run: StoredRun) -> dict[str, Any]:
    # parsing all of it would take 10 ms a run
    text = fs.read_bytes(fs.join(run.url, "resolved.yaml")).decode(errors="replace")
    name, steps = NAME.search(text), STEPS.search(text)
    summary, first = run.summary, run.commands[0] if run.commands else {}
    row = {
        "id": summary.get("id", run.name),
        "name": name[1] if name else "",
        "owner": first.get("owner", ""),
        "run_url": redact(fs.absolute(run.url)),
        "state": run.state if summary or run.state == "running" else "lost",
        "train_steps": int(steps[1]) if steps else 0,
        "began": first.get("time"),
        "reason": summary.get("reason", ""),
        "exit_code": summary.get("exit_code"),
    }
    return {**row, **(_end_of(run) if summary else _newest_of(run))}


def _end_of(run: StoredRun) -> dict[str, Any]:
    """Return what the summary of a run says."""
    summary, last = run.summary, run.commands[-1] if run.commands else {}
    seconds = float(summary.get("seconds", 0)) - float(last.get("seconds_before", 0))
    return {
        "step": summary.get("steps", 0),
        "loss": _loss_of(summary.get("train", {})),
        "samples_per_s": summary.get("samples_per_s"),
        "ended": float(last.get("time", 0)) + seconds,
    }


def _newest_of(run: StoredRun) -> dict[str, Any]:
    """Return what the last metrics of a run without a summary say."""
    events = newest_objects(fs.join(run.url, METRICS))
    event: dict[str, Any] = next((each for each in reversed(events) if each.get("phase") == "train"), {})
    at = event.get("time", run.commands[-1]["time"] if run.commands else 0.0)
    return {
        "step": event.get("step", -1) + 1,
        "loss": _loss_of(layer_metrics(event)),
        "samples_per_s": event.get("samples_per_s"),
        "ended": None if run.state == "running" else at,
    }


def _loss_of(metrics: dict[str, Any]) -> float | None:
    return next((metrics[name] for name in sorted(metrics) if name.endswith("loss")), None)
