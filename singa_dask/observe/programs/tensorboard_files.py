"""TensorboardFiles: pass the metrics of a run to TensorBoard, with tensorboardX."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from singa_dask import fs
from singa_dask.lazy import require
from singa_dask.observe.event_texts import scalars

TENSORBOARD = "tensorboard"
"""Directory of the event files in a run directory."""
FLUSH_S = 2.0
UPLOAD_S = 10.0
"""Minimum time between two uploads of all files to a remote run directory: `UPLOAD_S` seconds, and `UPLOAD_SHARE` times
the duration of an upload."""
UPLOAD_SHARE = 20


class TensorboardFiles:
    """Writes ``tensorboard/<phase>[-group-<n>]/events.out.tfevents...`` in a run directory.

    A resumed run or a new driver adds new files. Each file records its first step, and TensorBoard ignores the data of
    older files from this step on.

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
        self._url = fs.join(run_url, TENSORBOARD)
        self._staging: tempfile.TemporaryDirectory[str] | None = None
        self._files: dict[str, Any] = {}
        self._flush_after = 0.0

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Write the metrics of an event."""
        if event["event"] == "metrics":
            self._add(event)
            if time.monotonic() >= self._flush_after:
                self._flush()

    def close(self, taken_over: bool = False) -> None:
        """Close all files. Upload nothing if another process has taken over the run."""
        if not taken_over:
            self._flush()
        for file in self._files.values():
            file.close()
        if self._staging is not None:
            self._staging.cleanup()

    @functools.cached_property
    def _directory(self) -> Path:
        """Directory to write to: in the run directory; if that is remote, a temporary directory."""
        if (directory := fs.local_path(self._url)) is not None:
            return directory
        self._staging = tempfile.TemporaryDirectory(prefix="singa-dask-tensorboard-")
        return Path(self._staging.name)

    def _add(self, event: Mapping[str, Any]) -> None:
        group, step = int(event.get("group", 0)), int(event["step"])
        name = f"{event['phase']}-group-{group}" if group else str(event["phase"])
        values = [self._summaries.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(event)]
        summary = self._summaries.Summary(value=values)
        self._file(name, step).write_event(self._events.Event(wall_time=event["time"], step=step, summary=summary))

    def _file(self, name: str, step: int) -> Any:
        if name not in self._files:
            folder = self._directory / name
            folder.mkdir(parents=True, exist_ok=True)
            # TensorBoard reads files in the order of their names, which contain the time in seconds; add nanoseconds
            file = self._writers.EventsWriter(str(folder / "events"), f".{time.time_ns() % 10**9:09}")
            self._files[name] = file
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            file.write_event(self._events.Event(wall_time=time.time(), step=step, session_log=start))
        return self._files[name]

    def _flush(self) -> None:
        """Flush all files; upload them again if the run directory is remote."""
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
