"""What all processes of a job are told: one Dask worker of each host asks the scheduler for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from singa_dask.runtime.job.driver import install_jobs
from singa_dask.runtime.job.names import Op
from tests.runtime.harness import mlp
from tests.runtime.processes import Driven

THREE = {"nworkers_per_group": 3, "nservers_per_group": 3}


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """Yield three Dask workers on one host, in this process."""
    with LocalCluster(
        n_workers=3, threads_per_worker=2, processes=False, protocol="tcp://", dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


def note_calls(handlers: dict[str, Any], who: str, calls: list[str]) -> None:
    """Note who is asked for something that all processes are told."""
    answer = handlers[Op.SHARED]

    def note(job_id: str, what: str) -> Any:
        calls.append(f"{who}: {what}")
        return answer(job_id=job_id, what=what)

    handlers[Op.SHARED] = note


@pytest.mark.cluster
def test_one_dask_worker_of_a_host_asks_for_all(cluster: LocalCluster, tmp_path: Path) -> None:
    with Client(cluster, set_as_default=False) as client:
        install_jobs(client)
        calls: list[str] = []
        note_calls(cluster.scheduler.handlers, "scheduler", calls)
        result = Driven(mlp(train_steps=30, cluster=THREE), client, tmp_path).result
    assert (result.state, result.restarts) == ("done", 0)
    assert sorted(calls) == ["scheduler: 0 endpoints", "scheduler: 0 placement"]


@pytest.mark.cluster
def test_who_asks_another_in_vain_asks_the_scheduler(cluster: LocalCluster, tmp_path: Path) -> None:
    async def no_answer(job_id: str, what: str) -> str:
        raise OSError("nothing")

    with Client(cluster, set_as_default=False) as client:
        calls: list[str] = []
        Driven(mlp(train_steps=1, cluster=THREE), client, tmp_path)  # all have a `Site` now
        note_calls(cluster.scheduler.handlers, "scheduler", calls)
        for worker in cluster.workers.values():
            worker.handlers[Op.SHARED] = no_answer
        result = Driven(mlp(train_steps=30, cluster=THREE), client, tmp_path).result
    assert (result.state, result.restarts) == ("done", 0)
    assert sorted(calls) == ["scheduler: 0 endpoints"] * 3 + ["scheduler: 0 placement"] * 3
