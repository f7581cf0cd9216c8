"""Jobs that somebody kills at random moments: what they had is free for the next job."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from singa_dask.runtime import RemoteJobs
from tests.faults.jobs import SYNCHRONOUS, first_unit, job
from tests.faults.machines import Machines
from tests.faults.runs import Run, at, at_step, killed
from tests.selection import mostly_soak

pytestmark = pytest.mark.cluster

LATEST_S = 2.0
"""Most of a start and some steps lie within this time."""


def kill_at_a_random_moment(there: Machines, directory: Path, chance: random.Random, with_loss: bool) -> None:
    """Start a job and kill it, maybe while it replaces a process that was lost."""
    made = job(chance.choice([*SYNCHRONOUS, "hogwild"]), 1_000_000)
    delay_s, jobs = chance.uniform(0, LATEST_S), RemoteJobs(there.client)

    def kill_soon(run: Run) -> None:
        run.later(delay_s, partial(jobs.kill, run.job_id))

    if with_loss:
        script = [(at_step(5), killed(first_unit(made, 0))), (lambda run, event: True, kill_soon)]
    else:
        script = [(at("placed"), kill_soon)]
    run = Run(made, there, directory, *script)
    assert not run.hangs
    assert (run.result.state, run.result.exit_code) == ("failed", 137), run.result
    assert run.result.reason.startswith("killed by "), run.result


def check_next_job(there: Machines, directory: Path) -> None:
    """Check that a job that takes all threads starts; a Dask worker with units that did not end is started again."""
    run = Run(job("allreduce", 3), there, directory, queue=True)
    assert run.result.state == "done", run.result


@pytest.mark.long
@pytest.mark.parametrize(("with_loss", "n"), mostly_soak([(False, 1), (False, 3), (True, 3)], 3))
def test_kills_at_random_moments(nannies: Machines, tmp_path: Path, with_loss: bool, n: int) -> None:
    chance = random.Random(1000)
    for _ in range(n):
        kill_at_a_random_moment(nannies, tmp_path / "runs", chance, with_loss)
        nannies.settle(2)
        check_next_job(nannies, tmp_path / "runs")
