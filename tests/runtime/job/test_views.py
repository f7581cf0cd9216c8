"""What the scheduler answers about a job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from singa_dask.runtime.job.views import Views

HERE, THERE = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"


class Sites:
    """Dask workers of which each has units of a job."""

    async def ask_all(self, workers: Sequence[str], timeout_s: float, op: str, job_id: str) -> dict[str, Any]:
        """Return the stacks of units, or why a Dask worker does not answer."""
        units = ("worker-0-0", "worker-0-1", "server-0-0")
        stacks: dict[str, Any] = {
            HERE: {unit: {"stack": [unit], "wait": None} for unit in units},
            THERE: OSError("gone"),
        }
        return {worker: stacks[worker] for worker in workers}


def test_stacks_of_all_processes_on_a_dask_worker() -> None:
    processes = [
        {"address": HERE, "units": ["worker-0-0", "server-0-0"]},
        {"address": THERE, "units": ["worker-0-2"]},
        {"address": HERE, "units": ["worker-0-1"]},
    ]
    record: Any = SimpleNamespace(state=SimpleNamespace(roster=SimpleNamespace(describe=lambda: processes)))
    jobs: Any = SimpleNamespace(records={"job": record}, sites=Sites())
    views = Views(jobs)
    found = asyncio.run(views.stacks("job"))
    assert found is not None
    assert found.pop("worker-0-2")["error"].startswith("the Dask worker does not answer: OSError")
    assert found == {
        unit: {"address": HERE, "stack": [unit], "wait": None} for unit in ("worker-0-0", "worker-0-1", "server-0-0")
    }
    alone = asyncio.run(views.stacks("job", "worker-0-1"))
    assert list(alone or ()) == ["worker-0-1"]
