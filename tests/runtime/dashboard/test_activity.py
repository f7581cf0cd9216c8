"""Activity: rates and waits of workers, from what comes with heartbeats."""

from __future__ import annotations

from typing import Any

import pytest

from singa_dask.runtime.dashboard.activity import Activity


def told(process: int, **workers: list[float]) -> dict[str, Any]:
    named = {unit.replace("_", "-"): facts for unit, facts in workers.items()}
    return {"process": process, "workers": named, "bytes": [100 * process, 10 * process]}


def test_shares_are_of_the_last_seconds_and_the_slow_worker_stands_out() -> None:
    activity = Activity()
    for second in range(40):
        # each second 10 steps: one worker computes for 0.2 s and waits for params, the other computes for 0.9 s
        quick = [10 * second, 0.9 * second, 0.1 * second, 0.6 * second, 0.0]
        slow = [10 * second, 0.95 * second, 0.0, 0.05 * second, 0.0]
        activity.add_progress(told(0, worker_0_0=quick), float(second))
        activity.add_progress(told(1, worker_0_1=slow), float(second))
    workers = activity.workers()
    assert workers["worker-0-0"]["shares"] == pytest.approx({"compute": 0.2, "data": 0.1, "params": 0.6, "peers": 0})
    assert workers["worker-0-0"]["steps_per_s"] == 10
    assert workers["worker-0-0"]["slow"] is None
    assert workers["worker-0-1"]["compute_ms"] == pytest.approx(90)
    assert workers["worker-0-1"]["slow"] == 4.5
    assert len(activity._samples["worker-0-0"]) < 15
    assert activity.traffic() == {"sent": 100, "received": 10}
    assert activity.totals()["worker-0-0"] == pytest.approx({"data": 3.9, "params": 23.4, "peers": 0.0})


def test_the_same_heartbeat_counts_once_and_the_first_says_no_rate() -> None:
    activity = Activity()
    for _ in range(3):
        activity.add_progress(told(0, worker_0_0=[5, 1.0, 0.0, 0.0, 0.0]), 1.0)
    assert activity.workers() == {
        "worker-0-0": {
            "step": 5,
            "steps_per_s": None,
            "compute_ms": None,
            "shares": {"compute": 0.0, "data": 0.0, "params": 0.0, "peers": 0.0},
            "slow": None,
        }
    }


def test_a_worker_that_starts_again_is_measured_anew() -> None:
    activity = Activity()
    activity.add_progress(told(0, worker_0_0=[500, 50.0, 0.0, 0.0, 0.0]), 1.0)
    activity.add_progress(told(0, worker_0_0=[490, 1.0, 0.0, 0.0, 0.0]), 2.0)
    activity.add_progress(told(0, worker_0_0=[500, 2.0, 0.0, 0.0, 0.0]), 3.0)
    assert activity.workers()["worker-0-0"]["steps_per_s"] == 10


def test_units_that_are_placed_anew_leave_nothing_behind() -> None:
    activity = Activity()
    activity.add_progress(told(3, worker_3_0=[5, 1.0, 0.0, 0.0, 0.0]), 1.0)
    activity.add_event({"event": "placed", "incarnation": 1, "processes": []})
    assert activity.describe() == {"curves": [], "bytes": {"sent": 0, "received": 0}, "lr": None, "workers": {}}
    assert activity.left_s(10) is None


def test_the_time_to_go_is_that_of_the_slowest_worker_since_it_was_placed() -> None:
    activity = Activity()
    assert activity.left_s(1000) is None
    activity.add_progress(told(0, worker_0_0=[500, 50.0, 0.0, 0.0, 0.0]), 1.0)
    activity.add_event({"event": "placed", "incarnation": 1, "processes": []})
    for second in range(31):  # one makes 10 steps a second, the other 2, and has 401 - 1 - 60 to go
        quick, slow = [10 * second, 1.0 * second, 0.0, 0.0, 0.0], [2 * second, 1.0 * second, 0.0, 0.0, 0.0]
        activity.add_progress(told(0, worker_0_0=quick, worker_1_0=slow), 100.0 + second)
    assert activity.left_s(401) == pytest.approx(170)
    assert activity.left_s(10) == 0


def test_the_newest_learning_rate_is_shown() -> None:
    activity = Activity()
    event = {"event": "metrics", "phase": "train", "group": 0, "step": 1, "metrics": {}}
    activity.add_event({**event, "lr": 0.1})
    activity.add_event({**event, "lr": 0.012345678})
    activity.add_event(event)
    assert activity.describe()["lr"] == 0.012346
