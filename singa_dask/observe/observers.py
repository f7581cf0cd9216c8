"""Observers: pass the metrics of a run to TensorBoard, by tensorboardX, and to an MLflow server."""

from __future__ import annotations

import functools
import hashlib
import logging
import math
import os
import posixpath
import re
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import copy_context
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from singa_dask import fs
from singa_dask.errors import ConfigError, Problem, TakenOverError
from singa_dask.lazy import require
from singa_dask.observe.event_texts import layer_metrics
from singa_dask.observe.run_directory import METRICS, first_command
from singa_dask.observe.stored_run import StoredRun, flatten
from singa_dask.redaction import redact

logger = logging.getLogger(__name__)

TENSORBOARD = "tensorboard"
"""Directory of the event files in a run directory."""
RATES = ("epoch", "lr", "samples_per_s", "wait_data_ms", "wait_params_ms")
FLUSH_S = 2.0
UPLOAD_S = 10.0
"""Least seconds between two uploads of all files to a remote run directory, also as a multiple of an upload's time."""
UPLOAD_SHARE = 20


def scalars(event: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield name and value of the finite numbers of a metrics event."""
    for name, value in (*layer_metrics(event).items(), *((name, event.get(name)) for name in RATES)):
        if isinstance(value, int | float) and math.isfinite(value):
            yield name, float(value)


class TensorboardFiles:
    """Writes ``tensorboard/<phase>/events.out.tfevents...`` in a run directory; ``<phase>-group-<n>`` for other groups.

    A resumed run, or another driver, adds files. Each file records its first step, and TensorBoard ignores older files
    from that step on.

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
        """Close all files; upload nothing if another process has ``taken_over``."""
        if not taken_over:
            self._flush()
        for file in self._files.values():
            file.close()
        if self._staging is not None:
            self._staging.cleanup()

    @functools.cached_property
    def _directory(self) -> Path:
        """Directory to write to: in the run directory, or a temporary one if that is remote."""
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
            # files are read in the order of their names, which contain the second
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


# defaults: give up soon if the server does not answer, and print and report nothing
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
MAX_QUEUE = 10_000
"""With more waiting events the oldest are dropped."""
BATCHES = {"metrics": 1000, "params": 100}
"""Most entries of a request, limits of MLflow."""
SEND_S = 2.0
AGAIN_S = 5.0
"""Seconds between two requests with metrics, and between two attempts to reach the server."""
CLOSE_S = 10.0
"""Seconds that the end of a job may wait for the server."""
MAX_FILE_BYTES = 50_000_000
FILES = ("job.yaml", "resolved.yaml", "commands.jsonl", METRICS, "summary.json", "bad_records.jsonl")
STATUS = {"done": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
TAG = "singa_dask.run"


class MlflowRun:
    """Sends params, metrics and, at its end, small files of a run to an MLflow server.

    When a run is resumed, and after each error, the server's run is found by a tag, and asked what it already has. So a
    server that was down gets everything once. `on_event` never waits.

    Parameters
    ----------
    run_url : str
    uri : str
        Tracking URI of MLflow, e.g. ``http://host:5000``.

    Raises
    ------
    ConfigError
        MLflow is not installed.
    """

    name = "mlflow"

    def __init__(self, run_url: str, uri: str) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._mlflow: Any = require("mlflow", "mlflow", "MLflow")
        self._entities: Any = require("mlflow.entities", "mlflow", "MLflow")
        self.run_url = run_url
        self.uri = uri
        self._client: Any = None
        self._run_id = ""
        self._newest: dict[str, int] = {}
        self._queue: deque[Mapping[str, Any]] = deque()
        self._unsent: deque[Mapping[str, Any]] = deque(maxlen=MAX_QUEUE)
        self._is_failing = self._is_lacking = False
        self._is_taken_over = False
        self._news = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread()

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Pass an event to the thread."""
        if not self._thread.is_alive() and not self._closing.is_set():
            # its log messages belong to the job of this thread
            work = partial(copy_context().run, self._work)
            self._thread = threading.Thread(target=work, name="mlflow", daemon=True)
            self._thread.start()
        if event["event"] == "metrics":
            self._queue.append(event)
            self._news.set()

    def close(self, taken_over: bool = False) -> None:
        """Send the rest, if the server takes it within `CLOSE_S`; nothing if another process has ``taken_over``."""
        self._is_taken_over = taken_over
        self._closing.set()
        self._news.set()
        if taken_over:
            return
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        if self._thread.is_alive() or self._is_failing or self._is_lacking:
            message = "MLflow at %s lacks some data of this run; %s has everything."
            logger.warning(message, redact(self.uri), redact(self.run_url))

    def _work(self) -> None:
        """Send new data until the run ends; runs in the thread."""
        while True:
            self._news.wait()
            self._news.clear()
            is_last = self._closing.is_set()
            if self._is_taken_over:
                return
            try:
                self._send()
                if is_last:
                    self._finish()
                self._is_failing = False
                self._closing.wait(SEND_S)
            except Exception as error:  # MLflow and its server raise anything
                self._on_error(error)
                if not is_last:
                    self._closing.wait(AGAIN_S)
                    self._news.set()
            if is_last:
                return

    def _on_error(self, error: Exception) -> None:
        """Reopen the run at the next attempt, because it is unknown what the server has received."""
        if not (self._is_failing or self._closing.is_set()):
            message = "MLflow at %s: %s. The job continues, and tries again."
            # only the first line, as the rest may be long
            line = next(iter(str(error).splitlines()), type(error).__name__)
            logger.warning(message, redact(self.uri), redact(line)[:200].rstrip("."))
        self._is_failing = True
        self._run_id = ""

    def _send(self) -> None:
        while self._queue:
            self._is_lacking |= len(self._unsent) == MAX_QUEUE
            self._unsent.append(self._queue.popleft())
        if not self._run_id:
            self._open()
        for batch in _batches(self._new_metrics(), BATCHES["metrics"]):
            self._client.log_batch(self._run_id, metrics=batch)
        self._unsent.clear()

    def _new_metrics(self) -> Iterator[Any]:
        """Yield the metrics of unsent events that the server does not have."""
        for event in self._unsent:
            group = int(event.get("group", 0))
            prefix = f"group-{group}/{event['phase']}" if group else event["phase"]
            for name, value in scalars(event):
                key = _plain(f"{prefix}/{name}")
                if event["step"] > self._newest.get(key, -1):
                    self._newest[key] = event["step"]
                    yield self._entities.Metric(key, value, int(1e3 * event["time"]), int(event["step"]))

    def _open(self) -> None:
        """Find the run on the server, and what it already has; or create it."""
        client = self._client = self._mlflow.MlflowClient(tracking_uri=self.uri)
        run = StoredRun(self.run_url)
        name = str(run.job.get("name") or "job")
        experiment = client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment else client.create_experiment(name)
        began = first_command(self.run_url).get("time", "")
        tag = hashlib.sha256(os.fsencode(f"{self.run_url} {began}")).hexdigest()[:16]
        known: Mapping[str, Any] = {}
        if runs := client.search_runs([experiment_id], f"tags.`{TAG}` = '{tag}'"):
            run_id, known = runs[0].info.run_id, runs[0].data.params
            client.update_run(run_id, status="RUNNING")
            keys = runs[0].data.metrics
            self._newest = {key: max(each.step for each in client.get_metric_history(run_id, key)) for key in keys}
        else:
            tags = {TAG: tag, "singa_dask.run_directory": redact(self.run_url)}
            run_id = client.create_run(experiment_id, tags=tags, run_name=posixpath.basename(self.run_url)).info.run_id
            self._newest = {}
        params = [
            self._entities.Param(_plain(path), str(value))
            for path, value in flatten(run.job).items()
            # a server refuses other values for params that it has
            if value not in (None, "", [], {}) and _plain(path) not in known and path != "mlflow"
        ]
        for batch in _batches(params, BATCHES["params"]):
            client.log_batch(run_id, params=batch)
        self._run_id = run_id

    def _finish(self) -> None:
        """Send the files, and the final state of the run."""
        logs = fs.join(self.run_url, "log")
        names = [*FILES, *(f"log/{name}" for name in (fs.ls(logs) if fs.exists(logs) else ()))]
        for name in names:
            url = fs.join(self.run_url, name)
            if fs.exists(url) and fs.size(url) <= MAX_FILE_BYTES:
                self._client.log_text(self._run_id, fs.read_bytes(url).decode(errors="replace"), name)
        state = StoredRun(self.run_url).summary.get("state")
        self._client.set_terminated(self._run_id, STATUS.get(str(state), "FAILED"))


def _plain(key: str) -> str:
    """Return a name that MLflow accepts: ``neuralnet.layer[fc1].type`` becomes ``neuralnet.layer.fc1.type``."""
    return re.sub(r"[^\w\-. :/]", "_", key.replace("[", ".").replace("]", "").replace("#", ":"))


def _batches(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield values in lists of at most ``size``."""
    rest = iter(values)
    while batch := list(islice(rest, size)):
        yield batch


Observer = TensorboardFiles | MlflowRun
"""Takes the events of a run after its `RunDirectory` has recorded them; may start at any event."""


class Observers:
    """The observers of a run. One that fails is dropped with a warning, and the job continues.

    Use it in a ``with`` block around that of the `RunDirectory`; call ``on_event`` after that of the directory.
    """

    def __init__(self, observers: list[Observer]) -> None:
        self._observers = observers

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Pass an event to all observers."""
        for observer in list(self._observers):
            self._try(observer, partial(observer.on_event, event))

    def close(self, taken_over: bool = False) -> None:
        """Close all observers; if another process has ``taken_over``, its observers send the rest."""
        for observer in list(self._observers):
            self._try(observer, partial(observer.close, taken_over))
        self._observers.clear()

    def _try(self, observer: Observer, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # other packages raise anything, which must not end the job
            logger.warning("%s: %s: %s. The job continues without it.", observer.name, type(error).__name__, error)
            self._observers.remove(observer)

    def __enter__(self) -> Observers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.close(taken_over=kind is not None and issubclass(kind, TakenOverError))


def open_observers(run_url: str, tensorboard: bool = False, mlflow: str = "") -> Observers:
    """Return the observers of a run, at an MLflow URI unless it is empty; nothing is written before the first event.

    ConfigError names the keys of the job that need missing packages.
    """
    observers: list[Observer] = []
    problems = []
    for key, wanted, make in (
        ("tensorboard", tensorboard, lambda: TensorboardFiles(run_url)),
        ("mlflow", bool(mlflow), lambda: MlflowRun(run_url, mlflow)),
    ):
        try:
            observers += [make()] if wanted else []
        except ConfigError as error:
            problems.append(Problem((key,), str(error)))
    if problems:
        raise ConfigError(problems)
    return Observers(observers)
