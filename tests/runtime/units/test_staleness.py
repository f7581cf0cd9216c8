"""How old gradients are when servers apply them, and that each is applied once: what servers count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from singa_dask.runtime import plan_processes
from singa_dask.runtime.job.driver.result import summarise
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.units.server import MAX_STALENESS, MORE, UpdateCounts
from tests.runtime.harness import FRAMEWORKS, Outcome, last_event, mlp
from tests.runtime.units.test_server import Host
from tests.selection import circles

STEPS = 12


def test_the_gradients_of_one_group_are_never_stale() -> None:
    host = Host()
    host.put(version=41)
    for _ in range(3):
        host.update(1.0)
    assert host.server.counts.report() == {"applied": 3, "staleness": {"0": 3}, "staleness_sum": 0}


def test_a_gradient_is_as_stale_as_the_updates_since_its_group_was_answered() -> None:
    host = Host(nworker_groups=3)
    host.put(0.0)
    for group in (1, 2):
        host.send("get", group=group, version=0)
    for group in (0, 1, 0, 0, 2):  # after 0, 1, 1, 0 and 4 updates since each was answered
        host.update(1.0, group=group)
    assert host.server.counts.report() == {
        "applied": 5,
        "staleness": {"0": 2, "1": 2, "4": 1},
        "staleness_sum": 6,
    }


def test_the_sum_of_the_workers_of_a_group_counts_once() -> None:
    host = Host(divisor=2)
    host.put()
    for process in (0, 1):
        host.update(1.0, process=process, total=2)
    assert host.server.counts.report()["staleness"] == {"0": 1}


def test_an_update_that_comes_again_does_not_count() -> None:
    host = Host(nworker_groups=2)
    host.put()
    for _ in range(2):
        host.update(1.0, step=0)
    assert (host.server.counts.applied, host.server.duplicates) == (1, 1)


def test_gradients_that_are_staler_than_most_count_together() -> None:
    counts = UpdateCounts()
    for staleness in (0, MAX_STALENESS, MAX_STALENESS + 1, 1000):
        counts.add_gradient(staleness)
    report = counts.report()
    assert report["staleness"] == {"0": 1, str(MAX_STALENESS): 1, MORE: 2}
    assert report["staleness_sum"] == 1000 + 2 * MAX_STALENESS + 1


@pytest.mark.parametrize(
    "framework",
    circles(["downpour", "hybrid", "sandblaster-2", "hogwild", "single", "allreduce", "sandblaster-1"], long=3),
)
def test_staleness_of_a_job(run_job: Callable[..., Outcome], framework: str) -> None:
    """One group is never stale. Of k groups at the same servers each gradient waits for k - 1 others on average."""
    job = mlp(cluster=FRAMEWORKS[framework], train_steps=STEPS)
    layout = plan_processes(job.cluster)
    result = summarise("mlp", "mlp-1", layout, last_event(layout, run_job(job).reports))
    n_slices = len(JobPlan.make(job).slices)
    n_groups = job.cluster.nworker_groups
    assert result.updates == {"applied": STEPS * n_slices * n_groups, "refused": 0}
    assert Counter(result.staleness).total() == result.updates["applied"]
    assert result.samples == STEPS * 48 * n_groups
    k = n_groups // job.cluster.nserver_groups
    # groups may begin and end one after the other
    assert result.staleness_mean <= k - 1
    if k == 1:
        assert list(result.staleness) == ["0"]
