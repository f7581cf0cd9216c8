"""The client that owns the tasks of units."""

from __future__ import annotations

import asyncio

import pytest
from distributed import Client, Scheduler

from singa_dask.runtime.job.scheduler.unit_tasks import MAX_CONNECTS, UnitTasks


def connect(monkeypatch: pytest.MonkeyPatch, n_interrupted: int) -> list[Client]:
    """Connect to a real scheduler, while so many attempts find another message beside the first; return the clients."""
    clients: list[Client] = []
    original = Client._ensure_connected

    async def interrupted(self: Client, timeout: float | None = None) -> None:
        clients.append(self)
        if len(clients) <= n_interrupted:
            raise AssertionError
        await original(self, timeout=timeout)

    monkeypatch.setattr(Client, "_ensure_connected", interrupted)

    async def run() -> None:
        quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
        async with Scheduler(host="127.0.0.1", port=0, **quiet) as scheduler:
            tasks = UnitTasks(scheduler, lambda job_id, event: None)
            try:
                await tasks.connect()
                await tasks.connect()
            finally:
                await tasks.close()

    asyncio.run(run())
    return clients


def test_it_connects_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(connect(monkeypatch, 0)) == 1


def test_it_connects_again_if_all_clients_were_told_something(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = connect(monkeypatch, 1)
    assert first is not second and first.status == "closed"


def test_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        connect(monkeypatch, MAX_CONNECTS)
