"""Links: what a cluster is said to be, and messages between two ends."""

from __future__ import annotations

import secrets
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from distributed import Client, Scheduler, SpecCluster, Worker
from threadpoolctl import threadpool_info, threadpool_limits

from singa_dask.errors import CommError, ConfigError
from singa_dask.ops import NumpyOps, get_ops
from singa_dask.planner import links
from singa_dask.planner.links import LOOPBACK, LinkEnd, measure_cluster, measure_here
from singa_dask.planner.model import Link
from singa_dask.planner.what_if import imagined_cluster, read_what_if
from singa_dask.runtime.planning.machine import cpu_count, machine_memory
from tests.selection import circles

WITHIN = Link(1e-5, 1e10, 1e-6, 2e-6, 1e-11, 2e-11)
HTTP = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
OVER_TCP = Link(2e-5, 1e9, 3e-6, 4e-6, 3e-11, 4e-11)


def test_a_cluster_that_is_not_there() -> None:
    values = read_what_if("hosts=64,link=25Gbit, latency=30us,cores=32,memory=1.5GiB,speed=1.25")
    assert values["link"] == 3.125e9
    assert values["latency"] == pytest.approx(3e-5)
    cluster = imagined_cluster(values, WITHIN, OVER_TCP)
    assert len(cluster.hosts) == 64
    assert {(host.n_cores, host.speed, host.memory) for host in cluster.hosts} == {(32, 1.25, 3 << 29)}
    assert cluster.host_of == (*range(64), *range(64))
    assert cluster.within == WITHIN
    # what loopback takes comes on top, and headers of Ethernet, IP and TCP take 6 % of a link
    assert cluster.between == Link(pytest.approx(5e-5), pytest.approx(2.942e9, rel=1e-3), 3e-6, 4e-6, 3e-11, 4e-11)


def test_this_machine_alone() -> None:
    cluster = imagined_cluster(read_what_if(""), WITHIN, OVER_TCP)
    (host,) = cluster.hosts
    assert (host.n_cores, host.memory, host.speed) == (cpu_count(), machine_memory(), 1.0)
    assert set(cluster.host_of) == {0}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [("link=100Mbit", "link", 1.25e7), ("latency=2ms", "latency", 2e-3), ("latency=0.5s", "latency", 0.5)],
)
def test_units(text: str, key: str, value: float) -> None:
    assert read_what_if(text)[key] == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("host=3", "--what-if host=3: unknown key 'host'. Did you mean 'hosts'?"),
        ("hosts", "--what-if hosts: expected a number, e.g. hosts=64."),
        ("hosts=0,link=1Gbit", "--what-if hosts=0: expected a number"),
        ("cores=1.5", "--what-if cores=1.5: expected a number"),
        ("link=25", "--what-if link=25: expected a number in Gbit or Mbit, e.g. link=25Gbit."),
        ("link=25GB", "expected a number in Gbit or Mbit"),
        ("latency=-1us", "expected a number in us or ms or s"),
        ("latency=30", "expected a number in us or ms or s"),
        ("hosts=2", "--what-if: several hosts need a link. Set its speed, e.g. link=25Gbit."),
        ("cores=2,", "--what-if : unknown key ''"),
    ],
)
def test_mistakes(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_what_if(text)
    assert said in str(caught.value)


def test_what_an_end_sends() -> None:
    token = secrets.token_hex(4)
    here, there = (LinkEnd(LOOPBACK, token) for _ in range(2))
    try:
        for _ in range(5):
            here.send(there.transport.address, np.ones(1000, np.uint8))
        assert here.transport.sent_bytes == there.transport.received_bytes == 5000
        assert there.transport.sent_bytes == 0
    finally:
        here.transport.close()
        there.transport.close()


def test_a_core_is_timed_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    n_threads: list[set[int]] = []

    class Ops(NumpyOps):
        def linear(self, *_: Any, **__: Any) -> None:
            n_threads.append({library["num_threads"] for library in threadpool_info()})

    get_ops().linear(*(np.ones((2, 2), np.float32) for _ in range(2)), None, out=np.empty((2, 2), np.float32))
    monkeypatch.setattr(links, "get_ops", Ops)
    with threadpool_limits(2):
        assert {library["num_threads"] for library in threadpool_info()} == {2}
        links.kernel_s()
    assert n_threads[0] == {1}


def test_an_end_of_another_link_is_an_error() -> None:
    here, there = (LinkEnd(LOOPBACK, token) for token in ("one", "other"))
    try:
        with pytest.raises(CommError, match="refused"):
            here.send(there.transport.address)
    finally:
        here.transport.close()
        there.transport.close()


@pytest.mark.long
@pytest.mark.parametrize("shared", circles([True, False]))
def test_the_link_of_two_processes(shared: bool) -> None:
    link = measure_here(shared)
    assert all(value >= 0 for value in astuple(link))
    assert min(link.latency_s, link.bytes_per_s, link.sent_s, link.received_s) > 0


@pytest.mark.cluster
@pytest.mark.long
def test_hosts_of_a_dask_cluster() -> None:
    """Three workers on two addresses of this machine, which stand for hosts."""
    workers = {
        name: {"cls": Worker, "options": {"host": f"127.0.0.{host}", "nthreads": n_threads, **HTTP}}
        for name, host, n_threads in (("a", 1, 1), ("b", 2, 1), ("c", 2, 4))
    }
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", **HTTP}}
    with SpecCluster(workers=workers, scheduler=scheduler, silence_logs=50) as cluster, Client(cluster) as client:
        client.wait_for_workers(3)
        found = measure_cluster(client, WITHIN)
    # a job takes workers with more threads first
    assert [host.name for host in found.hosts] == ["127.0.0.2", "127.0.0.1"]
    assert (found.host_of, found.threads) == ((0, 1, 0), (4, 1, 1))
    assert {host.n_cores for host in found.hosts} == {cpu_count()}
    assert found.within == WITHIN
    assert min(found.between.latency_s, found.between.bytes_per_s, *(host.speed for host in found.hosts)) > 0
