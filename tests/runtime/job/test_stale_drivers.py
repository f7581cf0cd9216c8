"""A driver that another one has replaced, without knowing it, changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from singa_dask.errors import ReplacedError, TakenOverError
from singa_dask.observe.files.run_directory import RunDirectory
from singa_dask.runtime import RemoteJobs
from singa_dask.runtime.job.client.job_cluster import install_jobs
from singa_dask.runtime.job.driver.driver import Lease
from singa_dask.runtime.job.names import JOBS
from singa_dask.runtime.job.scheduler.detached_job import DetachedJob
from tests.runtime.processes import digits, driver_of, wait_until

pytestmark = pytest.mark.cluster


def drive(job_id: str, dask_scheduler: Any) -> None:
    """Have the scheduler know the first driver of a job, which nobody starts."""
    driven = DetachedJob({"job_id": job_id, "run_url": ""}, "")
    driven.drive("gone")
    dask_scheduler.plugins[JOBS].detached._detached[job_id] = driven


def in_line(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.plugins[JOBS].queue.facts())


@pytest.mark.parametrize("queue", [False, True])
def test_a_stale_driver_deletes_and_submits_nothing(client: Client, tmp_path: Path, queue: bool) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"event": "metrics"}\n')
    (tmp_path / "owner.json").write_text("{}")  # a run is there
    directory = RunDirectory(str(tmp_path), "", "", replaces=True)
    lease = Lease(1, has_begun=False)  # it does not know yet
    job = digits("single")
    given: dict[str, Any] = {"run_url": str(tmp_path), "job_id": "stale", "lease": lease, "queue": queue}
    driver = driver_of(job, client, on_event=directory.on_event, **given)
    install_jobs(client)
    with directory, pytest.raises(ReplacedError):
        driver.run()
    assert file.read_text() == '{"event": "metrics"}\n'
    assert client.run_on_scheduler(in_line) == []


def test_one_that_wakes_up_leaves_the_directory_and_the_job_to_the_next(client: Client, tmp_path: Path) -> None:
    """It slept before it recorded an event: it does not end the job that it cannot record any more."""
    job, url = digits("single", "train_steps=1000000"), str(tmp_path / "run")
    steps: list[int] = []
    old, new = (RunDirectory(url, "", "", job_id="awake", driver=number) for number in (1, 2))
    install_jobs(client)
    client.run_on_scheduler(drive, "awake")
    given: dict[str, Any] = {"run_url": url, "job_id": "awake", "lease": Lease(1, has_begun=False)}

    def record(event: dict[str, Any]) -> None:
        old.on_event(event)
        if event["event"] == "metrics":
            steps.append(event["step"])
            new.on_event({"event": "started", "begun": True, "time": 0.0})

    with old, new, pytest.raises(ReplacedError):
        driver_of(job, client, on_event=record, **given).run()
    assert len(steps) == 1
    (row,) = (row for row in RemoteJobs(client).rows() if row["id"] == "awake")
    RemoteJobs(client).kill("awake")
    assert (row["state"], row["reason"]) == ("running", "")


def test_a_run_whose_directory_another_run_has_taken_stops(client: Client, tmp_path: Path) -> None:
    """Nobody would record it any more."""
    job, url = digits("single", "train_steps=1000000"), str(tmp_path / "run")
    old, new = (RunDirectory(url, "", "", job_id=run, driver=1) for run in ("first", "later"))
    install_jobs(client)
    client.run_on_scheduler(drive, "first")
    given: dict[str, Any] = {"run_url": url, "job_id": "first", "lease": Lease(1, has_begun=False)}

    def record(event: dict[str, Any]) -> None:
        old.on_event(event)
        if event["event"] == "metrics":
            new.on_event({"event": "started", "begun": True, "time": 0.0})

    with old, new, pytest.raises(TakenOverError, match="another process writes there now") as info:
        driver_of(job, client, on_event=record, **given).run()
    assert not isinstance(info.value, ReplacedError)
    wait_until(lambda: state_of(client, "first") not in ("running", "stopping"), "the end of the job")


def test_a_job_whose_driver_has_ended_stops(client: Client, tmp_path: Path) -> None:
    """The driver had given up the scheduler, which was late."""
    job, drivers = digits("single", "train_steps=1000000"), []
    install_jobs(client)
    client.run_on_scheduler(drive, "alone")
    given: dict[str, Any] = {"run_url": str(tmp_path), "job_id": "alone", "lease": Lease(1, has_begun=False)}

    def leave(event: dict[str, Any]) -> None:
        if event["event"] == "metrics":
            drivers[0].leave()

    drivers.append(driver_of(job, client, on_event=leave, **given))
    with pytest.raises(ReplacedError):
        drivers[0].run()
    assert state_of(client, "alone") == "running"
    client.run_on_scheduler(end, "alone")
    wait_until(lambda: state_of(client, "alone") not in ("running", "stopping"), "the end of the job")


def end(job_id: str, dask_scheduler: Any) -> None:
    """Tell the scheduler that the first driver of a job has given it up."""
    dask_scheduler.plugins[JOBS].detached.end_driver(job_id, 1, {})


def state_of(client: Client, job_id: str) -> str:
    return next((str(row["state"]) for row in RemoteJobs(client).rows() if row["id"] == job_id), "over")
