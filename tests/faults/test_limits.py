"""Losses that a job does not survive: it ends with exit 4, and says what was lost and what was tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.jobs import fatal, job
from tests.faults.machines import Machines
from tests.faults.runs import Run, at, at_step, check_same, killed
from tests.selection import mostly_soak

pytestmark = pytest.mark.cluster


@pytest.mark.long
def test_the_restarts_are_used_up(nannies: Machines, tmp_path: Path) -> None:
    made = job("single", cluster={"max_restarts": 1}, neuralnet=fatal("_exit", None))
    # slow before that step, so that the scheduler knows of the one before; the script never ends
    run = Run(made, nannies, tmp_path / "runs", (at("never"), lambda run: None), held_at=38)
    result = run.result
    assert (result.state, result.exit_code, result.restarts) == ("failed", 4, 1), result
    assert result.reason.count("Lost: worker-0-0, server-0-0.") == 2
    assert "restarted 1 time without a later step (cluster.max_restarts)" in result.reason
    assert result.error == ""


@pytest.mark.long
def test_no_worker_is_left(bare: Machines, tmp_path: Path) -> None:
    script = (at_step(20), killed("worker-0-0", "worker-0-1"))
    made = job("allreduce", 1_000_000, {"wait_for_workers_minutes": 0.02})
    result = Run(made, bare, tmp_path / "runs", script).result
    assert (result.state, result.exit_code) == ("failed", 4), result
    assert "Lost: worker-0-" in result.reason


@pytest.mark.long
def test_fewer_workers_than_the_job_allows(bare: Machines, tmp_path: Path) -> None:
    elastic = {"min_processes": 2, "max_processes": 2}
    made = job("allreduce", 1_000_000, {"elastic": elastic, "wait_for_workers_minutes": 0.02})
    result = Run(made, bare, tmp_path / "runs", (at_step(20), killed("worker-0-1"))).result
    assert (result.state, result.exit_code) == ("failed", 4), result


@pytest.mark.long
@pytest.mark.parametrize("checkpoint_freq", mostly_soak([25, 0], 2))
def test_both_copies_of_a_snapshot_are_lost(bare: Machines, tmp_path: Path, calm: Any, checkpoint_freq: int) -> None:
    """The job goes on from its newest checkpoint, else from its beginning."""
    bare.grow(2)
    bare.client.wait_for_workers(4, timeout=240)
    made = job("allreduce", checkpoint_freq=checkpoint_freq)
    run = Run(made, bare, tmp_path / "runs", (at_step(60), killed("worker-0-0", "worker-0-1")))
    check_same(run, calm(made), run.result.restarts)
    steps = [event["step"] for event in run.named("restart")]
    assert steps[-1] % 25 == 0
    assert (steps[-1] > 0) == (checkpoint_freq > 0)
