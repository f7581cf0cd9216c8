"""Search: which topologies there are, and that the best of all is found, against looking at all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from singa_dask.api import REGISTRIES
from singa_dask.conf import ClusterConf, JobConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.planner.model import Cluster, Prediction
from singa_dask.planner.search import Candidate, limit_of, partitions_of, search, topologies
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.job_stores import with_batchsize
from singa_dask.runtime.planning.layout import plan_processes
from singa_dask.runtime.planning.nets import build_net
from tests.planner.fakes import FakeCosts, hosts, simulate


def found(job: JobConf, cluster: Cluster, value_s: float = 1e-7, **more: Any) -> list[Candidate]:
    """Search with costs and a simulation that can be computed by hand."""
    return search(job, cluster, lambda job: FakeCosts(value_s), simulate=simulate, **more)


def test_topologies_of_two_hosts_with_one_core() -> None:
    conf = ClusterConf(workspace="kept")
    two = [
        (each.nworker_groups, each.nworkers_per_group, each.nworkers_per_procs, each.nserver_groups,
         each.nservers_per_group, each.server_worker_separate)
        for each in topologies(conf, hosts(2, 1), 20)
    ]  # fmt: skip
    assert two == [
        (1, 1, 1, 1, 1, False),
        (1, 1, 1, 1, 1, True),
        (1, 2, 1, 1, 1, False),
        (1, 2, 1, 1, 2, False),
        (2, 1, 1, 1, 1, False),
        (2, 1, 1, 1, 2, False),
        (2, 1, 1, 2, 1, False),
    ]
    assert all(each.workspace == "kept" for each in topologies(conf, hosts(2, 1), 20))


@pytest.mark.parametrize(
    ("n", "n_cores", "bytes_per_s"),
    [
        *((1, 2, bytes_per_s) for bytes_per_s in (1e6, 1e10)),
        (2, 2, 3e7),
        *(pytest.param(*clusters, marks=pytest.mark.long) for clusters in ((2, 2, 1e10), (3, 2, 1e8), (4, 1, 1e6))),
    ],
)
def test_the_best_of_all_is_found(tiny: JobConf, n: int, n_cores: int, bytes_per_s: float) -> None:
    cluster = hosts(n, n_cores, bytes_per_s)
    rates: dict[bool, list[float]] = {True: [], False: []}
    for conf in topologies(tiny.cluster, cluster, 20):
        job = tiny.model_copy(update={"cluster": conf})
        plan = JobPlan.make(job)
        workers = [0] * n
        for host, units in zip(cluster.host_of, plan.layout.processes, strict=False):
            workers[host] += sum(unit.kind == "worker" for unit in units)
        if max(workers) <= n_cores:
            share = n_cores // max(workers)
            each = [simulate(job, plan, cluster, FakeCosts(), threads=k).samples_per_s for k in (1, share)]
            rates[conf.nworker_groups == 1] += each
    plans = found(tiny, cluster, n_best=1)
    for kind, every in rates.items():
        best = [plan.prediction.samples_per_s for plan in plans if plan.is_synchronous == kind]
        assert max(best) == pytest.approx(max(every))


def test_synchronous_plans_come_first_each_kind_in_order(tiny: JobConf) -> None:
    plans = found(tiny, hosts(2, 2))
    kinds = [plan.is_synchronous for plan in plans]
    assert kinds == sorted(kinds, reverse=True)
    assert {True, False} == set(kinds)
    steps = [plan.prediction.step_s for plan in plans if plan.is_synchronous]
    rates = [plan.prediction.samples_per_s for plan in plans if not plan.is_synchronous]
    assert steps == sorted(steps)
    assert rates == sorted(rates, reverse=True)
    assert all((plan.prediction.staleness > 0) == (not plan.is_synchronous) for plan in plans)


def test_plans_fit_the_cluster_and_the_job(tiny: JobConf) -> None:
    cluster = hosts(3, 2)
    for plan in found(tiny, cluster):
        conf = plan.job.cluster
        assert 20 % conf.nworkers_per_group == 0
        assert plan.layout == plan_processes(conf)
        used = [0] * 3
        for host, units in zip(cluster.host_of, plan.layout.processes, strict=False):
            used[host] += plan.threads * sum(unit.kind == "worker" for unit in units)
        assert max(used) <= 2
        assert plan.n_hosts == min(3, len(plan.layout.processes))
        assert JobConf.from_json(plan.job.to_json(), REGISTRIES).cluster == conf


def test_memory_counts_nets_and_servers(tiny: JobConf) -> None:
    net = build_net(tiny, Phase.TRAIN)
    alone = next(plan for plan in found(tiny, hosts(1)) if len(plan.layout.units) == 2)
    # a server keeps the momentum of each of 784 x 10 + 10 values beside the values
    assert alone.memory == net.memory_bytes() + 2 * 4 * 7850


def test_a_host_with_too_little_memory_is_refused(tiny: JobConf) -> None:
    cluster = hosts(1)
    small = Cluster((type(cluster.hosts[0])("small", 2, 1.0, 1000),), (0, 0), cluster.within, cluster.between)
    with pytest.raises(ConfigError, match="no topology of this job fits the cluster"):
        found(tiny, small)


def test_each_unit_of_a_process_has_a_thread(tiny: JobConf) -> None:
    def layouts(*threads: int) -> set[tuple[int, ...]]:
        plans = found(tiny, replace(hosts(len(threads), 1), threads=threads))
        return {tuple(len(units) for units in plan.layout.processes) for plan in plans}

    # a worker and a server: in one process, or in two
    assert layouts(2, 1, 1) == {(2,), (1, 1), (2, 1), (1, 1, 1), (2, 1, 1)}
    assert layouts(1, 1, 1) == {(1, 1), (1, 1, 1)}
    with pytest.raises(ConfigError, match=r"too few threads. A worker and a server together need"):
        layouts(1)


def test_a_slow_host_is_a_straggler(tiny: JobConf) -> None:
    plans = found(tiny, hosts(2, 1, speeds=(1.0, 0.5)))
    assert {plan.limit for plan in plans if plan.n_hosts == 2 and plan.job.cluster.nworkers_per_group == 2} == {
        "straggler"
    }


@pytest.mark.parametrize(
    ("busy", "waits", "said"),
    [
        ({"compute": 0.9, "network": 0.2}, {}, "compute"),
        ({"compute": 0.3, "network": 0.8}, {}, "network interface of a server"),
        ({"compute": 0.3, "update": 0.8}, {}, "updates of a server"),
        ({"compute": 0.3, "messages": 0.8}, {}, "message thread of a server"),
        ({"compute": 0.5}, {"records": 0.5}, "reading"),
    ],
)
def test_what_limits_a_plan(busy: dict[str, float], waits: dict[str, float], said: str) -> None:
    layout = plan_processes(ClusterConf(server_worker_separate=True))
    assert limit_of(Prediction(1.0, 20.0, (10, 30), (1, 1), busy, waits), layout, {1.0}) == said


def test_large_layers_are_cut_by_features(tiny: JobConf) -> None:
    net = build_net(tiny, Phase.TRAIN)
    # 7,850 params, and 20 x (784 + 10) values
    assert dict(partitions_of(tiny, net)) == {"": {}}
    small = with_batchsize(tiny, 4)
    assert dict(partitions_of(small, build_net(small, Phase.TRAIN))) == {"": {}, "feature": {1: 1}}


def test_a_job_cut_by_features_can_be_cut_by_records(tiny: JobConf) -> None:
    layers = [layer.model_copy(update={"partition_dim": int(layer.name == "fc")}) for layer in tiny.neuralnet.layer]
    job = tiny.with_layers(layers)
    assert dict(partitions_of(job, build_net(job, Phase.TRAIN)))["batch"] == {1: 0}
    assert {plan.partition for plan in found(job, hosts(2))} == {"", "batch"}
