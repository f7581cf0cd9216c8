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
from singa_dask.runtime.job.names import JOBS
from tests.faults.parts import HELD
from tests.ports import free_port
from tests.runtime.job.test_detached import arguments, ask, call, detach, facts_of, has_ended, metrics
from tests.runtime.job.test_queue import queued
from tests.runtime.processes import TIMEOUT_S, Cluster, kill_group, wait_until
from tests.selection import circles

pytestmark = [pytest.mark.cluster, pytest.mark.long]

N_STEPS = 200
PARTS = ("--preload", "tests.faults.parts")


class Kept(Cluster):
    """A cluster whose scheduler keeps its jobs, and is started again at the same address."""

    def __init__(self, directory: Path, state: Path | None = None) -> None:
        self._port = free_port()
        self._state = state or directory / "state"
        super().__init__(directory, *PARTS)

    def _start(self, role: str, *options: str) -> None:
        if role == "scheduler":
            options = (*options[:-1], str(self._port), "--preload", "singa_dask.runtime")
            os.environ["DASK_DISTRIBUTED__SINGA_DASK__STATE"] = str(self._state)
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
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"foreign.aside.json", "owner.json"}
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
    check_values(tmp_path / "running", tmp_path / "calm")


def check_values(run: Path, calm: Path) -> None:
    """Check that two runs have the same bits."""
    values, others = (load_values(str(each)) for each in (run, calm))
    assert values.keys() == others.keys()
    for name in values:
        np.testing.assert_array_equal(values[name].values, others[name].values)


@pytest.mark.parametrize("news", circles(["another job", "a new incarnation"]))
def test_of_two_schedulers_with_one_state_the_newer_one_has_the_jobs(tmp_path: Path, news: str) -> None:
    """Both run for a while, as in a rolling update; the older one does not know it until it has something to keep."""
    run, clusters = tmp_path / "running", list[Kept]()
    for name in ("running", "old", "new"):
        (tmp_path / name).mkdir()
    (run / HELD).write_text("100")
    try:
        clusters.append(Kept(tmp_path / "old", tmp_path / "state"))
        with connected(clusters[0]) as old:
            old.wait_for_workers(2, timeout=TIMEOUT_S)
            job_id = detach(old, run, steps=N_STEPS)
            wait_until(lambda: len(find_steps(str(run))) > 0, "there is a checkpoint")
            clusters.append(Kept(tmp_path / "new", tmp_path / "state"))
            with connected(clusters[1]) as new:
                wait_until(lambda: ask(new, is_recorded, job_id), "the newer scheduler runs the job, too")
                if news == "a new incarnation":
                    clusters[0].add("e", *PARTS)
                    kill_group(clusters[0].processes[1])
                    wait_until(lambda: ask(old, has_lost_its_jobs), "the older one has looked")
                refused = call(*arguments(old, tmp_path / "another", "--detach"))
                assert refused.exit_code == 3
                assert "A newer scheduler has taken over the detached jobs" in refused.stderr
                wait_until(lambda: ask(old, is_over, job_id), "the older one has stopped it")
                (run / HELD).unlink()
                wait_until(lambda: ask(new, has_ended, job_id), "the newer one has ended it")
                calm = detach(new, tmp_path / "calm", steps=N_STEPS)
                wait_until(lambda: ask(new, has_ended, calm), "a calm run has ended, too")
    finally:
        for each in clusters:
            each.close()
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["owner.json"]
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["state"], summary["steps"], summary["resumes"]) == ("done", N_STEPS, 1)
    shown = [event["step"] for event in metrics(run) if event["event"] == "metrics"]
    assert shown == sorted(set(shown))
    assert shown[-1] == N_STEPS - 1
    check_values(run, tmp_path / "calm")


def is_recorded(job_id: str, dask_scheduler: Any) -> bool:
    """Return whether a job runs, so that its driver has begun to record it."""
    record = dask_scheduler.plugins[JOBS].records.get(job_id)
    return record is not None and record.state.phase == "running"


def has_lost_its_jobs(dask_scheduler: Any) -> bool:
    return bool(dask_scheduler.plugins[JOBS].detached.taken_over)


def is_over(job_id: str, dask_scheduler: Any) -> bool:
    return job_id in dask_scheduler.plugins[JOBS].history.facts


def connected(there: Kept) -> Any:
    return connect(scheduler_file=there.file, patience=Patience(TIMEOUT_S))
