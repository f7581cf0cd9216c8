"""Which Dask workers are there, while the client keeps a list of its own."""

from __future__ import annotations

import pytest
from distributed import Client

from singa_dask.runtime.job.calls import present_workers

pytestmark = pytest.mark.cluster


def test_workers_are_there_while_the_client_updates_its_list(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    update = Client._update_scheduler_info

    async def then_without_workers(self: Client, n_workers: int = 0) -> None:
        await update(self, n_workers)
        await update(self)

    monkeypatch.setattr(Client, "_update_scheduler_info", then_without_workers)
    assert len(client.scheduler_info(n_workers=-1)["workers"]) == 0
    assert len(present_workers(client)) == 2
