"""MlflowRun: pass the metrics of a run to an MLflow server."""

from __future__ import annotations

import hashlib
import logging
import os
import posixpath
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import Any

from singa_dask import fs
from singa_dask.lazy import require
from singa_dask.observe.event_texts import scalars
from singa_dask.observe.files.job_values import flatten
from singa_dask.observe.files.run_directory import METRICS, first_command
from singa_dask.observe.files.stored_run import StoredRun
from singa_dask.redaction import redact

logger = logging.getLogger(__name__)

# settings of MLflow unless the user has set them: give up soon if the server does not answer; print and report nothing
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
MAX_QUEUE = 10_000
"""Maximum number of waiting events. If there are more, the oldest are dropped."""
BATCHES = {"metrics": 1000, "params": 100}
"""MLflow's limits on the number of entries in a request."""
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
    """Sends params and metrics of a run to an MLflow server and, at the end, its small files.

    After a resume, and after each error, this class finds the run on the server by a tag, and asks the server which
    data it already has. Thus a server that was down gets all data once. `on_event` never waits.

    Parameters
    ----------
    run_url : str
        The run directory.
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
        """Queue a metrics event for the thread that sends it; start the thread if needed."""
        if not self._thread.is_alive() and not self._closing.is_set():
            # copy the context, so that log messages of the new thread belong to this thread's job
            work = partial(copy_context().run, self._work)
            self._thread = threading.Thread(target=work, name="mlflow", daemon=True)
            self._thread.start()
        if event["event"] == "metrics":
            self._queue.append(event)
            self._news.set()

    def close(self, taken_over: bool = False) -> None:
        """Send the remaining data within `CLOSE_S`. Send nothing if another process has taken over the run."""
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
        """Send new data until the run ends. Runs in the thread."""
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
            except Exception as error:  # MLflow and its server may raise any exception
                self._on_error(error)
                if not is_last:
                    self._closing.wait(AGAIN_S)
                    self._news.set()
            if is_last:
                return

    def _on_error(self, error: Exception) -> None:
        """Log an error once, and reopen the run next time, as nobody knows what the server received."""
        if not (self._is_failing or self._closing.is_set()):
            message = "MLflow at %s: %s. The job continues, and tries again."
            # show only the first line, because the rest may be long
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
                key = _mlflow_key(f"{prefix}/{name}")
                if event["step"] > self._newest.get(key, -1):
                    self._newest[key] = event["step"]
                    yield self._entities.Metric(key, value, int(1e3 * event["time"]), int(event["step"]))

    def _open(self) -> None:
        """Find the run on the server and the data that the server already has; or create the run."""
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
            self._entities.Param(_mlflow_key(path), str(value))
            for path, value in flatten(run.job).items()
            # send only new params, because a server rejects another value for a param that it already has
            if value not in (None, "", [], {}) and _mlflow_key(path) not in known and path != "mlflow"
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


def _mlflow_key(key: str) -> str:
    """Return a key that MLflow accepts, such as ``neuralnet.layer.fc1.type``.

    The key of the job file is ``neuralnet.layer[fc1].type`` in this example.
    """
    return re.sub(r"[^\w\-. :/]", "_", key.replace("[", ".").replace("]", "").replace("#", ":"))


def _batches(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield values in lists of at most ``size``."""
    rest = iter(values)
    while batch := list(islice(rest, size)):
        yield batch
