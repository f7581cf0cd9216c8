"""Threads of workers: all of their share of the cores, never more; and memory."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
from dask.system import cpu_count
from threadpoolctl import threadpool_info, threadpool_limits

from singa_dask.comm.transport import Transport
from singa_dask.runtime.planning import machine
from singa_dask.runtime.planning.machine import n_threads, peak_memory
from singa_dask.runtime.planning.thread_limits import ThreadPools, limit_process
from singa_dask.runtime.units.unit_host import UnitHost
from tests.runtime.harness import FRAMEWORKS, mlp
from tests.selection import mostly_long


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa_dask.runtime.planning.machine.cpu_count", lambda: 8)


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize(
    ("wanted", "n_workers", "given"),
    [(0, 1, 8), (0, 2, 4), (0, 3, 2), (0, 16, 1), (0, 0, 8), (3, 1, 3), (3, 2, 3), (3, 4, 2), (9, 1, 8), (2, 16, 1)],
)
def test_a_worker_gets_what_it_asks_for_or_its_share(wanted: int, n_workers: int, given: int) -> None:
    assert n_threads(mlp(threads=wanted), n_workers) == given


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize(
    ("framework", "neighbours", "given"),
    [
        ("single", None, 8),
        ("allreduce", None, 4),
        ("allreduce", [0], 8),
        ("allreduce", [0, 1], 4),
        ("sandblaster-1", None, 4),
        ("hybrid", None, 2),
        ("hybrid", [0], 4),
    ],
)
def test_workers_on_one_host_share_its_cores(framework: str, neighbours: Collection[int] | None, given: int) -> None:
    before = threadpool_info()
    job = mlp(cluster=FRAMEWORKS[framework])
    host = UnitHost("test", 0, job, None, lambda event: None, neighbours=neighbours)
    try:
        assert host.devices.n_threads == given
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {given}
    finally:
        host.close()
    assert threadpool_info() == before


def test_a_process_without_a_port_leaves_no_limit_on_threads() -> None:
    def no_port(*given: object, **named: object) -> Transport:
        raise OSError("no port is free")

    before = threadpool_info()
    with pytest.raises(OSError, match="no port is free") as error:
        UnitHost("test", 0, mlp(threads=3, cluster=FRAMEWORKS["allreduce"]), no_port, lambda event: None)
    assert threadpool_info() == before, error  # the error keeps what was begun from the garbage collector


@pytest.mark.parametrize("order", mostly_long(map(list, itertools.permutations(range(3))), 3))
def test_limits_of_jobs_that_overlap_end_in_any_order(order: list[int]) -> None:
    def n_of_blas() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    wanted, before = [3, 1, 2], threadpool_info()
    limits = [limit_process(n) for n in wanted]
    for limit in limits:
        limit.__enter__()
    assert n_of_blas() == {1}
    left = list(wanted)
    for i in order:
        limits[i].__exit__(None, None, None)
        left.remove(wanted[i])
        assert not left or n_of_blas() == {min(left)}
    assert threadpool_info() == before


@pytest.mark.long
def test_memory_that_was_in_use_once_counts() -> None:
    before = peak_memory()
    n_bytes = before + (1 << 24)
    np.ones(n_bytes, np.uint8)
    assert peak_memory() > n_bytes


def test_cores_are_those_that_dask_counts() -> None:
    assert machine.cpu_count() == cpu_count()


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "max 100000\n"}, 99),
        ({"kubepods/pod/cpu.max": "100000 100000\n"}, 1),
        ({"cpu,cpuacct/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 99),
    ],
)
def test_a_control_group_limits_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], most: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "process").write_text("0::/kubepods/pod\n")
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(machine, "CGROUP_OF_PROCESS", tmp_path / "process")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(99))
    assert machine.cpu_count() == most


SHARED = """
import os, time
from singa_dask.runtime.planning.machine import core_wait_s
before, began, used = core_wait_s(), time.perf_counter(), time.thread_time()
while time.thread_time() - used < 0.3:
    pass
print(core_wait_s() - before, time.perf_counter() - began - (time.thread_time() - used))
"""


@pytest.mark.long
def test_a_thread_counts_how_long_it_waits_for_a_core() -> None:
    if not machine.SCHEDULED.exists():
        pytest.skip("the system does not count for how long threads wait")
    core = min(os.sched_getaffinity(0))
    beside = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"]
    with subprocess.Popen(beside) as other:
        try:
            code = f"import os; os.sched_setaffinity(0, [{core}]){SHARED}"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        finally:
            other.kill()
    waited, not_run = map(float, done.stdout.split())
    # it never sleeps, so it waits for a core whenever it does not run
    assert waited == pytest.approx(not_run, rel=0.05, abs=0.01) and waited > 0.1


def test_a_system_that_does_not_count_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SCHEDULED", tmp_path / "none")
    assert machine.core_wait_s() == 0


def test_limits_of_others_are_never_raised() -> None:
    def found() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info()}

    pools = ThreadPools()
    with threadpool_limits(2):
        with pools.limit(1):
            assert found() == {1}
        with pools.limit(3):
            assert found() == {2}
        with pools.limit(1, blas=False):
            assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "openmp"} <= {1}
        assert found() == {2}
