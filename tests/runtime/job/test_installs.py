"""Plug-ins that the scheduler installs on Dask workers, without a cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from singa_dask.runtime.job.scheduler.sites import Sites

WORKER = "tcp://10.0.0.1:1"


def test_an_answer_of_a_dask_worker_that_is_gone_says_nothing_of_a_new_one_at_its_address() -> None:
    old, new = SimpleNamespace(plugins=[]), SimpleNamespace(plugins=[])
    answers, asked = asyncio.Event(), asyncio.Event()

    async def broadcast(msg: dict[str, Any], workers: list[str], on_error: str) -> dict[str, Any]:
        there = scheduler.workers[WORKER]
        if msg["op"] == "plugin-add":
            there.plugins.append(msg["name"])
        if there is old:
            asked.set()
            await answers.wait()
        return {WORKER: None}

    scheduler: Any = SimpleNamespace(workers={WORKER: old}, broadcast=broadcast)
    sites = Sites(scheduler)

    async def replace() -> None:
        late = asyncio.create_task(sites.install(WORKER))
        await asked.wait()
        scheduler.workers[WORKER] = new
        sites.forget(WORKER)
        answers.set()
        assert isinstance(await late, OSError)
        assert (await sites.install(WORKER), new.plugins) == (None, ["singa-dask"])

    asyncio.run(replace())
