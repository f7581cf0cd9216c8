"""Threads of workers: all of their share of the cores, never more; and memory."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from singa_dask.runtime.node import Node
from singa_dask.runtime.resources import n_threads, peak_memory
from tests.runtime.harness import FRAMEWORKS, mlp


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa_dask.runtime.resources.cpu_count", lambda: 8)


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
    node = Node("test", 0, job, None, lambda event: None, neighbours=neighbours)
    try:
        assert node.devices.n_threads == given
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {given}
    finally:
        node.close()
    assert threadpool_info() == before


@pytest.mark.long
def test_memory_that_was_in_use_once_counts() -> None:
    before = peak_memory()
    n_bytes = before + (1 << 24)
    np.ones(n_bytes, np.uint8)
    assert peak_memory() > n_bytes
