"""Processes that leave politely hand over what they have; without a scheduler or a client a job ends in order."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client

from singa_dask.runtime.checkpoints.lookup import find
from tests.faults.jobs import first_unit, job
from tests.faults.machines import BARE, Machines, check_left, machines
from tests.faults.runs import Fault, Run, at_step, check_params, check_same, signalled
from tests.runtime.processes import ROOT, program, residue, wait_until

pytestmark = pytest.mark.cluster


def check_went_on(run: Run, calm: Any) -> None:
    """Check that a job is done after it was placed anew, by a planned move or as after a loss."""
    n_incarnations = len(run.named("placed"))
    assert n_incarnations > 1
    check_same(run, calm(run.job), run.result.restarts, n_incarnations - 1 - run.result.restarts)


def once_it_leaves(unit: str, act: Callable[[Run], Any]) -> Fault:
    """Return a fault that makes the Dask worker of a unit leave; the job may end only when it does."""

    def strike(run: Run) -> None:
        address = run.placed[unit]
        run.later(0, partial(act, run))
        wait_until(lambda: run.machines.workers().get(address, {}).get("status") != "running", "it leaves")

    return strike


@pytest.mark.long
def test_a_worker_that_is_retired(bare: Machines, tmp_path: Path, calm: Any) -> None:
    made = job("allreduce", 1000)
    unit = first_unit(made, 0)

    def retire(run: Run) -> None:
        with Client(run.machines.client.scheduler.address, set_as_default=False) as other:
            other.retire_workers([run.placed[unit]])

    run = Run(made, bare, tmp_path / "runs", (at_step(40), once_it_leaves(unit, retire)))
    check_went_on(run, calm)
    assert run.result.restarts == 0, run.result


@pytest.mark.soak
def test_a_worker_with_sigterm(bare: Machines, tmp_path: Path, calm: Any) -> None:
    made = job("allreduce", 1000)
    leaves = once_it_leaves("worker-0-1", signalled(signal.SIGTERM, "worker-0-1"))
    run = Run(made, bare, tmp_path / "runs", (at_step(40), leaves))
    check_went_on(run, calm)


@pytest.mark.long
def test_a_worker_whose_nanny_has_sigterm_hands_over(nannies: Machines, tmp_path: Path, calm: Any) -> None:
    made = job("allreduce", 1000)

    def end(run: Run) -> None:
        psutil.Process(nannies.pid(run.placed["worker-0-1"])).parent().terminate()

    run = Run(made, nannies, tmp_path / "runs", (at_step(40), once_it_leaves("worker-0-1", end)))
    check_same(run, calm(made), restarts=0, moves=1)


@pytest.mark.soak
def test_somebody_restarts_all_workers(nannies: Machines, tmp_path: Path, calm: Any) -> None:
    """Some may hand over, others may be lost before they can."""
    made = job("allreduce", 1000)

    def restart(run: Run) -> None:
        with Client(run.machines.client.scheduler.address, set_as_default=False) as other:
            other.restart(wait_for_workers=False)

    run = Run(made, nannies, tmp_path / "runs", (at_step(40), restart))
    check_went_on(run, calm)


@pytest.mark.soak
def test_a_lost_scheduler_leaves_a_checkpoint(tmp_path: Path, calm: Any) -> None:
    """The job goes on from it on another cluster."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    endless, made = job("allreduce", 1_000_000), job("allreduce", 1000)
    with machines(tmp_path / "first", *BARE) as there:
        run = Run(endless, there, tmp_path / "runs", (at_step(40), lambda run: there.scheduler.kill()))
        assert (run.result.state, run.result.exit_code) == ("failed", 4), run.result
        assert "scheduler" in run.result.reason
        wait_until(lambda: all(each.poll() is not None for each in there.processes), "the workers end")
    checkpoint = find(run.url)
    with machines(tmp_path / "second", *BARE) as there:
        again = Run(made, there, tmp_path / "runs", resume=checkpoint)
    assert again.result.state == "done", again.result
    check_params(again.url, calm(made) if again.result.steps == 1000 else calm(job("allreduce", again.result.steps)))


@pytest.mark.soak
def test_a_client_that_is_killed_in_a_recovery_leaves_nothing(nannies: Machines, tmp_path: Path) -> None:
    before = residue(nannies.client)
    address = nannies.client.scheduler.address
    sets = ["train_steps=1000000", "disp_freq=1", "test_freq=0"]
    arguments = [part for each in sets for part in ("--set", each)]
    arguments += ["--scheduler", address, "--run-dir", str(tmp_path / "run")]
    command = program("run", "configs/digits/mlp.yaml", *arguments, "--cluster", "configs/cluster/allreduce.yaml")
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as run:
        assert run.stderr is not None
        n_shown = 0
        for line in run.stderr:
            n_shown += line.startswith("Train @ step")
            if n_shown == 5:
                nannies.send(next(iter(nannies.workers())), signal.SIGKILL)
            if "The job continues." in line:
                run.kill()
    assert run.returncode == -signal.SIGKILL
    nannies.settle(2)
    check_left(nannies.client, before)
