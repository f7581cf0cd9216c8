"""Processes that are there and do nothing: stopped, or with a GIL that a thread holds."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.jobs import first_unit, job
from tests.faults.machines import Machines
from tests.faults.parts import hold_gil_soon
from tests.faults.runs import Run, at_step, check_same, signalled, stopped_for
from tests.selection import mostly_soak

pytestmark = pytest.mark.cluster

# No more than this may pass between two signs of life of a job.
LONGEST_PAUSE_S = 30.0


@pytest.mark.long
@pytest.mark.parametrize(("topology", "process"), mostly_soak([("allreduce", 1), ("sandblaster", 0)], 2))
def test_stopped_for_ever(bare: Machines, tmp_path: Path, calm: Any, topology: str, process: int) -> None:
    made = job(topology)
    run = Run(made, bare, tmp_path / "runs", (at_step(40), signalled(signal.SIGSTOP, first_unit(made, process))))
    check_same(run, calm(made))
    assert run.longest_pause_s() < LONGEST_PAUSE_S


@pytest.mark.soak
def test_stopped_for_20_s(nannies: Machines, tmp_path: Path, calm: Any) -> None:
    """It goes on during the next incarnation, which does not take its messages."""
    made = job("allreduce", 8000)
    run = Run(made, nannies, tmp_path / "runs", (at_step(40), stopped_for(20, first_unit(made, 0))))
    check_same(run, calm(made), run.result.restarts, len(run.named("placed")) - 1 - run.result.restarts)
    assert run.result.restarts >= 1
    assert run.longest_pause_s() < LONGEST_PAUSE_S


@pytest.mark.long
def test_stopped_for_a_moment_is_not_lost(bare: Machines, tmp_path: Path, calm: Any) -> None:
    made = job("allreduce")
    check_same(Run(made, bare, tmp_path / "runs", (at_step(40), stopped_for(1, "worker-0-1"))), calm(made), restarts=0)


@pytest.mark.soak
def test_a_gil_that_is_held_for_20_s(bare: Machines, tmp_path: Path, calm: Any) -> None:
    made = job("allreduce", 8000)

    def hold(run: Run) -> None:
        run.machines.client.run(hold_gil_soon, 20, workers=[run.placed[first_unit(made, 1)]])

    run = Run(made, bare, tmp_path / "runs", (at_step(40), hold))
    check_same(run, calm(made), run.result.restarts, len(run.named("placed")) - 1 - run.result.restarts)
    assert run.result.restarts >= 1
    assert run.longest_pause_s() < LONGEST_PAUSE_S
