"""A driver that another one has replaced, without knowing it, changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from singa_dask.observe.run_directory import RunDirectory
from singa_dask.runtime import Driver
from singa_dask.runtime.job.driver import Lease, TakenOver
from singa_dask.runtime.job.names import JOBS
from tests.runtime.processes import digits

pytestmark = pytest.mark.cluster


def in_line(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.plugins[JOBS].waiting.facts())


@pytest.mark.parametrize("queue", [False, True])
def test_a_stale_driver_deletes_and_submits_nothing(client: Client, tmp_path: Path, queue: bool) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"event": "metrics"}\n')
    directory = RunDirectory(str(tmp_path), "", "", replaces=True)
    lease = Lease(1, has_begun=False)  # it does not know yet
    job = digits("single")
    given: dict[str, Any] = {"run_url": str(tmp_path), "job_id": "stale", "lease": lease, "queue": queue}
    driver = Driver(job, client, on_event=directory.on_event, **given)
    with directory, pytest.raises(TakenOver):
        driver.run()
    assert file.read_text() == '{"event": "metrics"}\n'
    assert client.run_on_scheduler(in_line) == []
