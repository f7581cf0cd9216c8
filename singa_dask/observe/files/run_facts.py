"""Summarise a run as plain values: how it ended, its best and last metrics, and where its time went."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any

from singa_dask.conf.metrics import is_less_better, split_metric
from singa_dask.observe.event_texts import layer_metrics
from singa_dask.observe.files.stored_run import PHASES, StoredRun
from singa_dask.observe.learning import AREAS

RESULT = (
    "state", "reason", "exit_code", "steps", "seconds", "samples_per_s", "step_ms", "wait_ms", "restarts",
    "recomputed_steps", "lost_s", "resumes", "peak_memory", "bad_records", "bytes", "updates",
    "staleness_mean", "step_parts",
)  # fmt: skip
BEST_BY = ("accuracy", "loss")
"""Metrics that determine the best step if the job names none. The first of them that was measured counts."""


def facts_of(run: StoredRun) -> dict[str, Any]:
    """Return the facts about a run as plain values, also while it is running."""
    first = run.commands[0] if run.commands else {}
    return {
        "run": run.url,
        "job": str(run.job.get("name", "")),
        "id": run.summary.get("id", run.name),
        **result_of(run),
        "started": first.get("time"),
        "host": first.get("host", ""),
        "directory": first.get("directory", ""),
        "command": shlex.join(map(str, run.commands[-1].get("arguments", ()))) if run.commands else "",
        "version": first.get("version", ""),
        "topology": run.summary.get("topology") or _topology(run.job.get("cluster", {})),
        "devices": run.summary.get("devices", {}),
        "train_steps": run.job.get("train_steps", 0),
        "best": best_metric(run),
        "metrics": _last_metrics(run),
        "time": time_shares(run),
        "learning": run.summary.get("learning", {}),
        "staleness": run.summary.get("staleness", {}),
        "layers": run.summary.get("layers", {}),
        "step_parts": run.summary.get("step_parts", {}),
    }


def result_of(run: StoredRun) -> dict[str, Any]:
    """Return how a run ended; for a run without a summary, its progress."""
    result = {key: run.summary[key] for key in RESULT if key in run.summary}
    last = max((int(event["step"]) for event in run.metrics), default=-1)
    defaults = {"steps": last + 1, "seconds": _seconds(run), "resumes": max(len(run.commands) - 1, 0)}
    return {"state": run.state, **defaults, **result}


def _seconds(run: StoredRun) -> float:
    """Return the seconds for which a run without a summary has run, until now or until its last metrics."""
    if not run.commands:
        return 0.0
    last = run.commands[-1]
    end = time.time() if run.state == "running" else max((float(each["time"]) for each in run.metrics), default=0.0)
    return round(float(last.get("seconds_before", 0)) + max(end - float(last["time"]), 0.0), 3)


def _topology(cluster: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("nworker_groups", "nworkers_per_group", "nserver_groups", "nservers_per_group")
    return {key: cluster[key] for key in keys if key in cluster}


def best_metric(run: StoredRun) -> dict[str, Any]:
    """Return ``metric``, ``value`` and ``step`` of the best test or validation; empty if there was none.

    The first of these metrics that was measured determines the best step: the metric that the job names in
    ``early_stopping`` or ``keep_checkpoints``; an area under a ROC curve; accuracy; loss. For each of the last three,
    the value of a validation comes before the value of a test.
    """
    for phase, name, is_less in _candidates(run.job):
        measured = [(event, layer_metrics(event).get(name)) for event in run.metrics if event["phase"] == phase]
        values = [(float(value), int(event["step"])) for event, value in measured if value is not None]
        if values:
            value, step = min(values) if is_less else max(values, key=lambda each: (each[0], -each[1]))
            return {"metric": f"{phase}.{name}", "value": value, "step": step}
    return {}


def _candidates(job: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Return the metrics that may determine the best step, in order.

    Each is a tuple (phase, name, whether less is better).
    """
    named = []
    for key in ("early_stopping", "keep_checkpoints"):
        block = job.get(key) or {}
        metric = str(block.get("metric") or "")
        if split_metric(metric)[0]:
            named.append((*split_metric(metric), bool(is_less_better(metric, block.get("mode", "auto")))))
    areas = [name for name in job.get("metrics") or () if name in AREAS]
    others = [(phase, name, name == "loss") for phase in ("validation", "test") for name in (*areas, *BEST_BY)]
    return [*named, *others]


def _last_metrics(run: StoredRun) -> dict[str, dict[str, Any]]:
    """Return, by phase, the last metrics of the first worker group and the step of these metrics."""
    last: dict[str, dict[str, Any]] = {}
    for event in run.metrics:
        if event.get("group", 0) == 0:
            last[event["phase"]] = {"step": event["step"], **layer_metrics(event)}
    return {phase: last[phase] for phase in PHASES if phase in last}


def time_shares(run: StoredRun) -> dict[str, float]:
    """Return the shares of training time in which workers waited for data, waited for params, or computed.

    Computing is all of the remaining time, including tests and checkpoints. The result is empty if metrics were
    reported less than twice.
    """
    starts = [float(each["time"]) for each in run.commands]
    waited = {"data": 0.0, "params": 0.0}
    elapsed = 0.0
    previous: dict[int, Mapping[str, Any]] = {}
    for event in run.metrics:
        if event["phase"] != "train":
            continue
        group = int(event.get("group", 0))
        before, previous[group] = previous.get(group), event
        if before is None or any(before["time"] < start <= event["time"] for start in starts):
            continue
        n_steps = event["step"] - before["step"]
        elapsed += event["time"] - before["time"]
        for kind in waited:
            waited[kind] += 1e-3 * n_steps * (event.get(f"wait_{kind}_ms") or 0.0)
    if elapsed <= 0:
        return {}
    shares = {kind: min(seconds / elapsed, 1.0) for kind, seconds in waited.items()}
    return {"compute": max(1.0 - sum(shares.values()), 0.0), **shares}
