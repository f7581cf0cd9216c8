"""Times of simulated steps, against what can be computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from singa_dask.conf import JobConf
from singa_dask.errors import ClusterError
from singa_dask.planner.model import Cluster, Link, Machine, Prediction
from singa_dask.planner.simulation import simulate
from singa_dask.planner.virtual_time import TURN_S
from singa_dask.runtime.planning.job_plan import JobPlan
from tests.planner.clusters import FREE, INSTANT, FixedCosts, cluster_of
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, HOGWILD, dense, mlp

N_FORWARD, N_BACKWARD = 6, 5  # layers of `mlp`; the input does not learn


def predict(job: JobConf, cluster: Cluster, costs: FixedCosts, **options: object) -> Prediction:
    return simulate(job, JobPlan.make(job), cluster, costs, **options)  # type: ignore[arg-type]


def test_one_process_takes_the_sum_of_its_costs() -> None:
    costs = replace(FREE, step_s=2e-4, a_layer_s=1e-3, value_s=1e-7)
    job = mlp()
    n_values = sum(piece.size for piece in JobPlan.make(job).slices)
    found = predict(job, cluster_of(1, link=INSTANT), costs)
    assert found.step_s == pytest.approx(2e-4 + (N_FORWARD + N_BACKWARD) * 1e-3 + 1e-7 * n_values)
    assert found.samples_per_s == pytest.approx(48 / found.step_s)
    assert found.busy["compute"] == pytest.approx(1)
    assert (found.bytes_sent, found.messages_sent) == ((0,), (0,))


def test_a_network_that_takes_no_time_leaves_the_time_of_layers() -> None:
    found = predict(mlp(cluster=ALLREDUCE), cluster_of(2, link=INSTANT), replace(FREE, a_layer_s=1e-3))
    assert found.step_s == pytest.approx((N_FORWARD + N_BACKWARD) * 1e-3)
    assert found.waits == {"params": pytest.approx(0, abs=1e-9), "records": 0, "group": 0}


def test_a_straggler_bounds_a_synchronous_step_and_others_wait_for_it() -> None:
    cluster = cluster_of(2, link=INSTANT, speeds=(1.0, 0.25))
    found = predict(mlp(cluster=ALLREDUCE), cluster, replace(FREE, a_layer_s=1e-3))
    assert found.step_s == pytest.approx(4 * (N_FORWARD + N_BACKWARD) * 1e-3)
    assert found.waits["params"] == pytest.approx(0, abs=1e-9)  # of the slow one


def test_groups_without_a_common_step_keep_their_own_speed_and_see_stale_values() -> None:
    cluster = cluster_of(2, link=INSTANT, speeds=(1.0, 0.25))
    found = predict(mlp(cluster=DOWNPOUR), cluster, replace(FREE, a_layer_s=1e-3))
    step_s = (N_FORWARD + N_BACKWARD) * 1e-3
    assert found.samples_per_s == pytest.approx(48 / step_s + 48 / (4 * step_s))
    assert found.staleness > 0
    assert predict(mlp(cluster=HOGWILD), cluster, replace(FREE, a_layer_s=1e-3)).staleness == 0  # each its own server


@pytest.mark.parametrize("n_workers", [2, 4])
def test_the_interface_of_a_parameter_server_bounds_the_step(n_workers: int) -> None:
    layout = {"nworkers_per_group": n_workers, "server_worker_separate": True}
    job = mlp(cluster=layout)
    n_bytes = 4 * sum(piece.size for piece in JobPlan.make(job).slices)
    found = predict(job, cluster_of(n_workers + 1, link=Link(0.0, 1e6)), FREE)
    # all gradients come in by one interface; then all values leave, but for what has overlapped
    assert n_workers * n_bytes / 1e6 <= found.step_s <= 2.05 * n_workers * n_bytes / 1e6
    assert found.bytes_sent == (*(n_workers * [n_bytes]), n_workers * n_bytes)
    assert found.busy["network"] == pytest.approx(n_workers * n_bytes / 1e6 / found.step_s, rel=0.1)


def test_latency_counts_both_ways_where_nothing_hides_it() -> None:
    layers = mlp().model_dump(mode="json", exclude_unset=True)["neuralnet"]["layer"]
    net = {"layer": [layers[0], dense("fc", "data", 10), {**layers[-1], "srclayers": ["fc", "data"]}]}
    job = mlp(neuralnet=net, cluster={"server_worker_separate": True})
    found = predict(job, cluster_of(2, link=Link(0.01, math.inf)), FREE)
    assert found.step_s == pytest.approx(0.02)
    assert found.waits["params"] == pytest.approx(0.02)


def test_threads_beyond_the_cores_share_them() -> None:
    one_host = Cluster((Machine("both", 1),), (0, 0), INSTANT, INSTANT)
    found = predict(mlp(cluster=DOWNPOUR), one_host, replace(FREE, a_layer_s=1e-3))
    # a step may end before or after a turn of the other thread
    assert found.step_s == pytest.approx(2 * (N_FORWARD + N_BACKWARD) * 1e-3, abs=TURN_S)
    assert found.samples_per_s == pytest.approx(48 / (N_FORWARD + N_BACKWARD) / 1e-3, rel=0.03)


def test_threads_of_one_process_share_the_lock_of_python() -> None:
    conf = {"nworkers_per_group": 2, "nworkers_per_procs": 2}
    found = predict(mlp(cluster=conf), cluster_of(1), replace(FREE, a_layer_s=1e-3, pass_s=1e-4))
    # both workers compute all the time; the first pass of one begins before that of the other
    n = N_FORWARD + N_BACKWARD
    assert n * 1e-3 + (n - 1) * 1e-4 <= found.step_s <= n * 1.1e-3 + 1e-9
    apart = predict(
        mlp(cluster=conf | {"nworkers_per_procs": 1}), cluster_of(2), replace(FREE, a_layer_s=1e-3, pass_s=1e-4)
    )
    assert apart.step_s < found.step_s


@pytest.mark.parametrize(
    ("n_hosts", "n_cores", "cluster", "factor"),
    [(1, 2, ALLREDUCE, 1.44), (2, 1, ALLREDUCE, 1.0), (1, 4, ALLREDUCE, 1.0), (1, 1, {}, 1.0),
     (1, 2, {"server_worker_separate": True}, 1.0), (1, 1, {"server_worker_separate": True}, 1.44),
     (1, 2, HOGWILD, 1.2)],
)  # fmt: skip
def test_processes_that_have_all_cores_of_a_host_are_slower(
    n_hosts: int, n_cores: int, cluster: dict[str, Any], factor: float
) -> None:
    hosts = replace(cluster_of(n_hosts, n_cores), host_of=tuple(i % n_hosts for i in range(2)))
    calm, crowded = (predict(mlp(cluster=cluster), hosts, FixedCosts(crowd=each), threads=1) for each in (1.0, 1.44))
    assert crowded.step_s == pytest.approx(factor * calm.step_s)
    assert crowded.samples_per_s == pytest.approx(calm.samples_per_s / factor)


@pytest.mark.long
def test_a_step_is_the_same_each_time_and_its_trace_is_within_it() -> None:
    job = mlp(cluster={"nworkers_per_group": 6, "nservers_per_group": 6})
    first, second = (predict(job, cluster_of(6), FixedCosts(), trace=True) for _ in range(2))
    assert first == second
    begins = [(str(event["tid"]), float(str(event["ts"])), float(str(event["dur"]))) for event in first.trace]
    end = max(ts + dur for thread, ts, dur in begins if thread == "worker-0-0")
    assert 0 < max(ts for _, ts, _ in begins) < end
    assert {event["tid"] for event in first.trace} >= {"worker-0-5", "server-0-0", "messages"}


def test_a_cluster_that_is_too_small_is_refused() -> None:
    with pytest.raises(ClusterError, match=r"needs 2 processes, and the cluster has 1\."):
        predict(mlp(cluster=ALLREDUCE), cluster_of(1), FREE)
