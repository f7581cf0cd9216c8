"""Plug-ins that the scheduler installs on Dask workers, without a cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

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


def test_a_process_whose_incarnation_ends_while_its_buddy_prepares_is_not_hosted() -> None:
    is_over: list[bool] = []

    class Ends(Sites):
        async def install(self, worker: str, name: str = "") -> BaseException | None:
            is_over.append(worker == "buddy")
            return None

        async def ask(self, worker: str, timeout_s: float, op: str, **arguments: Any) -> Any:
            raise AssertionError("the incarnation is over")

    state = SimpleNamespace(is_current=lambda process, incarnation: not any(is_over))
    record: Any = SimpleNamespace(placements={0: "{}"}, state=state)
    action: Any = SimpleNamespace(worker=WORKER, buddy="buddy", incarnation=0, process=0)
    answer = asyncio.run(Ends(cast("Any", None)).host(record, action))
    assert (answer, is_over) == ({"error": "incarnation 0 of the job is over"}, [False, True])
