"""The run directory: what a job was told, what it measured and said, and how it ended, at any URL.

::

    job.yaml        the job as given            metrics.jsonl   one object an event
    resolved.yaml   with every default          log/<unit>.log  what each worker and server said
    checkpoint/     made by the runtime         summary.json    written last
    bad_records.jsonl   records that were passed over, if there are any
"""

from __future__ import annotations

import json
import math
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from singa_dask.data import fs
from singa_dask.errors import ConfigError

__all__ = ["Journal", "RunDirectory", "new_job_id", "newest_run", "to_json"]

# of an event; what carried it may add its own
BAD_RECORD_KEYS = ("unit", "layer", "url", "block", "row", "rows", "reason")


def new_job_id(name: str) -> str:
    """Make an id for a run of the job ``name``: ``<name>-<YYYYmmdd-HHMMSS>-<4 hex digits>``, fit for a file name."""
    return f"{_plain(name)}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "job"


def newest_run(parent: str, name: str) -> str:
    """Return the URL of the latest run of the job ``name`` in a directory of runs that has a checkpoint.

    Raises
    ------
    ConfigError
        There is none.
    """
    pattern = re.compile(re.escape(_plain(name)) + r"-\d{8}-\d{6}-[0-9a-f]{4}")
    runs = [run for run in (fs.ls(parent) if fs.exists(parent) else []) if pattern.fullmatch(run)]
    for run in reversed(runs):
        if fs.exists(fs.join(parent, run, "checkpoint")):
            return fs.join(parent, run)
    raise ConfigError(f"{parent}: no run of job {name!r} with a checkpoint. Say which one: --resume URL, or --run-dir.")


def to_json(value: Any, indent: int | None = None) -> str:
    """Write a value as JSON; a number that is not finite becomes null, as JSON has no word for it."""
    return json.dumps(_finite(value), indent=indent, default=float)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Journal:
    """A text file that grows by lines.

    On a local disk every line is written through at once. Elsewhere, where files cannot grow, the lines are
    kept and the whole file is written by `save`.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._lines: list[str] = []
        self._file: IO[str] | None = None
        path = fs.local_path(url)
        if path is not None:
            self._file = _append_to(path)
        elif fs.exists(url):
            self._lines = fs.read_bytes(url).decode().splitlines(keepends=True)

    def add(self, line: str) -> None:
        """Append a line, given without its end."""
        if self._file is None:
            self._lines.append(f"{line}\n")
        else:
            self._file.write(f"{line}\n")
            self._file.flush()

    def save(self) -> None:
        """Make sure that all lines so far can be read at the URL."""
        if self._file is None:
            fs.write_atomic(self.url, "".join(self._lines).encode())

    def close(self) -> None:
        """Save, and close what is open."""
        self.save()
        if self._file is not None:
            self._file.close()


def _append_to(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a", encoding="utf-8")


class RunDirectory:
    """Where one run of a job is written down; made when the job starts.

    Use it in a ``with`` block; ``on_event`` is called by one thread at a time.

    Parameters
    ----------
    url : str
    job_text : str
        The job file as given.
    resolved_text : str
        The job with every default.
    goes_on : bool
        A run that is already there is continued; otherwise it is refused.

    Raises
    ------
    ConfigError
        Another run is there.
    """

    def __init__(self, url: str, job_text: str, resolved_text: str, goes_on: bool = False) -> None:
        if not goes_on and fs.exists(fs.join(url, "job.yaml")):
            raise ConfigError(f"{url}: a run is already there. Continue it with --resume, or choose another --run-dir.")
        self.url = url
        self._texts = {"job.yaml": job_text, "resolved.yaml": resolved_text}
        self._journals: dict[str, Journal] = {}

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Write down an event: metrics and checkpoints in ``metrics.jsonl``, a unit's words in its log, bad records.

        Raises
        ------
        DataError
            The URL cannot be written to.
        """
        kind = event["event"]
        if kind == "started":
            for name, text in self._texts.items():
                fs.write_atomic(fs.join(self.url, name), text.encode())
        elif kind == "log":
            self._journal(f"log/{event['unit']}.log").add(log_line(event))
        elif kind in ("metrics", "checkpoint"):
            self._journal("metrics.jsonl").add(to_json(event))
        elif kind == "bad_record":
            facts = {key: event[key] for key in BAD_RECORD_KEYS if key in event}
            self._journal("bad_records.jsonl").add(to_json(facts))
        if kind == "checkpoint":
            self._journal("metrics.jsonl").save()

    def _journal(self, name: str) -> Journal:
        if name not in self._journals:
            self._journals[name] = Journal(fs.join(self.url, name))
        return self._journals[name]

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``."""
        fs.write_atomic(fs.join(self.url, "summary.json"), f"{to_json(summary, indent=2)}\n".encode())

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *error: object) -> None:
        for journal in self._journals.values():
            journal.close()


def log_line(event: Mapping[str, Any]) -> str:
    """Write a log event as ``2015-11-02 12:00:00 INFO message``, in local time."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["time"]))
    return f"{when} {event['level']} {event['message']}"
