"""Dask workers that are gone while they read or write data for a client: it waits for others, up to a limit."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import dask
import pytest

from singa_dask.errors import ClusterError, LostUnitError
from singa_dask.runtime.job import dask_tasks

WORKERS = {"tcp://127.0.0.1:1": {"status": "running", "memory_limit": 1 << 30}}
PAUSED = {address: {**each, "status": "paused"} for address, each in WORKERS.items()}


class HasWaitedError(Exception):
    """Somebody has looked for Dask workers often enough."""


@pytest.mark.parametrize(
    ("limit", "then", "error", "said"),
    [
        ("0s", {}, LostUnitError, "none is left"),
        ("60s", {}, HasWaitedError, ""),
        ("0s", PAUSED, ClusterError, "paused, because their memory is full: tcp://127.0.0.1:1 of 1.00 GiB"),
        ("60s", PAUSED, HasWaitedError, ""),
    ],
)
def test_a_client_waits_for_dask_workers_up_to_a_limit(
    limit: str, then: Any, error: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([WORKERS, then, then, then])

    def present_workers(client: Any) -> Any:
        if (workers := next(looks, None)) is None:
            raise HasWaitedError
        return workers

    client: Any = None
    monkeypatch.setattr(dask_tasks, "present_workers", present_workers)
    monkeypatch.setattr(dask_tasks, "LOOK_S", 0.0)
    with dask.config.set({"distributed.singa-dask.answer": limit}), pytest.raises(error, match=said or None):
        dask_tasks.next_ended(client, SimpleQueue(), lambda: None)
