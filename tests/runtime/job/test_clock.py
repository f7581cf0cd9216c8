"""Clocks of hosts are compared with that of the scheduler."""

from __future__ import annotations

import asyncio
import time

import pytest
from distributed import Client

from singa_dask.runtime.job.dask_worker.clock import measure_clock, read_clock
from singa_dask.runtime.job.dask_worker.site import Site
from tests.runtime.processes import small_cluster, wait_until


def test_a_clock_that_differs_is_corrected() -> None:
    async def ask() -> float:
        return time.time() + 3600

    clock = asyncio.run(measure_clock(ask))
    assert clock.offset_s == pytest.approx(3600, abs=clock.error_s + 1e-3)


def test_a_clock_that_may_be_the_same_is_left_alone() -> None:
    async def ask() -> float:
        return read_clock()

    assert asyncio.run(measure_clock(ask)).offset_s == 0


@pytest.mark.cluster
def test_a_dask_worker_is_heard_of_where_its_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_cluster(1, 1) as cluster, Client(cluster, set_as_default=False) as client:
        client.register_plugin(Site())
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() - 3600)
        beats = set[float]()

        def is_heard() -> bool:
            beats.update(each.last_seen for each in cluster.scheduler.workers.values())
            return len(beats) > 3  # the last one, and one may be under way

        wait_until(is_heard, "heartbeats", timeout_s=20)
