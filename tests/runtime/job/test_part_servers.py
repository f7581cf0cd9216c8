"""The search for Dask workers that serve part files, without a cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import dask
import pytest

from singa_dask.errors import ClusterError
from singa_dask.runtime.job.dask_worker import part_files
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import Op
from singa_dask.runtime.job.scheduler.sites import Sites

HUNG, WELL = "tcp://10.0.0.1:1", "tcp://10.0.0.1:2"


def test_a_hung_dask_worker_does_not_hold_up_the_search() -> None:
    class SomeHang(Sites):
        async def install(self, worker: str, name: str = "") -> BaseException | None:
            if worker == HUNG:
                await asyncio.Event().wait()
            return None

    async def search() -> list[str]:
        workers = {address: SimpleNamespace(host="10.0.0.1") for address in (HUNG, WELL)}
        scheduler: Any = SimpleNamespace(workers=workers)
        return await asyncio.wait_for(SomeHang(scheduler).servers(HUNG), 1.0)

    with dask.config.set({"distributed.singa-dask.host": "10ms"}):
        assert asyncio.run(search()) == [WELL]


def test_the_search_may_last_as_long_as_a_dask_worker_may_load_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: dict[str, float] = {}

    def sync(loop: Any, op: str, *, callback_timeout: float, **facts: Any) -> Any:
        waits[op] = callback_timeout
        raise TimeoutError

    monkeypatch.setattr(part_files, "sync", sync)
    ops = SimpleNamespace(**{Op.SERVERS: Op.SERVERS})
    worker: Any = SimpleNamespace(local_directory="/scratch/worker", scheduler=ops, loop=None)
    files = part_files.PartFiles(worker)
    catalog: Any = SimpleNamespace(token="token", dataset="rows")
    file: Any = SimpleNamespace(worker=HUNG, name="0.arrow", host="10.0.0.1", path="/scratch/0.arrow")
    with pytest.raises(ClusterError, match="the scheduler: TimeoutError"):
        files._attempt(catalog, file, 0, 1)
    files.close()
    assert waits[Op.SERVERS] > limit("host")
