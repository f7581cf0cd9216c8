"""StoredRun: read a run directory at any URL, also while the run is running, without writing to it."""

from __future__ import annotations

import functools
import posixpath
import re
from typing import Any

from singa_dask import fs
from singa_dask.conf.files.yaml_text import read_plain
from singa_dask.errors import ConfigError
from singa_dask.observe.event_texts import layer_metrics
from singa_dask.observe.files.heartbeat import is_alive
from singa_dask.observe.files.journal import is_in_use, read_objects
from singa_dask.observe.files.run_directory import COMMANDS, METRICS, read_summary

PHASES = ("train", "validation", "test")
COLUMNS = ("step", "phase", "group", "time", "epoch", "lr", "samples_per_s", "wait_data_ms", "wait_params_ms")
"""The first columns of a table of metrics. Columns for the metrics of layers follow."""


class StoredRun:
    """A run whose files are read when they are needed.

    Raises `ConfigError` if the URL is not a run directory.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.name = posixpath.basename(fs.absolute(self.url))
        if not fs.exists(fs.join(self.url, "resolved.yaml")):
            raise ConfigError(f"{url}: no run is here. Expected a run directory, with resolved.yaml.{_runs_in(url)}")

    @functools.cached_property
    def job(self) -> dict[str, Any]:
        """The job with all defaults."""
        url = fs.join(self.url, "resolved.yaml")
        job = read_plain(fs.read_bytes(url).decode(errors="replace"), url)
        return job if isinstance(job, dict) else {}

    @functools.cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The metrics events in ``metrics.jsonl``. An incomplete last line is left out."""
        events = read_objects(fs.join(self.url, METRICS))
        return [event for event in events if event.get("event") == "metrics" and event.get("phase") in PHASES]

    def metrics_table(self) -> tuple[list[str], list[list[Any]]]:
        """Return the names of the columns, and a row for each metrics event; missing values are None."""
        measured = [(event, layer_metrics(event)) for event in self.metrics]
        # the columns of COLUMNS come first, even if a metric has the same name
        names = list(dict.fromkeys(name for _, metrics in measured for name in metrics))
        rows = [[*map(event.get, COLUMNS), *map(metrics.get, names)] for event, metrics in measured]
        return [*COLUMNS, *names], rows

    @functools.cached_property
    def commands(self) -> list[dict[str, Any]]:
        """An entry for each start and resume of the run."""
        return read_objects(fs.join(self.url, COMMANDS))

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """The content of ``summary.json``; empty while the run is running, or if it was killed."""
        summary = read_summary(self.url)
        # ignore a summary that was written before the last resume
        return summary if summary.get("resumes", len(self.commands) - 1) == len(self.commands) - 1 else {}

    @functools.cached_property
    def state(self) -> str:
        """The state of the run: done, failed, stopped, running, or lost.

        A run without a summary is running if a process writes to its directory, else lost. On a local disk only
        processes of this machine are seen, on a remote file system all processes.
        """
        if self.summary:
            return str(self.summary.get("state", "lost"))
        is_running = is_in_use(fs.join(self.url, COMMANDS)) or is_alive(self.url)
        return "running" if is_running else "lost"


def _runs_in(url: str) -> str:
    """Return a sentence that names the runs in a directory; empty if there are none."""
    names = fs.ls(url) if fs.is_dir(url) else []
    runs = [name for name in names if fs.exists(fs.join(url, name, "resolved.yaml"))]
    return f" Runs in it: {', '.join(runs[-5:])}{' and older ones' if len(runs) > 5 else ''}." if runs else ""


def short_names(runs: list[StoredRun]) -> list[str]:
    """Return short names of runs: the ends of their URLs, as long as needed to tell runs apart."""
    parts = [fs.absolute(run.url).split("/") for run in runs]
    for n in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(each[-n:]) for each in parts]
        if len(set(names)) == len({run.url for run in runs}):
            return names
    return [run.url for run in runs]


def run_of(url: str, otherwise: str = "pass its job: job=, or --job.") -> str:
    """Return the run directory for the URL of a run directory, its checkpoint directory or a checkpoint.

    ``otherwise`` is the advice in the error for a checkpoint without a run.

    Raises
    ------
    ConfigError
        The URL does not belong to a run.
    """
    parent, _, name = url.rpartition("/")
    if re.fullmatch(r"step-\d+", name):
        url = parent.removesuffix("/checkpoint")
    elif name == "checkpoint":
        url = parent
    try:
        return StoredRun(url).url
    except ConfigError as error:
        raise ConfigError(f"{error} For a checkpoint without a run, {otherwise}") from None
