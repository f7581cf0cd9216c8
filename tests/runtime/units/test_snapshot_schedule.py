"""When snapshots are taken, if the job does not say: with a clock of the test."""

from __future__ import annotations

import pytest

from singa_dask.runtime.units.snapshot_schedule import FAILED_S, MAX_FAILED_S, MIN_S, OFTEN_S, SnapshotSchedule


@pytest.mark.parametrize(
    ("pause_s", "background_s", "share"),
    [(0.02, 0.03, 0.01), (0.05, 0.05, 0.01), (0.1, 0.06, 0.016), (0.1, 0.1, 0.02), (0.5, 3.0, 0.02)],
)
def test_snapshots_take_one_or_two_percent_of_the_time(pause_s: float, background_s: float, share: float) -> None:
    schedule, now, n_taken, step_s = SnapshotSchedule(), 100.0, 0, 0.25
    schedule.begin(now)
    for _ in range(100_000):
        if schedule.is_due(now):
            n_taken += 1
            now += pause_s
            schedule.paused(pause_s)
            schedule.end(now, background_s)
        now += step_s
    assert n_taken * (pause_s + background_s) / (now - 100) == pytest.approx(share, rel=0.05)


def test_the_first_one_is_early_and_none_is_sooner_than_that() -> None:
    schedule = SnapshotSchedule()
    assert not schedule.is_due(1e9)  # the job says when
    schedule.begin(10)
    assert not schedule.is_due(10 + MIN_S - 0.01)
    assert schedule.is_due(10 + MIN_S)
    schedule.paused(1e-6)
    schedule.end(20, 1e-6)
    assert not schedule.is_due(20 + MIN_S - 0.01)
    assert schedule.is_due(20 + MIN_S)


def test_one_that_fails_is_not_tried_again_at_once() -> None:
    schedule = SnapshotSchedule()
    schedule.begin(10)
    for wait_s in (FAILED_S, 2 * FAILED_S, 4 * FAILED_S, MAX_FAILED_S, MAX_FAILED_S):
        schedule.fail(12)
        assert not schedule.is_due(12 + wait_s - 0.01)
        assert schedule.is_due(12 + wait_s)
    schedule.end(12, 0.0)
    schedule.fail(12)
    assert schedule.is_due(12 + FAILED_S)


def test_what_a_busy_machine_takes_longer_for_once_does_not_delay_the_next_ones() -> None:
    schedule, now = SnapshotSchedule(), 0.0
    schedule.begin(now)
    costs = [0.6, 0.08, 0.9, 0.5, 0.05]  # as three processes on two busy cores took
    waits = []
    for cost_s in costs:
        schedule.paused(cost_s)
        schedule.end(now, 0.0)
        waits.append(next(s for s in range(100) if schedule.is_due(now + s)))
    assert waits == [OFTEN_S, 8, 8, 8, 5]
