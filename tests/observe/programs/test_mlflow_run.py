"""A run on an MLflow server has params, metrics and files, each once, whatever the server does meanwhile."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import mlflow
import pytest

from singa_dask.observe.files.run_directory import RunDirectory
from singa_dask.observe.programs import mlflow_run
from singa_dask.observe.programs.mlflow_run import MlflowRun
from tests.observe.runs import BEGAN, JOB, metrics

TEXT = JOB.format(name="digits", n_outputs=10)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URI of a store of MLflow in files, which needs no server."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr(mlflow_run, "AGAIN_S", 0.01)
    monkeypatch.setattr(mlflow_run, "CLOSE_S", 60.0)
    return str(tmp_path / "mlruns")


def record(
    url: Path,
    uri: str,
    events: Iterable[Mapping[str, Any]],
    state: str = "done",
    before_end: Callable[[], object] = lambda: None,
    **given: Any,
) -> None:
    """Record a run as ``run`` does."""
    observer = MlflowRun(str(url), uri)
    with RunDirectory(str(url), TEXT, TEXT, command={"time": BEGAN, "arguments": []}, **given) as directory:
        for event in ({"event": "started", "time": BEGAN}, *events):
            directory.on_event(event)
            observer.on_event(event)
        before_end()
        directory.finish({"state": state, "seconds": 1.0, "train": {}, "test": {}, "validation": {}})
    observer.close()


def the_run(uri: str) -> tuple[Any, Any]:
    """Return a client, and the only run."""
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    return client, run


def told(uri: str, key: str) -> list[tuple[int, float]]:
    client, run = the_run(uri)
    return [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, key)]


def test_params_metrics_and_files(tmp_path: Path, store: str) -> None:
    events = [metrics(0, loss=1.0, lr=0.5), metrics(0, "test", loss=2.0), metrics(0, group=1, loss=3.0)]
    record(tmp_path / "run", store, [*events, metrics(5, loss=float("nan"))])
    client, run = the_run(store)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run")
    assert run.data.params["neuralnet.layer.fc.innerproduct_conf.num_output"] == "10"
    assert run.data.metrics == {"train/loss": 1.0, "train/lr": 0.5, "test/loss": 2.0, "group-1/train/loss": 3.0}
    names = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"job.yaml", "resolved.yaml", "metrics.jsonl", "summary.json"} <= names
    there = mlflow.artifacts.load_text(f"{run.info.artifact_uri}/metrics.jsonl")
    assert there == (tmp_path / "run" / "metrics.jsonl").read_text()


def test_a_resumed_run_goes_on_in_the_same_run_without_steps_twice(tmp_path: Path, store: str) -> None:
    record(tmp_path / "run", store, [metrics(step, loss=1.0) for step in (0, 10, 20)], "stopped")
    assert the_run(store)[1].info.status == "KILLED"
    record(tmp_path / "run", store, [metrics(step, loss=2.0) for step in (10, 20, 30)], goes_on=True, steps={0: 10})
    assert told(store, "train/loss") == [(0, 1.0), (10, 1.0), (20, 1.0), (30, 2.0)]
    assert the_run(store)[1].info.status == "FINISHED"


def test_a_server_that_was_away_gets_everything_once(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, calls, is_back = MlflowRun._send, [], threading.Event()

    def send(self: MlflowRun) -> None:
        calls.append(self)
        if len(calls) == 1:
            raise ConnectionError("no route")
        sent(self)
        if len(calls) == 2:
            raise ConnectionError("the answer is lost")
        is_back.set()

    monkeypatch.setattr(MlflowRun, "_send", send)
    events = [metrics(step, loss=1.0) for step in range(10)]
    record(tmp_path / "run", store, events, before_end=lambda: is_back.wait(60))
    assert told(store, "train/loss") == [(step, 1.0) for step in range(10)]


def test_a_server_that_was_away_for_long_lacks_the_oldest(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mlflow_run, "MAX_QUEUE", 2)
    away, real = threading.Event(), MlflowRun._open

    def open_late(self: MlflowRun) -> None:
        assert away.wait(60)
        real(self)

    monkeypatch.setattr(MlflowRun, "_open", open_late)
    observer = MlflowRun(str(tmp_path / "run"), store)
    with RunDirectory(str(tmp_path / "run"), TEXT, TEXT, command={"time": BEGAN, "arguments": []}) as directory:
        for event in ({"event": "started", "time": BEGAN}, *(metrics(step, loss=1.0) for step in range(5))):
            directory.on_event(event)
        observer._queue.extend(metrics(step, loss=1.0) for step in range(4))
        observer.on_event(metrics(4, loss=1.0))
        away.set()
    observer.close()
    assert told(store, "train/loss") == [(3, 1.0), (4, 1.0)]
    assert "lacks some data of this run" in caplog.records[-1].getMessage()


def test_a_lost_server_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        # nobody listens there
        record(tmp_path / "run", f"http://me:secret@127.0.0.1:{bound.getsockname()[1]}", [metrics(0, loss=1.0)])
    assert "lacks some data of this run" in caplog.records[-1].getMessage()
    assert "secret" not in caplog.text


def test_one_that_was_replaced_sends_nothing_more(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent, real = threading.Event(), MlflowRun._send

    def send(self: MlflowRun) -> None:
        real(self)
        sent.set()

    monkeypatch.setattr(MlflowRun, "_send", send)
    observer = MlflowRun(str(tmp_path / "run"), store)
    with RunDirectory(str(tmp_path / "run"), TEXT, TEXT, command={"time": BEGAN, "arguments": []}) as directory:
        for event in ({"event": "started", "time": BEGAN}, metrics(0, loss=1.0)):
            directory.on_event(event)
            observer.on_event(event)
        assert sent.wait(60)
    observer.close(taken_over=True)
    observer._thread.join()
    assert the_run(store)[1].info.status == "RUNNING"
    # nor does it say what the server lacks
    observer._is_failing = True
    observer.close(taken_over=True)
    assert caplog.records == []
