"""Layouts of SINGA's own examples, and what is said of a cluster that a job does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm.message import Address
from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError
from singa_dask.runtime import plan_processes
from singa_dask.runtime.planning.layout import Layout, pack
from singa_dask.runtime.planning.worker_choice import WorkerFacts, place, place_first, shortage
from tests.selection import few_examples


def layout(**cluster: Any) -> Layout:
    return plan_processes(ClusterConf.model_validate(cluster))


def pairs(n: int, **more: Any) -> dict[str, Any]:
    """Return a cluster block of ``n`` processes, each with a worker and a server."""
    return {"nworkers_per_group": n, "nservers_per_group": n, "server_worker_separate": False, **more}


def shown(found: Layout) -> list[str]:
    return [" ".join(str(unit) for unit in units) for units in found.processes]


@pytest.mark.parametrize(
    ("cluster", "processes"),
    [
        pytest.param({}, ["worker-0-0 server-0-0"], id="single"),
        pytest.param(
            {
                "nworkers_per_group": 3,
                "nservers_per_group": 2,
                "nworkers_per_procs": 1,
                "nservers_per_procs": 1,
                "server_worker_separate": True,
            },
            ["worker-0-0", "worker-0-1", "worker-0-2", "server-0-0", "server-0-1"],
            id="sandblaster",
        ),
        pytest.param(
            {"nworkers_per_group": 3, "nservers_per_group": 3},
            ["worker-0-0 server-0-0", "worker-0-1 server-0-1", "worker-0-2 server-0-2"],
            id="allreduce",
        ),
        pytest.param(
            {
                "nworker_groups": 2,
                "nworkers_per_group": 2,
                "nservers_per_group": 2,
                "nworkers_per_procs": 2,
                "nservers_per_procs": 2,
                "server_worker_separate": True,
            },
            ["worker-0-0 worker-0-1", "worker-1-0 worker-1-1", "server-0-0 server-0-1"],
            id="downpour",
        ),
        pytest.param(
            {"nworker_groups": 3, "nserver_groups": 3},
            ["worker-0-0 server-0-0", "worker-1-0 server-1-0", "worker-2-0 server-2-0"],
            id="hogwild",
        ),
        pytest.param(
            {
                "nworker_groups": 2,
                "nworkers_per_group": 2,
                "nserver_groups": 2,
                "nservers_per_group": 2,
                "nworkers_per_procs": 2,
                "nservers_per_procs": 1,
                "server_worker_separate": False,
            },
            ["worker-0-0 worker-0-1 server-0-0", "worker-1-0 worker-1-1 server-0-1", "server-1-0", "server-1-1"],
            id="hybrid",
        ),
        pytest.param(
            {"nworkers_per_group": 5, "nworkers_per_procs": 2},
            ["worker-0-0 worker-0-1 server-0-0", "worker-0-2 worker-0-3", "worker-0-4"],
            id="uneven",
        ),
        pytest.param(
            {"nworker_groups": 2, "nworkers_per_group": 3, "nworkers_per_procs": 4},
            ["worker-0-0 worker-0-1 worker-0-2 worker-1-0 server-0-0", "worker-1-1 worker-1-2"],
            id="a process with parts of two groups",
        ),
    ],
)
def test_units_are_dealt_to_processes_as_singa_deals_them(cluster: dict[str, Any], processes: list[str]) -> None:
    found = layout(**cluster)
    assert shown(found) == processes
    assert found.describe()["processes"] == [units.split() for units in processes]
    assert found.n_threads == max(len(units) for units in found.processes)


@few_examples(30)
@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 5),
    st.booleans(),
)  # fmt: skip
def test_every_unit_is_placed_once(
    per_server_group: int, n_server_groups: int, n_workers: int, n_servers: int, wpp: int, spp: int, separate: bool
) -> None:
    n_groups = per_server_group * n_server_groups
    found = layout(
        nworker_groups=n_groups,
        nserver_groups=n_server_groups,
        nworkers_per_group=n_workers,
        nservers_per_group=n_servers,
        nworkers_per_procs=wpp,
        nservers_per_procs=spp,
        server_worker_separate=separate,
    )
    workers = {Address.worker(g, i) for g in range(n_groups) for i in range(n_workers)}
    servers = {Address.server(g, i) for g in range(n_server_groups) for i in range(n_servers)}
    assert sorted(found.units) == sorted(workers | servers)
    assert all(found.processes)
    assert all(unit in found.processes[process] for unit, process in found.process_of.items())
    for units in found.processes:
        kinds = [unit.kind for unit in units]
        assert kinds.count("worker") <= wpp
        assert kinds.count("server") <= spp
        assert not (separate and len(set(kinds)) > 1)
    served = [found.server_group_of(group) for group in range(n_groups)]
    assert served == sorted(served)
    assert {served.count(group) for group in range(n_server_groups)} == {per_server_group}


@few_examples(30)
@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.booleans(), st.integers(1, 12))
def test_a_packed_layout_joins_whole_processes(
    n_workers: int, n_servers: int, wpp: int, spp: int, separate: bool, n: int
) -> None:
    before = layout(
        nworkers_per_group=n_workers,
        nservers_per_group=n_servers,
        nworkers_per_procs=wpp,
        nservers_per_procs=spp,
        server_worker_separate=separate,
    )
    found = pack(before, n)
    assert len(found.processes) == min(n, len(before.processes))
    assert found.cluster == before.cluster
    assert sorted(found.units) == sorted(before.units)
    joined = [found.process_of[units[0]] for units in before.processes]
    assert joined == sorted(joined), "consecutive processes are joined"
    for units, process in zip(before.processes, joined, strict=True):
        assert {found.process_of[unit] for unit in units} == {process}
    assert found.n_threads < len(before.units) / len(found.processes) + before.n_threads
    for units in found.processes:
        kinds = [unit.kind for unit in units]
        assert kinds == sorted(kinds, reverse=True), "workers before servers"


@pytest.mark.parametrize(
    ("n", "sizes"),
    [(1, [16]), (2, [8, 8]), (3, [6, 4, 6]), (4, [4] * 4), (7, [2] * 3 + [4] + [2] * 3), (8, [2] * 8), (99, [2] * 8)],
)
def test_packed_processes_have_about_the_same_number_of_units(n: int, sizes: list[int]) -> None:
    found = pack(layout(nworkers_per_group=8, nservers_per_group=8), n)
    assert [len(units) for units in found.processes] == sizes
    assert found.n_threads == max(sizes)


def test_a_layout_needs_a_process() -> None:
    with pytest.raises(ValueError, match="at least one process, got 0"):
        pack(layout(), 0)


def workers(*n_threads: int, busy: Mapping[str, int] | None = None) -> dict[str, WorkerFacts]:
    addresses = [f"tcp://host:{9000 + i}" for i in range(len(n_threads))]
    known = zip(addresses, n_threads, strict=True)
    return {each: WorkerFacts(n, (busy or {}).get(each, 0), "host", f"w{i}") for i, (each, n) in enumerate(known)}


def test_each_process_gets_a_dask_worker_with_room_for_its_units() -> None:
    found = layout(nworkers_per_group=3, nworkers_per_procs=2)  # processes of 3 units and of 1
    assert place(found, workers(1, 3)) == ["tcp://host:9001", "tcp://host:9000"]
    assert place(found, workers(4, 8, busy={"tcp://host:9001": 6})) == ["tcp://host:9000", "tcp://host:9001"]
    assert len(set(place(found, workers(3, 3, 3)))) == 2


@pytest.mark.parametrize(
    ("there", "busy", "said"),
    [
        ((), {}, "0 are ready (free threads: none)"),
        ((2,), {}, "1 is ready (free threads: tcp://host:9000: 2 of 2)"),
        ((2, 1), {}, "tcp://host:9001: 1 of 1"),
        ((2, 2), {"tcp://host:9000": 1}, "tcp://host:9000: 1 of 2"),
        ((2, 2), {"tcp://host:9000": 6}, "tcp://host:9000: 0 of 2"),
        ((1, 1, 1, 1), {}, "4 are ready"),
    ],
)
def test_a_job_that_does_not_fit_is_refused_with_the_numbers(
    there: tuple[int, ...], busy: dict[str, int], said: str
) -> None:
    with pytest.raises(ClusterError) as caught:
        place(layout(nworkers_per_group=2, nservers_per_group=2), workers(*there, busy=busy))
    assert "it needs 2 Dask workers with 2 free threads each" in str(caught.value)
    assert said in str(caught.value)
    # there will be room once other jobs are done
    assert ("pass --queue to run, or queue=True to sd.train" in str(caught.value)) == bool(busy)
    assert caught.value.exit_code == 3


def test_the_refusal_says_why_dask_workers_have_no_room() -> None:
    first, second, *others = workers(*[2] * 22)
    there = workers(*[2] * 22, busy={second: 1})
    there[second] = there[second]._replace(note="1 by job mlp-1")
    for address in others:
        there[address] = there[address]._replace(usable=False, note="it closes")
    with pytest.raises(ClusterError) as caught:
        place(layout(nworkers_per_group=2, nservers_per_group=2), there)
    unused = ", ".join(f"{address} (it closes)" for address in others[:8])
    said = f"2 are ready (free threads: {first}: 2 of 2, {second}: 1 of 2). Threads are taken on: {second} (1 by job "
    assert f"{said}mlp-1). Not used: {unused} and 12 more. It fits once other jobs are done" in str(caught.value)
    assert place(layout(nworkers_per_group=1), there) == [first]


@few_examples(30)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 5)), st.floats(0, 9)),
    st.integers(1, 5), st.integers(1, 3),
)  # fmt: skip
def test_preferences_never_make_a_job_too_large(
    threads: list[int], worth: dict[tuple[int, int], float], n_workers: int, per_process: int
) -> None:
    found, there = layout(nworkers_per_group=n_workers, nworkers_per_procs=per_process), workers(*threads)

    def gain(processes: Sequence[int], left: Sequence[str], chosen: Mapping[int, str]) -> np.ndarray:
        assert not chosen.keys() & {*processes}
        assert not {*chosen.values()} & {*left}
        index = {worker: i for i, worker in enumerate(there)}
        return np.array([[worth.get((process, index[worker]), 0.0) for worker in left] for process in processes])

    try:
        plain = place(found, there)
    except ClusterError:
        with pytest.raises(ClusterError):
            place(found, there, gain)
        return
    chosen = place(found, there, gain)
    assert len(set(chosen)) == len(found.processes)
    assert all(there[worker].nthreads >= len(units) for worker, units in zip(chosen, found.processes, strict=True))
    assert chosen == place(found, there, gain)
    assert place(found, there, lambda processes, left, _: np.zeros((len(processes), len(left)))) == plain


def test_the_worker_that_is_worth_most_is_taken() -> None:
    found = layout(nworkers_per_group=2)
    worth = [{"tcp://host:9002": 5.0, "tcp://host:9001": 1.0}, {"tcp://host:9002": 9.0}]

    def gain(processes: Sequence[int], left: Sequence[str], _: Mapping[int, str]) -> np.ndarray:
        return np.array([[worth[process].get(worker, 0.0) for worker in left] for process in processes])

    chosen = place(found, workers(2, 2, 1), gain)
    assert chosen == ["tcp://host:9001", "tcp://host:9002"]


@pytest.mark.parametrize(
    ("cluster", "threads", "said"),
    [
        (pairs(2), [2, 2], ""),
        (pairs(2), [1, 2], "needs 2 Dask workers with 2 threads; "),
        (pairs(2), [1, 2], "the cluster has 2 with 2, 1 threads"),
        ({"workers": {"name": "gpu*"}}, [], "the cluster has none that match cluster.workers"),
        (pairs(4, elastic={"max_processes": 4}), [1], ""),
    ],
)
def test_what_an_idle_cluster_lacks_for_a_job(cluster: dict[str, Any], threads: list[int], said: str) -> None:
    conf, free = ClusterConf.model_validate(cluster), [WorkerFacts(n, 0, "h", f"gpu{i}") for i, n in enumerate(threads)]
    found = shortage(conf, threads)
    assert said in found
    assert bool(found) == bool(said)
    if said:
        with pytest.raises(ClusterError):
            place_first(plan_processes(conf), dict(zip("abcd", free, strict=False)))
    else:
        place_first(plan_processes(conf), dict(zip("abcd", free, strict=False)))
