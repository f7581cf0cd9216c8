"""``kill -9`` of processes of synchronous jobs: done, with the bits of a run that nobody disturbed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.jobs import STEPS, first_unit, job
from tests.faults.machines import Machines
from tests.faults.parts import die_at
from tests.faults.runs import Run, at, at_step, check_same, killed
from tests.selection import mostly_soak

pytestmark = pytest.mark.cluster

# topology and process: one with workers and servers, one with servers alone, one with workers alone
VICTIMS = [
    ("allreduce", 0),
    ("sandblaster", 1),
    ("partitioned", 1),
]


def run_with_a_kill(made: Any, machines: Machines, directory: Path, process: int) -> Run:
    return Run(made, machines, directory, (at_step(40), killed(first_unit(made, process))))


@pytest.mark.parametrize(
    ("topology", "process"),
    [VICTIMS[0], pytest.param(*VICTIMS[1], marks=pytest.mark.long), pytest.param(*VICTIMS[2], marks=pytest.mark.soak)],
)
def test_the_rest_takes_over(bare: Machines, tmp_path: Path, calm: Any, topology: str, process: int) -> None:
    made = job(topology)
    run = run_with_a_kill(made, bare, tmp_path / "runs", process)
    check_same(run, calm(made))
    assert len(set(run.placed.values())) == 1


@pytest.mark.soak
def test_a_spare_takes_over(bare: Machines, tmp_path: Path, calm: Any) -> None:
    bare.grow(1)
    bare.client.wait_for_workers(3, timeout=240)
    made = job("sandblaster")
    run = run_with_a_kill(made, bare, tmp_path / "runs", 1)
    check_same(run, calm(made))
    first, last = (len(event["processes"]) for event in run.named("placed"))
    assert first == last


@pytest.mark.long
@pytest.mark.parametrize(("topology", "process"), mostly_soak([("single", 0), ("sandblaster", 0)], 2))
def test_a_nanny_starts_it_again(nannies: Machines, tmp_path: Path, calm: Any, topology: str, process: int) -> None:
    made = job(topology)
    run = run_with_a_kill(made, nannies, tmp_path / "runs", process)
    # on a busy machine the nanny may be too late for the restart: the units then move to what it has started
    check_same(run, calm(made), moves=run.n_moves())


@pytest.mark.soak
def test_both_processes_at_once(nannies: Machines, tmp_path: Path, calm: Any) -> None:
    made = job("sandblaster")
    units = [first_unit(made, process) for process in range(2)]
    run = Run(made, nannies, tmp_path / "runs", (at_step(40), killed(*units)))
    # the second may be lost while the first loss is handled, or be started again after it
    check_same(run, calm(made), run.result.restarts, run.n_moves())
    assert 1 <= run.result.restarts <= 2


@pytest.mark.long
def test_during_the_start(bare: Machines, tmp_path: Path, calm: Any) -> None:
    made = job("allreduce", 30)
    run = Run(made, bare, tmp_path / "runs", (at("placed"), killed(first_unit(made, 1))))
    check_same(run, calm(made))


@pytest.mark.soak
def test_during_a_recovery(bare: Machines, tmp_path: Path, calm: Any) -> None:
    bare.grow(2)
    bare.client.wait_for_workers(4, timeout=240)
    made = job("allreduce")
    first, second = killed("worker-0-0"), killed(first_unit(made, 1))
    run = Run(made, bare, tmp_path / "runs", (at_step(40), first), (at("placed", incarnation=1), second))
    check_same(run, calm(made), restarts=2)


@pytest.mark.long
@pytest.mark.parametrize("path", mostly_soak(["step-50/manifest.json", "step-50/part-1"], 2))
def test_during_a_checkpoint(bare: Machines, tmp_path: Path, calm: Any, path: str) -> None:
    """The process dies when it gives the file its name."""
    made = job("allreduce", checkpoint_freq=50)
    once = tmp_path / "once"
    once.touch()
    bare.client.run(die_at, "os.rename", path, str(once))
    run = Run(made, bare, tmp_path / "runs")
    assert not once.exists(), "nobody was killed"
    check_same(run, calm(made))
    assert run.named("checkpoint")[-1]["step"] == STEPS


@pytest.mark.soak
def test_during_the_last_test(bare: Machines, tmp_path: Path, calm: Any) -> None:
    made = job("allreduce", test_freq=STEPS, test_steps=20)
    run = Run(made, bare, tmp_path / "runs", (at_step(STEPS - 1), killed("worker-0-1")), held_at=STEPS)
    check_same(run, calm(made))
    assert run.metrics("test").keys() == calm(made).losses("test").keys()
