"""What losses cost, against simulated lives of processes, and counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from singa_dask.planner.failures import lost_share, lost_time, state_bytes
from singa_dask.runtime.planning.layout import plan_processes
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, mlp
from tests.selection import mostly_long


def simulated(n: int, life_s: float, interval_s: float, save_s: float, down_s: float, n_intervals: int) -> float:
    """Return the share of time that ``n`` processes lose, each with lives of its own, drawn at random."""
    random = np.random.default_rng(0)
    now, ends = 0.0, random.exponential(life_s, n)
    for _ in range(n_intervals):
        while (end := ends.min()) < now + interval_s + save_s:
            now = end
            ends[ends.argmin()] = now + random.exponential(life_s)  # another one in its place
            while (end := ends.min()) < now + down_s:
                now = end
                ends[ends.argmin()] = now + random.exponential(life_s)
            now += down_s
        now += interval_s + save_s
    return 1 - n_intervals * interval_s / now


@pytest.mark.parametrize(
    ("n", "life_s", "interval_s", "save_s", "down_s"),
    mostly_long(
        [(1, 100, 10, 1, 5), (8, 1000, 30, 2, 10), (64, 6400, 50, 5, 40), (16, 2e3, 10, 0.1, 12), (4, 100, 30, 3, 3)], 3
    ),
)
def test_the_lost_share_is_that_of_simulated_lives(
    n: int, life_s: float, interval_s: float, save_s: float, down_s: float
) -> None:
    expected = simulated(n, life_s, interval_s, save_s, down_s, n_intervals=20_000)
    assert lost_share(interval_s, save_s, down_s, n / life_s) == pytest.approx(expected, rel=0.03)


def test_without_failures_only_saving_is_lost_and_few_cost_what_young_says() -> None:
    assert lost_share(99, 1, 5, 0) == pytest.approx(0.01)
    assert lost_share(99, 1, 5, 1e-6) == pytest.approx(0.01 + 1e-6 * (5 + 50), rel=1e-4)
    assert lost_share(1000, 1, 5, 10) == 1


def test_a_job_goes_back_to_its_snapshots_and_a_group_only_stops() -> None:
    job, hour = mlp(cluster=ALLREDUCE), 3600.0
    n_bytes = state_bytes(job)
    assert n_bytes == 4 * 2 * (784 * 32 + 32 + 32 * 10 + 10)  # with momentum
    summed = job.model_copy(update={"updater": job.updater.model_copy(update={"accumulate": 4, "ema_decay": 0.9})})
    assert state_bytes(summed) == 2 * n_bytes
    layout = plan_processes(job.cluster)
    # silence of 10 s, a restart, and half of the second between two snapshots of almost nothing
    seconds = 10 + 0.9 + 0.002 + 0.5
    assert lost_time(job, layout, 0, 1e-3, hour) == pytest.approx(2 / hour * seconds, rel=0.01)
    rare = mlp(cluster={**ALLREDUCE, "snapshot_freq": 100_000})
    assert lost_time(rare, layout, 0, 1e-3, hour) == pytest.approx(2 / hour * (seconds - 0.5 + 50), rel=0.05)
    downpour = mlp(cluster={**DOWNPOUR, "nworker_groups": 4, "server_worker_separate": True})
    layout = plan_processes(downpour.cluster)
    assert len(layout.processes) == 5
    # the server takes all back; each of the four others stops a quarter of the job
    seconds = 10 + 0.9 + 0.005
    expected = (seconds + 0.5) / hour + 4 * seconds / hour / 4
    assert lost_time(downpour, layout, 0, 1e-3, hour) == pytest.approx(expected, rel=0.01)


def test_a_single_process_goes_back_to_its_checkpoints_or_the_beginning() -> None:
    layout, day = plan_processes(mlp().cluster), 86400.0
    whole = mlp(train_steps=3600)
    assert lost_time(whole, layout, 10**9, 1.0, day) == pytest.approx((1800 + 10.9) / day, rel=0.03)
    often = mlp(train_steps=3600, checkpoint_freq=60)
    assert lost_time(often, layout, 10**9, 1.0, day) == pytest.approx((30 + 10.9) / day, rel=0.01)
