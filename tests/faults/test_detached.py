"""Detached jobs and jobs in line, whose clients are killed, and which are killed themselves."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from singa_dask.errors import ConfigError
from singa_dask.runtime import RemoteJobs
from singa_dask.runtime.job.calls import ask_jobs, present_workers
from singa_dask.runtime.job.client import detached as detaching
from singa_dask.runtime.job.client.job_cluster import install_jobs
from singa_dask.runtime.job.names import JOBS, Op
from tests.faults.jobs import job
from tests.faults.machines import Machines
from tests.faults.runs import Run
from tests.runtime.job.test_detached import arguments, ask, call, detach, driver_pid, has_ended, metrics
from tests.runtime.processes import ROOT, cluster, program, wait_until

pytestmark = pytest.mark.cluster

# A client that is killed before or after it asks the scheduler for the first time to do something.
KILLED = """
import os, signal
from singa_dask.runtime.job.client import detached as detaching
ask = detaching.ask_jobs
def ask_and_die(client, op, /, **given):
    answer = ask(client, op, **given) if op != {op!r} or {after} else None
    if op == {op!r}:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
detaching.ask_jobs = ask_and_die
from singa_dask.cli import main
main()
"""


class Detached:
    """A job that ``run --detach`` leaves to a cluster; it takes all threads, and does not end by itself."""

    def __init__(self, there: Machines, directory: Path, *more: str, code: str = "") -> None:
        self.client, self.jobs = there.client, RemoteJobs(there.client)
        self.run = directory / f"detached{len(list(directory.iterdir()))}"
        self.run.mkdir()
        file = self.run / "given.yaml"
        file.write_text(job("allreduce", 1_000_000, name=self.run.name).model_dump_json(exclude_unset=True))
        where = ["--scheduler-file", there.file, "--run-dir", str(self.run)]
        command = [*program("run", str(file), *where, "--detach", "--quiet", *more)]
        if code:
            command[2] = code
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait(self) -> str:
        """Wait until the program has ended; return what it has printed."""
        said, errors = self.process.communicate()
        assert self.process.returncode in (0, -signal.SIGKILL), errors
        return said.strip()

    def row(self) -> dict[str, Any] | None:
        """Return what the scheduler knows of the job, if it knows it."""
        return next((row for row in self.jobs.rows() if row["run_url"] == str(self.run)), None)

    def is_driven(self) -> bool:
        return bool(self.client.run_on_scheduler(driven, str(self.run)))

    def has_ended(self) -> bool:
        """Return whether the job has ended, and its driver too."""
        row = self.row()
        return not self.is_driven() and (row is None or row["ended"] is not None)

    def kill(self) -> None:
        """Kill the job, as ``singa-dask kill`` does, unless it has ended."""
        row = self.row()
        assert row is not None
        self.jobs.kill(row["id"])

    def check_whole(self) -> None:
        """Check that the run directory is that of a job that was killed, or of one that has not begun."""
        row = self.row()
        has_begun = (self.run / "job.yaml").exists()
        assert (self.run / "summary.json").exists() == has_begun, list(self.run.iterdir())
        if row is not None:
            assert (row["state"], row["exit_code"]) in (("failed", 137), ("stopped", 137)), row


def driven(run_url: str, dask_scheduler: Any) -> list[str]:
    """Return the job of a run directory, if a driver on the cluster runs it."""
    drivers = dask_scheduler.plugins[JOBS].detached._detached.values()
    return [each.run["job_id"] for each in drivers if each.run["run_url"] == run_url and not each.has_ended]


def end(detached: Detached) -> None:
    """End a job that may not have begun, and see that nothing is left of it."""
    # one that is starting has no row yet
    wait_until(lambda: detached.has_ended() or detached.row() is not None, "the job is known")
    try:
        if not detached.has_ended():
            detached.kill()
    except ConfigError:
        pass  # it has ended meanwhile
    wait_until(detached.has_ended, "the job has ended, and its driver too")
    detached.check_whole()


def check_next_job(there: Machines, directory: Path) -> None:
    """Check that a job that takes all threads starts."""
    assert Run(job("allreduce", 3), there, directory, queue=True).result.state == "done"


@pytest.mark.long
@pytest.mark.parametrize(
    ("op", "after", "runs"),
    [
        pytest.param(Op.DETACH, False, False, marks=pytest.mark.soak),
        (Op.DETACH, True, True),
        pytest.param(Op.DETACHED, True, True, marks=pytest.mark.soak),
    ],
)
def test_a_client_that_is_killed_while_it_detaches(
    bare: Machines, tmp_path: Path, op: str, after: bool, runs: bool
) -> None:
    detached = Detached(bare, tmp_path, code=KILLED.format(op=op, after=after))
    assert detached.wait() == ""
    if runs:
        wait_until(lambda: (detached.row() or {}).get("step", -1) > 5, "the job trains without its client")
    else:
        assert (detached.row(), detached.is_driven()) == (None, False)
        assert [path.name for path in detached.run.iterdir()] == ["given.yaml"]
    end(detached)
    check_next_job(bare, tmp_path)


@pytest.mark.long
def test_the_driver_of_a_job_goes_past_dask_workers_that_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__SINGA_DASK__SILENT", "3s")
    run = tmp_path / "run"
    with cluster(tmp_path, "--no-nanny", names=("a", "b", "c")) as (_, client):
        named = {address: str(each["name"]) for address, each in present_workers(client).items()}
        pids = client.run(os.getpid)
        *others, last = sorted(named)  # a driver goes to the first one
        confined = ("--set", f"cluster.workers.name={named[last]}", "--set", "checkpoint_freq=0")
        job_id = detach(client, run, *confined, framework="single", steps=1_000_000)
        wait_until(lambda: n_shown(run) > 2, "the run directory is written")
        where = ask(client, driver_pid, job_id)
        assert where in others
        for address in others:
            os.kill(pids[address], signal.SIGSTOP)
        wait_until(lambda: ask(client, driver_pid, job_id) == last, "a driver is where somebody answers")
        n = n_shown(run)
        wait_until(lambda: n_shown(run) > n + 2, "the run directory is written")
        RemoteJobs(client).kill(job_id)
        wait_until(lambda: ask(client, has_ended, job_id), "the job has ended, and its driver too")
    shown = [event["step"] for event in metrics(run) if event["event"] == "metrics"]
    assert shown == list(range(0, 10 * len(shown), 10))


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_job_is_refused_if_the_only_dask_worker_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    for name, value in (("SILENT", "3s"), ("ANSWER", "6s")):
        monkeypatch.setenv(f"DASK_DISTRIBUTED__SINGA_DASK__{name}", value)
    with cluster(tmp_path, "--no-nanny", names=("a",)) as (_, client):
        ((address, pid),) = client.run(os.getpid).items()
        if when == "before":  # the scheduler already knows that it is silent
            install_jobs(client)
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: client.run_on_scheduler(is_silent, address), "it is silent")
        else:
            monkeypatch.setattr(detaching, "ask_jobs", stopped_before(Op.DETACH, pid))
        done = call(*arguments(client, tmp_path / "run", "--detach", framework="single"))
        assert (done.exit_code, (tmp_path / "run").exists()) == (3, False), done.stderr
        said = f"no Dask worker can run the driver of the job: no heartbeats from {address}. Restart these Dask workers"
        assert said in done.stderr


def stopped_before(op: str, pid: int) -> Any:
    """Return a form of `ask_jobs` that stops a process before it calls an operation."""

    def ask_and_stop(client: Any, name: str, /, *given: Any, **arguments: Any) -> Any:
        if name == op:
            os.kill(pid, signal.SIGSTOP)
        return ask_jobs(client, name, *given, **arguments)

    return ask_and_stop


def is_silent(address: str, dask_scheduler: Any) -> bool:
    jobs = dask_scheduler.plugins[JOBS]
    jobs._heartbeats.look()
    return bool(jobs._heartbeats.is_silent(address))


def n_shown(run: Path) -> int:
    """Return the number of lines of ``metrics.jsonl``."""
    file = run / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.mark.soak
@pytest.mark.parametrize("in_line", [False, True])
def test_kills_of_detached_jobs_at_random_moments(bare: Machines, tmp_path: Path, in_line: bool) -> None:
    """Of two jobs the one that runs or the one in line is killed; the other trains, and the next one does."""
    chance = random.Random(1)
    for _ in range(2):
        first = Detached(bare, tmp_path)
        assert first.wait()
        second = Detached(bare, tmp_path, "--queue")
        if in_line:
            assert second.wait()
        killed, other = (second, first) if in_line else (first, second)
        threading.Event().wait(chance.uniform(0, 1))  # the moment
        end(killed)
        if not in_line:
            assert second.wait()
        wait_until(partial(trains, other), "the other job trains")
        end(other)
        check_next_job(bare, tmp_path)


def trains(detached: Detached) -> bool:
    row = detached.row()
    return row is not None and row["state"] == "running" and row["step"] > 2
