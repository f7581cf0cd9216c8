"""How many Dask workers jobs ask for, and which ones they use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError
from singa_dask.runtime.job.calls import present_workers
from singa_dask.runtime.job.scheduler.demand import count_demand
from singa_dask.runtime.planning.worker_choice import WorkerFacts
from tests.runtime.job.test_detached import ask, detach, facts_of, has_ended
from tests.runtime.processes import Driven, digits, small_cluster, wait_until

Wanted = tuple[ClusterConf, Sequence[str], Sequence[int]]


def waits(*sizes: int, mine: Sequence[str] = (), **workers: Any) -> Wanted:
    return ClusterConf.model_validate({"workers": workers}), mine, sizes


def there(n: int, nthreads: int = 2, busy: int = 0, **more: Any) -> dict[str, WorkerFacts]:
    return {f"w{i}": WorkerFacts(nthreads, busy, "here", f"w{i}", **more) for i in range(n)}


@pytest.mark.parametrize(
    ("workers", "in_use", "wanted", "nthreads", "n"),
    [
        ({}, [], [], 0, 0),
        # nothing is known of those that will come: enough for the first job in line
        ({}, [], [waits(1, 1), waits(1, 1, 1)], 0, 2),
        ({}, [], [waits(1, 1), waits(1, 1, 1)], 1, 5),
        ({}, [], [waits(1, 1), waits(1, 1, 1)], 2, 3),
        # on those that are there first
        (there(2), [], [waits(2, 2)], 2, 2),
        (there(2), [], [waits(2, 1, 1)], 2, 3),
        (there(2, busy=2), ["w0", "w1"], [waits(2)], 2, 3),
        (there(3, busy=0), ["w0"], [], 2, 1),
        # a job has one process on a Dask worker
        (there(2, nthreads=9), ["w0"], [waits(1, mine=["w0"])], 9, 2),
        (there(1, nthreads=9), ["w0"], [waits(1, mine=["w0"])], 9, 2),
        # nobody asks for what would be too small
        (there(1), [], [waits(3), waits(1)], 2, 1),
        # those that a job may not use do not count
        (there(3), [], [waits(1, 1, name="w2*")], 2, 2),
        (there(3, resources={"GPU": 1.0}), [], [waits(1, 1, resources={"GPU": 1})], 2, 2),
        (there(3, resources={"GPU": 1.0}), ["w0"], [waits(1, resources={"GPU": 2})], 2, 2),
    ],
)
def test_how_many_dask_workers_jobs_have_and_wait_for(
    workers: dict[str, WorkerFacts], in_use: list[str], wanted: list[Wanted], nthreads: int, n: int
) -> None:
    assert count_demand(workers, in_use, wanted, nthreads) == n


@pytest.mark.cluster
@pytest.mark.long
def test_dask_workers_come_for_a_job_in_line_and_go_after_it(tmp_path: Path) -> None:
    with LocalCluster(n_workers=0, threads_per_worker=2, dashboard_address="127.0.0.1:0") as cluster:
        cluster.adapt(minimum=0, maximum=4, interval="200ms", wait_count=2)
        with Client(cluster, set_as_default=False) as client:
            ids = [detach(client, tmp_path / name, "--queue") for name in "ab"]
            for job_id in ids:
                wait_until(lambda job_id=job_id: ask(client, has_ended, job_id), job_id)  # type: ignore[misc]
                assert ask(client, facts_of, job_id)["state"] == "done"
                assert ask(client, facts_of, job_id)["restarts"] == 0
            wait_until(lambda: not present_workers(client), "the Dask workers have gone")


@pytest.mark.cluster
def test_a_job_is_confined_to_some_dask_workers(tmp_path: Path) -> None:
    with small_cluster(2, 2, resources={"GPU": 1}) as cluster, Client(cluster, set_as_default=False) as client:
        (second,) = [address for address, facts in present_workers(client).items() if str(facts["name"]) == "1"]
        run = Driven(digits("single", "train_steps=3", "cluster.workers.name=1"), client, tmp_path)
        (placed,) = [event for event in run.events if event["event"] == "placed"]
        assert [process["address"] for process in placed["processes"]] == [second]
        for wanted in ("name=gpu-*", "resources={GPU: 2}"):
            with pytest.raises(ClusterError, match=r"0 that match cluster\.workers are ready .* \(it does not match"):
                Driven(digits("single", "train_steps=3", f"cluster.workers.{wanted}"), client, tmp_path)
