"""Losses in jobs whose groups do not wait for each other: done, and as accurate as a calm run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.runtime.checkpoints.lookup import find_steps
from singa_dask.runtime.planning.job_plan import JobPlan
from tests.faults.jobs import first_unit, job
from tests.faults.machines import Machines
from tests.faults.runs import Run, at_step, check_done, killed
from tests.ports import free_port
from tests.runtime.harness import Outcome

pytestmark = pytest.mark.cluster

# of the training accuracy over the last steps, on few records
TOLERANCE = 0.05
LAST = 100
N_STEPS = 200
VICTIMS = [("downpour", 0), ("downpour", 1), ("hogwild", 0)]


def final_accuracy(shown: dict[int, float]) -> float:
    """Return the mean accuracy of the last steps."""
    return float(np.mean([shown[step] for step in sorted(shown)[-LAST:]]))


def check_as_accurate(run: Run, calm: Outcome) -> None:
    """Compare the accuracy of each group with that of a calm run."""
    for group in range(2):
        run.metrics(group=group)
        shown = {each["step"]: each["accuracy"] for each in run.named("metrics") if each["group"] == group}
        wanted = final_accuracy(calm.metric("accuracy", group=group))
        assert final_accuracy(shown) > wanted - TOLERANCE


def check_versions(run: Run) -> None:
    """Check that each slice has each step of each group of its servers once, and all values those of all groups."""
    cluster, steps = run.job.cluster, run.job.train_steps
    (url,) = {step: url for step, url in find_steps(run.url).items() if step == steps}.values()
    manifest = json.loads(Path(url, "manifest.json").read_text())
    values = [each for part in manifest["parts"] for each in part["tensors"] if each["what"] == "value"]
    groups = range(cluster.nworker_groups)
    assert {each["version"] for each in values} == {steps * len(groups) // cluster.nserver_groups}
    assert all(each["applied"] == {str(group): steps - 1 for group in groups} for each in values)
    assert {position["step"] for position in manifest["groups"].values()} == {steps}


@pytest.mark.soak
@pytest.mark.parametrize(("topology", "process"), VICTIMS)
def test_a_killed_process(nannies: Machines, tmp_path: Path, calm: Any, topology: str, process: int) -> None:
    made = job(topology, 400)
    nannies.grow(1)
    nannies.client.wait_for_workers(3, timeout=240)
    run = Run(made, nannies, tmp_path / "runs", (at_step(100), killed(first_unit(made, process))))
    check_done(run, moves=run.n_moves())
    check_versions(run)
    check_as_accurate(run, calm(made))


@pytest.mark.long
def test_each_update_is_applied_once_although_a_worker_group_is_killed(nannies: Machines, tmp_path: Path) -> None:
    """The servers stay, and count: the group that starts again repeats steps that they have.

    It does so alone, although its process has the port of the lost one.
    """
    first = free_port()
    listen = {"ports": f"{first}-{first + 40}"}
    made = job("downpour", N_STEPS, {"nworkers_per_procs": 1, "listen": listen})
    nannies.grow(2)  # with a spare no units, and no servers, move to the process that the nanny starts
    nannies.client.wait_for_workers(4, timeout=240)
    run = Run(made, nannies, tmp_path / "runs", (at_step(60), killed("worker-1-0")))
    check_done(run)
    assert [list(event.get("groups", ())) for event in run.named("restart")] == [[1]]
    check_versions(run)
    updates = run.result.updates
    n_slices = len(JobPlan.make(made).slices)
    assert updates["applied"] == N_STEPS * 2 * n_slices
