"""StoredRun: read a run directory at any URL, also while the run is running. Nothing is written."""

from __future__ import annotations

import functools
import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from singa_dask import fs
from singa_dask.conf.yaml_text import read_plain
from singa_dask.errors import ConfigError, text_of
from singa_dask.observe.event_texts import layer_metrics
from singa_dask.observe.journal import is_in_use, read_objects
from singa_dask.observe.run_directory import COMMANDS, METRICS, read_summary
from singa_dask.redaction import redact

PHASES = ("train", "validation", "test")
COLUMNS = ("step", "phase", "group", "time", "epoch", "lr", "samples_per_s", "wait_data_ms", "wait_params_ms")
"""First columns of a table of metrics; the metrics of layers follow."""
ABSENT = "-"
WIDTH = 60
"""Characters of a value in a comparison of two runs."""


class StoredRun:
    """A run, read from its directory as needed; ConfigError if there is none."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.name = posixpath.basename(fs.absolute(self.url))
        if not fs.exists(fs.join(self.url, "resolved.yaml")):
            raise ConfigError(f"{url}: no run is here. Expected a run directory, with resolved.yaml.{_runs_in(url)}")

    @functools.cached_property
    def job(self) -> dict[str, Any]:
        """The job with every default."""
        url = fs.join(self.url, "resolved.yaml")
        job = read_plain(fs.read_bytes(url).decode(errors="replace"), url)
        return job if isinstance(job, dict) else {}

    @functools.cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The metrics events in ``metrics.jsonl``, without an incomplete last line."""
        events = read_objects(fs.join(self.url, METRICS))
        return [event for event in events if event.get("event") == "metrics" and event.get("phase") in PHASES]

    def metrics_table(self) -> tuple[list[str], list[list[Any]]]:
        """Return the names of the columns, and a row for each metrics event; missing values are None."""
        measured = [(event, layer_metrics(event)) for event in self.metrics]
        # our columns come first, even if a metric has the same name
        names = list(dict.fromkeys(name for _, metrics in measured for name in metrics))
        rows = [[*map(event.get, COLUMNS), *map(metrics.get, names)] for event, metrics in measured]
        return [*COLUMNS, *names], rows

    @functools.cached_property
    def commands(self) -> list[dict[str, Any]]:
        """An entry for each time the run was started or resumed."""
        return read_objects(fs.join(self.url, COMMANDS))

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """The content of ``summary.json``; empty while the run is running, and if it was killed."""
        summary = read_summary(self.url)
        # a summary from before the run was resumed is outdated
        return summary if summary.get("resumes", len(self.commands) - 1) == len(self.commands) - 1 else {}

    @functools.cached_property
    def state(self) -> str:
        """The state: done, failed, stopped, running, or unknown.

        Without a summary it is unknown unless a process of this machine writes to the directory: the run was killed, or
        it is on a remote file system, or on another machine.
        """
        if self.summary:
            return str(self.summary.get("state", "unknown"))
        return "running" if is_in_use(fs.join(self.url, COMMANDS)) else "unknown"


def _runs_in(url: str) -> str:
    """Return a sentence that names the runs in a directory; empty if there are none."""
    names = fs.ls(url) if fs.is_dir(url) else []
    runs = [name for name in names if fs.exists(fs.join(url, name, "resolved.yaml"))]
    return f" Runs in it: {', '.join(runs[-5:])}{' and older ones' if len(runs) > 5 else ''}." if runs else ""


def short_names(runs: list[StoredRun]) -> list[str]:
    """Return the shortest ends of the URLs of runs that distinguish them."""
    parts = [fs.absolute(run.url).split("/") for run in runs]
    for n in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(each[-n:]) for each in parts]
        if len(set(names)) == len({run.url for run in runs}):
            return names
    return [run.url for run in runs]


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Return the values of a job by key path, as ``--set`` names them; a list of scalars is one value.

    Items of a list are named by their ``name``, e.g. ``neuralnet.layer[fc1].type``; a second one with the same name is
    ``[fc1#2]``.
    """
    if isinstance(value, Mapping) and value:
        return {
            key: each
            for name, inner in value.items()
            for key, each in flatten(inner, f"{path}.{name}" if path else str(name)).items()
        }
    if isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        values: dict[str, Any] = {}
        seen: dict[str, int] = {}
        for i, each in enumerate(value):
            name = str(each.get("name") or i) if isinstance(each, Mapping) else str(i)
            seen[name] = seen.get(name, 0) + 1
            values |= flatten(each, f"{path}[{name}{f'#{seen[name]}' if seen[name] > 1 else ''}]")
        return values
    return {path: value}


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return both values of each key that differs; None for a missing key."""
    keys = dict.fromkeys([*first, *second])
    return {key: [first.get(key), second.get(key)] for key in keys if first.get(key) != second.get(key)}


def shown_pair(*values: Any) -> list[str]:
    """Return two values as texts; long texts start shortly before the first difference."""
    texts = [_shown(value) for value in values]
    if max(map(len, texts)) <= WIDTH:
        return texts
    start = max(len(posixpath.commonprefix(texts)) - 10, 0)
    dots = "…" if start else ""
    return [f"{dots}{text[start : start + WIDTH]}{'…' if len(text) > start + WIDTH else ''}" for text in texts]


def _shown(value: Any) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) and value else json.dumps(value)


NAME = re.compile(r"^name: *(.+?) *$", re.MULTILINE)
STEPS = re.compile(r"^train_steps: *(\d+)", re.MULTILINE)


def list_runs(url: str) -> list[dict[str, Any]]:
    """Return a row for each run directory in a directory, or for the run that is the directory.

    Returns
    -------
    list of dict
        See `singa_dask.runtime.job.scheduler.views.Views.list`. ``state`` may also be ``"lost"``: there is no summary,
        and no process is known to write to the run. On remote file systems this cannot be detected.

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
        except ConfigError:  # not a run directory
            continue
        try:
            rows.append(_row_of(run))
        except Exception as error:  # files of other versions and programs may contain anything
            rows.append(_row_of_damaged(run, text_of(error)))
    return rows


def _row_of(run: StoredRun) -> dict[str, Any]:
    # parsing the whole file would take 10 ms a run
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
        "state": run.state if summary or run.state == "running" else "lost",
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


def run_of(url: str) -> str:
    """Return the run directory that a URL is or lies in; ConfigError if there is none."""
    parent, _, name = url.rpartition("/")
    if re.fullmatch(r"step-\d+", name):
        url = parent.removesuffix("/checkpoint")
    elif name == "checkpoint":
        url = parent
    try:
        return StoredRun(url).url
    except ConfigError as error:
        raise ConfigError(f"{error} For a checkpoint without a run give its job: job=, or --job.") from None
