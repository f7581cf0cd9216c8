"""A scheduler that is killed, and started again with what it has kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.runtime import Patience, RemoteJobs, connect
from singa_dask.runtime.checkpoints.lookup import find_steps, load_values
from tests.faults.parts import HELD
from tests.ports import free_port
from tests.runtime.job.test_detached import ask, detach, facts_of, has_ended, metrics
from tests.runtime.job.test_queue import queued
from tests.runtime.processes import TIMEOUT_S, Cluster, kill_group, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long]

N_STEPS = 200
PARTS = ("--preload", "tests.faults.parts")


class Kept(Cluster):
    """A cluster whose scheduler keeps its jobs, and is started again at the same address."""

    def __init__(self, directory: Path) -> None:
        self._port = free_port()
        super().__init__(directory, *PARTS)

    def _start(self, role: str, *options: str) -> None:
        if role == "scheduler":
            options = (*options[:-1], str(self._port), "--preload", "singa_dask.runtime")
            os.environ["DASK_DISTRIBUTED__SINGA_DASK__STATE"] = str(self.directory / "state")
        super()._start(role, *options)
        os.environ.pop("DASK_DISTRIBUTED__SINGA_DASK__STATE", None)

    def restart(self) -> None:
        """Kill the scheduler, and start it again, and Dask workers beside those that are left."""
        kill_group(self.processes.pop(0))
        self._start("scheduler", *self._common, "--port", "0")
        self.processes.insert(0, self.processes.pop())
        for name in ("c", "d"):
            self.add(name, *PARTS)


def test_jobs_go_on_when_the_scheduler_is_started_again(tmp_path: Path) -> None:
    there = Kept(tmp_path)
    held = tmp_path / "running" / HELD
    held.parent.mkdir()
    held.write_text("100")
    try:
        with connected(there) as client:
            client.wait_for_workers(2, timeout=TIMEOUT_S)
            ids = {"running": detach(client, tmp_path / "running", steps=N_STEPS)}
            for name, priority in (("second", 0), ("third", 0), ("first", 1)):
                ids[name] = detach(client, tmp_path / name, "--queue", "--priority", str(priority), steps=20)
            assert ask(client, queued) == ["first", "second", "third"]
            wait_until(lambda: len(find_steps(str(tmp_path / "running"))) > 0, "there is a checkpoint")
        (tmp_path / "state" / "foreign.job.json").write_text("{}")
        there.restart()
        with connected(there) as client:
            rows = {row["id"]: row for row in RemoteJobs(client).rows()}
            assert "put aside: it is damaged" in rows.pop("foreign")["reason"]
            assert set(ids.values()) <= rows.keys()
            assert all(row["state"] == "queued" or row["id"] == ids["running"] for row in rows.values())
            assert [name for name in ask(client, queued) if name != "running"] == ["first", "second", "third"]
            held.unlink()
            ids["calm"] = detach(client, tmp_path / "calm", "--queue", steps=N_STEPS)
            for job_id in ids.values():
                wait_until(lambda job_id=job_id: ask(client, has_ended, job_id), job_id)  # type: ignore[misc]
            facts = {name: ask(client, facts_of, job_id) for name, job_id in ids.items()}
        assert {name: each["state"] for name, each in facts.items()} == dict.fromkeys(ids, "done")
        assert sorted(ids, key=lambda name: facts[name]["began"]) == ["running", "first", "second", "third", "calm"]
    finally:
        there.close()
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["foreign.aside.json"]
    run = tmp_path / "running"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["state"], summary["steps"], summary["resumes"]) == ("done", N_STEPS, 1)
    commands = [json.loads(line) for line in (run / "commands.jsonl").read_text().splitlines()]
    assert commands[0]["resume"] is None
    assert commands[1]["resume"].startswith(str(run / "checkpoint" / "step-"))
    shown = [event["step"] for event in metrics(run) if event["event"] == "metrics"]
    # but for what units did when there was no scheduler
    first = int(commands[1]["resume"].rpartition("-")[2])
    assert shown == sorted(set(shown))
    assert set(range(-first % 10 + first, N_STEPS, 10)) <= set(shown)
    values, others = (load_values(str(tmp_path / name)) for name in ("running", "calm"))
    assert values.keys() == others.keys()
    for name in values:
        np.testing.assert_array_equal(values[name].values, others[name].values)


def connected(there: Kept) -> Any:
    return connect(scheduler_file=there.file, patience=Patience(TIMEOUT_S))
