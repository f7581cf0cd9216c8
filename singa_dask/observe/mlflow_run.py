"""MlflowRun: a run of ours as a run of an MLflow server, told by a thread of its own."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import posixpath
import re
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from singa_dask.data import fs
from singa_dask.lazy import require
from singa_dask.observe.journal import read_objects
from singa_dask.observe.run_directory import METRICS, first_command
from singa_dask.observe.stored_run import StoredRun, flatten
from singa_dask.observe.tensorboard_files import scalars
from singa_dask.redaction import redact

logger = logging.getLogger(__name__)

# unless the user has set them: give up soon on a server that does not answer, and print and report nothing
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
MAX_QUEUE = 10_000
"""With more events waiting than this, they are read from the run directory later."""
BATCHES = {"metrics": 1000, "params": 100}
"""Most entries of a request, limits of MLflow."""
SEND_S = 2.0
AGAIN_S = 5.0
"""Times between two requests with metrics, and between two attempts to reach the server."""
CLOSE_S = 10.0
"""How long the end of a job may wait for the server."""
MAX_FILE_BYTES = 50_000_000
FILES = ("job.yaml", "resolved.yaml", "commands.jsonl", METRICS, "summary.json", "bad_records.jsonl")
STATUS = {"done": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
TAG = "singa_dask.run"


class MlflowRun:
    """Sends params, metrics and, at its end, small files of a run to an MLflow server.

    The run of a directory is found again by a tag, and asked what it has, when it is resumed and after each error. What
    it lacks is then read from ``metrics.jsonl``. So a server that is away for a while gets everything, and nothing
    twice. `on_event` never waits.

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
        self._is_behind = True
        self._is_failing = False
        self._news = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Hand an event to the thread."""
        if not self._thread.is_alive() and not self._closing.is_set():
            self._thread.start()
        if event["event"] == "metrics":
            if len(self._queue) >= MAX_QUEUE:
                self._queue.clear()
                self._is_behind = True
            self._queue.append(event)
            self._news.set()

    def close(self) -> None:
        """Send the rest, if the server takes it within some seconds."""
        self._closing.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        if self._thread.is_alive() or self._is_failing:
            message = "MLflow at %s does not have all of this run: %s has it."
            logger.warning(message, redact(self.uri), redact(self.run_url))

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Send what is new, until the run ends."""
        while True:
            self._news.wait()
            self._news.clear()
            is_last = self._closing.is_set()
            try:
                self._send()
                if is_last:
                    self._finish()
                self._is_failing = False
                self._closing.wait(SEND_S)
            except Exception as error:  # whatever MLflow or its server raise
                self._on_error(error)
                if not is_last:
                    self._closing.wait(AGAIN_S)
                    self._news.set()
            if is_last:
                return

    def _on_error(self, error: Exception) -> None:
        """Begin again at the next attempt: it is not known what the server has got."""
        if not (self._is_failing or self._closing.is_set()):
            message = "MLflow at %s: %s. The job goes on; it is tried again."
            logger.warning(message, redact(self.uri), _brief(error))
        self._is_failing = True
        self._run_id = ""

    def _send(self) -> None:
        if not self._run_id:
            self._open()
            self._is_behind = True
        events: list[Mapping[str, Any]] = []
        # what is recorded after this is in the queue
        while self._queue:
            events.append(self._queue.popleft())
        if self._is_behind or self._closing.is_set():
            self._is_behind = False
            events = [*read_objects(fs.join(self.run_url, METRICS)), *events]
        for batch in _batches(self._new_metrics(events), BATCHES["metrics"]):
            self._client.log_batch(self._run_id, metrics=batch)

    def _new_metrics(self, events: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
        """Yield the metrics that the server does not have yet."""
        for event in events:
            if event.get("event") != "metrics":
                continue
            group = int(event.get("group", 0))
            prefix = f"group-{group}/{event['phase']}" if group else event["phase"]
            for name, value in scalars(event):
                key = _plain(f"{prefix}/{name}")
                if event["step"] > self._newest.get(key, -1):
                    self._newest[key] = event["step"]
                    yield self._entities.Metric(key, value, int(1e3 * event["time"]), int(event["step"]))

    def _open(self) -> None:
        """Find the run on the server, and what it has; or make it."""
        client = self._client = self._mlflow.MlflowClient(tracking_uri=self.uri)
        run = StoredRun(self.run_url)
        name = str(run.job.get("name") or "job")
        experiment = client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment else client.create_experiment(name)
        began = first_command(self.run_url).get("time", "")
        tag = hashlib.sha256(f"{self.run_url} {began}".encode()).hexdigest()[:16]
        found = client.search_runs([experiment_id], f"tags.`{TAG}` = '{tag}'")
        if found:
            run_id = found[0].info.run_id
            client.update_run(run_id, status="RUNNING")
            keys = found[0].data.metrics
            self._newest = {key: max(each.step for each in client.get_metric_history(run_id, key)) for key in keys}
        else:
            tags = {TAG: tag, "singa_dask.run_directory": redact(self.run_url)}
            run_id = client.create_run(experiment_id, tags=tags, run_name=posixpath.basename(self.run_url)).info.run_id
            self._newest = {}
        for batch in _batches(self._params(run.job, found), BATCHES["params"]):
            client.log_batch(run_id, params=batch)
        self._run_id = run_id

    def _params(self, job: Mapping[str, Any], found: list[Any]) -> Iterator[Any]:
        """Yield the values of the job; a server accepts no others for params that it has."""
        known = found[0].data.params if found else {}
        for path, value in flatten(job).items():
            key = _plain(path)
            if value not in (None, "", [], {}) and key not in known and key != "mlflow":
                yield self._entities.Param(key, str(value))

    def _finish(self) -> None:
        """Send the files, and say how the run has ended."""
        logs = fs.join(self.run_url, "log")
        names = [*FILES, *(f"log/{name}" for name in (fs.ls(logs) if fs.exists(logs) else ()))]
        for name in names:
            url = fs.join(self.run_url, name)
            if fs.exists(url) and fs.size(url) <= MAX_FILE_BYTES:
                with _as_local_file(url) as path:
                    self._client.log_artifact(self._run_id, str(path), posixpath.dirname(name) or None)
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


@contextlib.contextmanager
def _as_local_file(url: str) -> Iterator[Path]:
    """Give the path of a local copy of a file, which has its name."""
    with tempfile.TemporaryDirectory(prefix="singa-dask-mlflow-") as folder:
        path = Path(folder) / posixpath.basename(url)
        path.write_bytes(fs.read_bytes(url))
        yield path


def _brief(error: Exception) -> str:
    """Return the first line of an error, which may be long."""
    lines = str(error).splitlines() or [type(error).__name__]
    return redact(lines[0])[:200].rstrip(".")
