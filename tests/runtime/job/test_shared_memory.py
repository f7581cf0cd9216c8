"""Processes of one host pass arrays through shared memory: the same bits, and its bytes count as memory of both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, Worker

from singa_dask.runtime.checkpoints.lookup import load_values
from singa_dask.runtime.job.names import SITE
from tests.runtime.processes import Driven, cluster, digits, wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no anonymous files in memory"),
]
LIMIT = 2 << 30


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster", "--memory-limit", str(LIMIT), "--no-nanny") as (_, client):
        yield client


def mapped(dask_worker: Worker) -> list[int]:
    """Return the bytes of the segments that a Dask worker has mapped, those for arrays."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "/memfd:singa-dask" in line]
    ends = [[int(end, 16) for end in line[0].split("-")] for line in lines]
    return [stop - start - os.sysconf("SC_PAGE_SIZE") for start, stop in ends]


def limit_of_job(dask_worker: Worker) -> Any:
    plugin: Any = dask_worker.plugins[SITE]
    (hosting,) = plugin.hostings.values()
    return hosting.memory_limit


def test_bits_and_memory_with_and_without(client: Client, tmp_path: Path) -> None:
    runs, seen = {}, {}
    for is_on in (True, False):

        def look(driven: Driven, event: dict[str, Any]) -> None:
            sizes, limits = client.run(mapped), client.run(limit_of_job)
            seen[is_on] = [(sizes[worker], limits[worker]) for worker in sizes]  # noqa: B023

        job = digits("allreduce", f"cluster.listen.shared_memory={str(is_on).lower()}")
        (tmp_path / f"{is_on}").mkdir()
        runs[is_on] = Driven(job, client, tmp_path / f"{is_on}", on_metrics=look)
        assert runs[is_on].result.state == "done", runs[is_on].result
        wait_until(lambda: not any(client.run(mapped).values()), "all is unmapped")
    assert seen[False] == [([], LIMIT)] * 2
    for sizes, limit in seen[True]:
        assert len(sizes) == 2 and sum(sizes) == LIMIT - limit
    assert runs[True].result.bytes == runs[False].result.bytes
    on, off = (load_values(runs[is_on].url) for is_on in (True, False))
    assert on.keys() == off.keys()
    assert all(np.array_equal(on[name].values, off[name].values) for name in on)
