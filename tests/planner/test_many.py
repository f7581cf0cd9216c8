"""Very many processes: the same bytes and messages as where each message is followed, and nearly the same times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from singa_dask.conf import JobConf
from singa_dask.planner.many import Many, is_for_many
from singa_dask.planner.model import Cluster, Machine
from singa_dask.planner.simulation import simulate
from singa_dask.runtime.planning.job_plan import JobPlan
from tests.planner.clusters import FREE, INSTANT, REAL, FixedCosts, cluster_of
from tests.runtime.end_to_end.test_rbm import frozen, rbm, records
from tests.runtime.end_to_end.test_rbm import job as rbm_job
from tests.runtime.harness import dense, mlp


def job_of(n: int, widths: Sequence[int], n_servers: int = 0) -> JobConf:
    """Return a job of ``n`` workers, with servers beside them or ``n_servers`` apart, and hidden layers."""
    raw = mlp().model_dump(mode="json", exclude_unset=True)
    data, *_, loss = raw["neuralnet"]["layer"]
    data["store_conf"]["batchsize"] = n
    names = ["data", *(f"fc{i}" for i in range(len(widths) + 1))]
    layers = [dense(name, source, width) for source, name, width in zip(names, names[1:], [*widths, 10], strict=False)]
    raw["neuralnet"]["layer"] = [data, *layers, {**loss, "srclayers": [names[-1], "data"]}]
    apart: dict[str, Any] = {"server_worker_separate": True} if n_servers else {}
    raw["cluster"] = {"nworkers_per_group": n, "nservers_per_group": n_servers or n, **apart}
    return JobConf.model_validate(raw)


@pytest.mark.parametrize(
    ("n", "widths", "n_servers"),
    [
        *((9, [32], 0), (16, [32], 3), (16, [1000], 0)),
        *(pytest.param(*apart, marks=pytest.mark.long) for apart in ((33, [32], 0), (20, [1000], 4))),
        *(pytest.param(*apart, marks=pytest.mark.soak) for apart in ((13, [32], 0), (33, [32], 2))),
    ],
)
def test_all_at_once_is_as_one_by_one(n: int, widths: Sequence[int], n_servers: int) -> None:
    job = job_of(n, widths, n_servers)
    plan, cluster, costs = JobPlan.make(job), cluster_of(n + n_servers), FixedCosts()
    assert is_for_many(job, plan)
    assert len(plan.layout.processes) == n + n_servers
    at_once = Many(job, plan, cluster, costs, threads=1).run(8)
    one_by_one = simulate(job, plan, cluster, costs, n_steps=8, threads=1)
    assert at_once.bytes_sent == one_by_one.bytes_sent
    assert at_once.messages_sent == one_by_one.messages_sent
    assert at_once.step_s == pytest.approx(one_by_one.step_s, rel=0.15)


def test_stragglers_and_shared_cores_slow_all_processes() -> None:
    job, costs = job_of(16, [32]), FixedCosts(0.0, 0.0, 0.0, 1e-3, 0.0, 0.0)
    plan = JobPlan.make(job)
    n_layers = 4 + 3  # forward, and backward but for the input
    fast = Many(job, plan, cluster_of(16, link=INSTANT), costs, threads=1).run(4)
    assert fast.step_s == pytest.approx(n_layers * 1e-3)
    slow = Many(job, plan, cluster_of(16, link=INSTANT, speeds=[1.0] * 15 + [0.5]), costs, threads=1).run(4)
    assert slow.step_s == pytest.approx(2 * n_layers * 1e-3)
    hosts = Cluster(tuple(Machine(str(i), 2) for i in range(4)), tuple(i // 4 for i in range(16)), INSTANT, INSTANT)
    assert Many(job, plan, hosts, costs, threads=1).run(4).step_s == pytest.approx(2 * n_layers * 1e-3)


def test_a_param_that_nobody_trains_is_not_sent() -> None:
    layers = [records(), *frozen(1, "data", 16), *rbm(2, "sigmoid1", 8)]
    job = rbm_job(layers, cluster={"nworkers_per_group": 12, "nservers_per_group": 12})
    plan = JobPlan.make(job)
    at_once = Many(job, plan, cluster_of(12), FixedCosts(), threads=1).run(4)
    one_by_one = simulate(job, plan, cluster_of(12), FixedCosts(), n_steps=4, threads=1)
    assert at_once.bytes_sent == one_by_one.bytes_sent
    assert at_once.messages_sent == one_by_one.messages_sent


def test_jobs_with_a_common_norm_are_followed_message_by_message() -> None:
    job = job_of(9, [32])
    clipped = job.model_copy(update={"updater": job.updater.model_copy(update={"clip_norm": 1.0})})
    assert not is_for_many(clipped, JobPlan.make(clipped))


@pytest.mark.soak
def test_four_thousand_processes_send_each_slice_once_up_and_once_down() -> None:
    n = 4096
    job = job_of(n, [1000])
    plan = JobPlan.make(job)
    found = simulate(job, plan, cluster_of(n, link=REAL), FREE, n_steps=4, threads=1)
    n_bytes = 4 * sum(piece.size for piece in plan.slices)
    assert sum(found.bytes_sent) == 2 * (n - 1) * n_bytes
    assert found.step_s >= 2 * (n - 1) / n * n_bytes / REAL.bytes_per_s
