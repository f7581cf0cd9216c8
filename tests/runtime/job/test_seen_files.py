"""Files on a disk that Dask workers on other hosts do not see are named before a job starts."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from singa_dask.errors import DataError
from singa_dask.runtime.job.client.seen_files import _unseen, check_seen, files_of
from singa_dask.runtime.planning.nets import with_stores
from tests.runtime.harness import mlp


def client_of(*unseen: str) -> Any:
    """Return a client of two Dask workers, of which one is on a host that does not see some files."""

    def run(function: Callable[[], Any], workers: Any, on_error: str, callback_timeout: float) -> dict[str, Any]:
        host, missing = function()
        return {"tcp://near:1": (host, missing), "tcp://far:2": ("far", [*missing, *unseen])}

    return SimpleNamespace(run=run)


def test_a_file_that_a_dask_worker_does_not_see(tmp_path: Path) -> None:
    path = str(tmp_path / "train.csv")
    Path(path).touch()
    said = f"{path}: the Dask worker tcp://far:2 on far does not see this file, which is on {socket.gethostname()}. "
    with pytest.raises(DataError) as raised:
        check_seen(client_of(path), [path, "hdfs://namenode/x"])
    assert str(raised.value).startswith(f"{said}Give a URL that all hosts reach, or a path in a directory that all")
    with pytest.raises(DataError, match=r"tcp://near:1 on [^ ]+ sees no such file or directory\."):
        check_seen(client_of(), [str(tmp_path / "no such file")])
    check_seen(client_of(), [path])
    # nobody is asked for what is on no disk
    check_seen(None, ["hdfs://namenode/x"])  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "is_seen"), [("", True), ("*.csv", True), ("a[1].csv", True), ("*.txt", False)])
def test_what_is_there(tmp_path: Path, name: str, is_seen: bool) -> None:
    (tmp_path / "a[1].csv").touch()
    path = str(tmp_path / name)
    assert _unseen([path])[1] == ([] if is_seen else [path])


def test_the_files_of_a_job() -> None:
    job = with_stores(mlp(), lambda store: {"path": "a.arrow", "mean_file": "mean.bin"})
    assert set(files_of(job)) == {"a.arrow", "mean.bin"}
    layers = [layer.model_copy(update={"include": ["test"]}) for layer in job.neuralnet.layer[:1]]
    tested = job.with_layers([*layers, *job.neuralnet.layer[1:]])
    # nobody tests
    assert files_of(tested.model_copy(update={"test_freq": 0})) == []
    assert files_of(tested.model_copy(update={"test_freq": 1, "test_steps": 1})) == ["a.arrow", "mean.bin"]
