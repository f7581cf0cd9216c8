"""Files on a disk that Dask workers on other hosts do not see are named before a job starts."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from singa_dask.errors import DataError
from singa_dask.fs.ownership import Ownership
from singa_dask.runtime.job.checks.files import _digest, _unseen, check_seen, input_files
from singa_dask.runtime.job.dask_worker.hosting import Hosting
from singa_dask.runtime.job.driver.driver import Lease
from singa_dask.runtime.job.driver.driver_host import DriverHost
from singa_dask.runtime.planning.job_stores import with_stores
from tests.runtime.harness import mlp


def client_of(*unseen: str) -> Any:
    """Return a client of two Dask workers, of which one is on a host that does not see some files."""

    def run(function: Callable[[], Any], workers: Any, on_error: str, callback_timeout: float) -> dict[str, Any]:
        host, missing = function()
        if isinstance(missing, dict):  # the files are the same
            return {"tcp://near:1": (host, missing), "tcp://far:2": ("far", missing)}
        return {"tcp://near:1": (host, missing), "tcp://far:2": ("far", [*missing, *unseen])}

    return SimpleNamespace(run=run)


def test_a_file_that_a_dask_worker_does_not_see(tmp_path: Path) -> None:
    path = str(tmp_path / "train.csv")
    Path(path).touch()
    said = f"{path}: the Dask worker tcp://far:2 on far does not see this file, which is on {socket.gethostname()}. "
    with pytest.raises(DataError) as raised:
        check_seen(client_of(path), [path, "hdfs://namenode/x"])
    assert str(raised.value).startswith(f"{said}Use a URL that all hosts reach, or a path in a directory that all")
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


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ("the last byte of a file", True),
        ("a name", True),
        ("a length between the files that are read", True),
        ("the lock of LMDB, and hidden files", False),
        ("a run", False),
    ],
)
@pytest.mark.parametrize("path", ["", "*.bin"])
def test_what_is_compared_between_dask_workers(tmp_path: Path, change: str, differs: bool, path: str) -> None:
    for i in range(10):
        (tmp_path / f"{i}.bin").write_bytes(bytes(200_000))
    before = _digest(str(tmp_path / path))
    if change == "the last byte of a file":
        (tmp_path / "8.bin").write_bytes(bytes(199_999) + b"x")
    elif change == "a name":
        (tmp_path / "9.bin").rename(tmp_path / "10.bin")
    elif change.startswith("a length"):
        (tmp_path / "1.bin").write_bytes(bytes(200_001))
    else:
        for name in ("lock.mdb", ".hidden", "_SUCCESS"):
            (tmp_path / name).touch()
    if change == "a run":
        Ownership(str(tmp_path), "job").take()
        before = "" if not path else before
    assert (_digest(str(tmp_path / path)) != before) == differs


def test_the_files_of_a_job() -> None:
    job = with_stores(mlp(), lambda store: {"path": "a.arrow", "mean_file": "mean.bin"})
    assert set(input_files(job)) == {"a.arrow", "mean.bin"}
    layers = [layer.model_copy(update={"include": ["test"]}) for layer in job.neuralnet.layer[:1]]
    tested = job.with_layers([*layers, *job.neuralnet.layer[1:]])
    # nobody tests
    assert input_files(tested.model_copy(update={"test_freq": 0})) == []
    assert input_files(tested.model_copy(update={"test_freq": 1, "test_steps": 1})) == ["a.arrow", "mean.bin"]


def test_dask_workers_are_asked_once_for_records_and_run_directory(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def run(function: Any, workers: Any, **options: Any) -> dict[str, Any]:
        asked.append(function.args[0])
        return {address: function() for address in workers}

    records, url = tmp_path / "train.csv", str(tmp_path / "run")
    client: Any = SimpleNamespace(run=run)
    with pytest.raises(DataError, match=r"train\.csv: .* sees no such file"):
        check_seen(client, [str(records)], ["tcp://near:1"], url)
    assert not Path(url).exists()
    records.touch()
    check_seen(client, [str(records)], ["tcp://near:1"], url)
    assert Path(url).is_dir()
    assert [len(files) for files in asked] == [2, 2]


def test_a_run_directory_that_a_dask_worker_does_not_see(tmp_path: Path) -> None:
    def run(function: Any, workers: Any, **options: Any) -> dict[str, Any]:
        assert [each.parent for each in map(Path, function.args[0])] == [tmp_path / "runs" / "mine"]
        return {address: function() if "near" in address else ("far", function.args[0]) for address in workers}

    client: Any = SimpleNamespace(run=run)
    url = str(tmp_path / "runs" / "mine")
    far = [f"tcp://far:{i}" for i in range(5)]
    with pytest.raises(DataError) as raised:
        check_seen(client, [], ["tcp://near:1", *far], url)
    assert str(raised.value).startswith(
        f"{url}: Dask workers do not see this run directory, which is on a disk of {socket.gethostname()}: "
        "tcp://far:0 on far, tcp://far:1 on far, tcp://far:2 on far and 2 more. The job was not started"
    )
    assert not (tmp_path / "runs").exists()
    check_seen(client, [], ["tcp://near:1", "tcp://near:1"], url)
    assert not list((tmp_path / "runs" / "mine").iterdir())
    # nobody is asked about what is on no disk
    check_seen(client, [], far, "hdfs://namenode/x")
    check_seen(client, [], far)


def test_a_host_where_units_are_placed_later_warns_if_it_does_not_see_the_run_directory(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    placement = SimpleNamespace(spec=SimpleNamespace(run_url=str(tmp_path)), workers=["tcp://far:1"])
    hosting: Any = SimpleNamespace(placement=placement, process=0, job_id="job", emit=told.append, local=["worker-0-0"])
    Ownership(str(tmp_path), "job").take()
    Hosting.warn_if_unseen(hosting)
    assert not told
    # another disk with an older run at the same path
    Ownership(str(tmp_path), "before").take()
    Hosting.warn_if_unseen(hosting)
    placement.spec.run_url = str(tmp_path / "missing")
    Hosting.warn_if_unseen(hosting)
    placement.spec.run_url = "hdfs://namenode/run"
    Hosting.warn_if_unseen(hosting)
    said = [event["message"] for event in told]
    assert len(said) == 2
    assert all("the Dask worker tcp://far:1 on " in each and "does not see the run directory" in each for each in said)


def test_a_driver_does_not_go_on_where_it_does_not_see_the_run_directory(tmp_path: Path) -> None:
    host: Any = SimpleNamespace(worker=SimpleNamespace(address="tcp://far:1"))
    run: Any = SimpleNamespace(run_url=str(tmp_path / "run"))
    with pytest.raises(DataError, match=r"tcp://far:1\): the driver of the job runs there, and does not see the run"):
        DriverHost._carry_out(host, run, Lease(2, has_begun=True))
