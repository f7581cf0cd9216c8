"""A run that goes on from any of its checkpoints ends as it would have without a break, in each topology."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.lookup import find, find_steps
from tests.faults.test_random_faults import NETS, SYNCHRONOUS, TOPOLOGIES
from tests.runtime.end_to_end.test_continued import N_STEPS, check_equal
from tests.runtime.harness import Outcome
from tests.selection import mostly_soak

Run = Callable[..., Outcome]
CASES = [(topology, net) for net in NETS for topology in TOPOLOGIES]


def versions(outcome: Outcome) -> dict[str, tuple[int, dict[str, int]]]:
    """Return by slice how many updates it has had, and the last one of each worker group."""
    parts = Checkpoint(find(outcome.url)).manifest["parts"]
    return {each["key"]: (each["version"], each.get("applied", {})) for part in parts for each in part["tensors"]}


@pytest.mark.long
@pytest.mark.parametrize(("topology", "net"), mostly_soak(CASES, 14))
def test_a_run_goes_on_from_each_checkpoint(run_job: Run, topology: str, net: str) -> None:
    cluster: dict[str, Any] = {**TOPOLOGIES[topology], "snapshot_freq": 0}
    job = NETS[net](cluster, train_steps=N_STEPS, disp_freq=3, checkpoint_freq=4)
    whole = run_job(job)
    steps = find_steps(whole.url)
    assert sorted(steps) == [*range(4, N_STEPS, 4), N_STEPS]
    wanted = versions(whole)
    n_groups = job.cluster.nworker_groups // job.cluster.nserver_groups  # each server group counts those that it serves
    assert {version for version, _ in wanted.values()} == {N_STEPS * n_groups}
    for step in sorted(steps)[:-1]:
        rest = run_job(job, steps[step])
        assert {report["state"] for report in rest.reports.values()} == {"done"}, rest.reports
        assert versions(rest) == wanted
        if topology in SYNCHRONOUS:
            check_equal(job, whole, rest, step)
