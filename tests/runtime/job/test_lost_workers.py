"""Dask workers that are gone while they read or write data for a client: it waits for others, up to a limit."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import dask
import pytest

from singa_dask.errors import LostUnitError
from singa_dask.runtime.job.client import dask_tasks

WORKERS = {"tcp://127.0.0.1:1": {}}


class HasWaitedError(Exception):
    """Somebody has looked for Dask workers often enough."""


@pytest.mark.parametrize(("limit", "error"), [("0s", LostUnitError), ("60s", HasWaitedError)])
def test_a_client_waits_for_dask_workers_up_to_a_limit(
    limit: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([WORKERS, {}, {}, {}])

    def present_workers(client: Any) -> Any:
        if (workers := next(looks, None)) is None:
            raise HasWaitedError
        return workers

    client: Any = None
    monkeypatch.setattr(dask_tasks, "present_workers", present_workers)
    monkeypatch.setattr(dask_tasks, "LOOK_S", 0.0)
    with dask.config.set({"distributed.singa-dask.answer": limit}), pytest.raises(error):
        dask_tasks.next_ended(client, SimpleQueue(), lambda: None)
