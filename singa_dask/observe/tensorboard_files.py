"""TensorboardFiles: the metrics of a run as event files of TensorBoard, written by tensorboardX."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from singa_dask.data import fs
from singa_dask.lazy import require
from singa_dask.observe.journal import read_objects
from singa_dask.observe.progress import layer_metrics
from singa_dask.observe.run_directory import METRICS

TENSORBOARD = "tensorboard"
"""Directory of the event files in a run directory."""
RATES = ("epoch", "lr", "samples_per_s", "wait_data_ms", "wait_params_ms")
FLUSH_S = 2.0
UPLOAD_S = 10.0
"""Least time between two uploads of all files to a remote run directory, in seconds, and as a multiple of the time that
one takes."""
UPLOAD_SHARE = 20


def scalars(event: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield name and value of the numbers of a metrics event that are finite."""
    for name, value in (*layer_metrics(event).items(), *((name, event.get(name)) for name in RATES)):
        if isinstance(value, int | float) and math.isfinite(value):
            yield name, float(value)


class TensorboardFiles:
    """Writes ``tensorboard/<phase>/events.out.tfevents...`` in a run directory; ``<phase>-group-<n>`` for other groups.

    They are written anew from ``metrics.jsonl`` when a run begins or is resumed, and so hold each step once.

    Parameters
    ----------
    run_url : str

    Raises
    ------
    ConfigError
        tensorboardX is not installed.
    """

    name = "tensorboard"

    def __init__(self, run_url: str) -> None:
        what = "event files of TensorBoard"
        self._writers: Any = require("tensorboardX.event_file_writer", "tensorboard", what)
        self._events: Any = require("tensorboardX.proto.event_pb2", "tensorboard", what)
        self._summaries: Any = require("tensorboardX.proto.summary_pb2", "tensorboard", what)
        self._run_url = run_url
        self._url = fs.join(run_url, TENSORBOARD)
        self._staging: tempfile.TemporaryDirectory[str] | None = None
        self._directory: Path | None = None
        self._files: dict[str, Any] = {}
        self._newest: dict[str, int] = {}
        self._flush_after = 0.0

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Write the metrics of an event."""
        if self._directory is None:
            self._begin()
        if event["event"] == "metrics":
            self._add(event)
            if time.monotonic() >= self._flush_after:
                self._flush()

    def close(self) -> None:
        """Close all files."""
        if self._directory is not None:
            self._flush()
        for file in self._files.values():
            file.close()
        if self._staging is not None:
            self._staging.cleanup()

    def _begin(self) -> None:
        """Replace the event files by new ones with the metrics so far."""
        fs.remove_tree(self._url)
        self._directory = fs.local_path(self._url)
        if self._directory is None:
            self._staging = tempfile.TemporaryDirectory(prefix="singa-dask-tensorboard-")
            self._directory = Path(self._staging.name)
        for event in read_objects(fs.join(self._run_url, METRICS)):
            if event.get("event") == "metrics":
                self._add(event)

    def _add(self, event: Mapping[str, Any]) -> None:
        group = int(event.get("group", 0))
        name = f"{event['phase']}-group-{group}" if group else str(event["phase"])
        step = int(event["step"])
        if step <= self._newest.get(name, -1):
            return
        self._newest[name] = step
        values = [self._summaries.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(event)]
        summary = self._summaries.Summary(value=values)
        self._file(name).write_event(self._events.Event(wall_time=event["time"], step=step, summary=summary))

    def _file(self, name: str) -> Any:
        if name not in self._files:
            assert self._directory is not None
            folder = self._directory / name
            folder.mkdir(parents=True, exist_ok=True)
            file = self._files[name] = self._writers.EventsWriter(str(folder / "events"))
            # a TensorBoard that is open drops what it has read from the files before
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            file.write_event(self._events.Event(wall_time=time.time(), step=0, session_log=start))
        return self._files[name]

    def _flush(self) -> None:
        """Write what is buffered; on a remote file system all files again."""
        assert self._directory is not None
        started = time.monotonic()
        for file in self._files.values():
            file.flush()
        if self._staging is None:
            self._flush_after = time.monotonic() + FLUSH_S
            return
        for path in self._directory.rglob("events.*"):
            fs.write_atomic(fs.join(self._url, path.relative_to(self._directory).as_posix()), path.read_bytes())
        now = time.monotonic()
        self._flush_after = now + max(UPLOAD_S, UPLOAD_SHARE * (now - started))
