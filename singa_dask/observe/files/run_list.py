"""List the runs in a directory, in the same form as the jobs on a scheduler."""

from __future__ import annotations

import re
from typing import Any

from singa_dask import fs
from singa_dask.errors import ConfigError, text_of
from singa_dask.observe.event_texts import layer_metrics
from singa_dask.observe.files.stored_run import StoredRun
from singa_dask.redaction import redact

NAME = re.compile(r"^name: *(.+?) *$", re.MULTILINE)
STEPS = re.compile(r"^train_steps: *(\d+)", re.MULTILINE)


def list_runs(url: str) -> list[dict[str, Any]]:
    """Return a row for each run directory in a directory.

    If the directory is itself a run, return its row.

    Returns
    -------
    list of dict
        Rows like those of `singa_dask.runtime.job.scheduler.views.Views.list`. In addition, ``state`` may be
        ``"lost"``, see `StoredRun.state`, or ``"unknown"`` for a run whose files cannot be read.

    Raises
    ------
    ConfigError
        There is no such directory.
    """
    if not fs.is_dir(url):
        raise ConfigError(f"--runs {url}: no such directory. Expected one that contains run directories.")
    urls = [url] if fs.exists(fs.join(url, "resolved.yaml")) else [fs.join(url, name) for name in fs.ls(url)]
    rows = []
    for each in urls:
        try:
            run = StoredRun(each)
        except ConfigError:  # the directory is not a run directory
            continue
        try:
            rows.append(_row_of(run))
        except Exception as error:  # files of other versions and other programs may contain anything
            rows.append(_row_of_damaged(run, text_of(error)))
    return rows


def _row_of(run: StoredRun) -> dict[str, Any]:
    # search the text by patterns, because parsing the whole file would take 10 ms for each run
    text = fs.read_bytes(fs.join(run.url, "resolved.yaml")).decode(errors="replace")
    name, steps = NAME.search(text), STEPS.search(text)
    summary, last = run.summary, run.commands[-1] if run.commands else {}
    # without a summary, the last metrics show the progress
    events = [] if summary else run.metrics
    event: dict[str, Any] = next((each for each in reversed(events) if each["phase"] == "train"), {})
    ended = None if run.state == "running" else event.get("time", float(last.get("time", 0)))
    if summary:
        ended = float(last.get("time", 0)) + float(summary.get("seconds", 0)) - float(last.get("seconds_before", 0))
    metrics = summary.get("train", {}) if summary else layer_metrics(event)
    return {
        "id": summary.get("id", run.name),
        "name": name[1] if name else "",
        "owner": run.commands[0].get("owner", "") if run.commands else "",
        "run_url": redact(fs.absolute(run.url)),
        "state": run.state,
        "train_steps": int(steps[1]) if steps else 0,
        "began": _number(run.commands[0].get("time") if run.commands else None),
        "reason": str(summary.get("reason", "")),
        "exit_code": summary.get("exit_code"),
        "step": int(summary.get("steps", 0) if summary else event.get("step", -1) + 1),
        "loss": _number(next((metrics[name] for name in sorted(metrics) if name.endswith("loss")), None)),
        "samples_per_s": _number((summary or event).get("samples_per_s")),
        "ended": ended,
    }


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _row_of_damaged(run: StoredRun, why: str) -> dict[str, Any]:
    """Return the row of a run whose files cannot be read."""
    row = {"id": run.name, "name": "", "owner": "", "run_url": redact(fs.absolute(run.url)), "state": "unknown"}
    numbers = {"train_steps": 0, "step": 0, "began": 0.0, "ended": 0.0}
    nothing = dict.fromkeys(("exit_code", "loss", "samples_per_s"))
    return {**row, **numbers, **nothing, "reason": f"its files are damaged or of another version: {why}"}
