"""Curves keep the shape of any number of values in a bounded number of points."""

from __future__ import annotations

import math

import pytest

from singa_dask.runtime.dashboard.curves import MAX_CURVES, MAX_GROUPS, MAX_POINTS, Curve, Curves


@pytest.mark.parametrize("n", [0, 1, 2, MAX_POINTS - 1, MAX_POINTS, MAX_POINTS + 1, 1000, 12345])
def test_a_curve_has_few_points_from_the_first_to_the_last_step(n: int) -> None:
    curve = Curve()
    for step in range(n):
        curve.add(step, 2.0 * step)
    points = curve.points()
    steps, values = points["steps"], points["values"]
    assert len(steps) == len(values) <= MAX_POINTS
    assert len(steps) >= min(n, MAX_POINTS // 2)
    assert steps == sorted(set(steps))
    if n:
        assert steps[-1] == n - 1
        width = steps[0] + 1  # of each point: its value is the mean over it, at its last step
        assert values[0] == pytest.approx(2.0 * (steps[0] - (width - 1) / 2), rel=1e-4, abs=1e-9)


def test_what_is_no_number_shows_as_a_gap() -> None:
    curve = Curve()
    for step, value in enumerate([1.0, math.nan, math.inf, 2.0]):
        curve.add(step, value)
    assert curve.points()["values"] == [1.0, None, None, 2.0]


def metrics(step: int, group: int = 0, phase: str = "train", **values: float) -> dict[str, object]:
    return {"event": "metrics", "phase": phase, "group": group, "step": step, "metrics": values}


def test_a_job_has_few_curves() -> None:
    curves = Curves()
    for step in range(3):
        for group in range(64):
            curves.add(metrics(step, group, **{f"m{i}": 1.0 for i in range(100)}))
    found = curves.describe()
    assert len(found) == MAX_CURVES
    assert {each["group"] for each in found} <= set(range(MAX_GROUPS))


def test_the_rate_is_that_of_all_groups() -> None:
    curves = Curves()
    for step in range(2):
        for group in range(6):
            curves.add({**metrics(step, group, loss=0.5), "samples_per_s": 100.0})
    curves.add(metrics(1, phase="test", loss=0.25))
    by_name = {(each["metric"], each["phase"], each["group"]): each["values"] for each in curves.describe()}
    assert by_name["samples_per_s", "train", 0] == [100.0, 600.0]
    assert by_name["loss", "test", 0] == [0.25]
    assert by_name["loss", "train", 3] == [0.5, 0.5]
