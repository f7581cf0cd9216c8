"""What all processes of a job are told: one Dask worker of each host asks the scheduler for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from singa_dask.runtime.job.client.install import install_jobs
from singa_dask.runtime.job.names import Op
from tests.runtime.harness import mlp
from tests.runtime.processes import Driven, small_cluster

THREE = {"nworkers_per_group": 3, "nservers_per_group": 3}


@pytest.mark.cluster
@pytest.mark.long
def test_one_dask_worker_of_a_host_asks_for_all_and_all_ask_where_it_does_not_answer(tmp_path: Path) -> None:
    calls: list[str] = []

    async def no_answer(job_id: str, what: str) -> str:
        raise OSError("nothing")

    with small_cluster(3, 2) as cluster, Client(cluster, set_as_default=False) as client:
        install_jobs(client)
        answer = cluster.scheduler.handlers[Op.SHARED]

        def note(job_id: str, what: str) -> Any:
            calls.append(what)
            return answer(job_id=job_id, what=what)

        cluster.scheduler.handlers[Op.SHARED] = note
        for is_answered in (True, False):
            result = Driven(mlp(train_steps=3, cluster=THREE), client, tmp_path).result
            assert (result.state, result.restarts) == ("done", 0)
            n_asked = 1 if is_answered else 3
            assert sorted(calls) == ["0 endpoints"] * n_asked + ["0 placement"] * n_asked
            calls.clear()
            for worker in cluster.workers.values():
                worker.handlers[Op.SHARED] = no_answer
