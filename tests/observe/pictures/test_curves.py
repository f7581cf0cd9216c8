"""Curves of runs by panel, and their thinning."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from singa_dask.observe.files.stored_run import StoredRun
from singa_dask.observe.pictures.curves import MAX_POINTS, Panel, panels_of, thin
from tests.observe.runs import metrics, training, write_run


def panels(folder: Path, events: list[dict[str, object]], axis: str = "step") -> dict[str, Panel]:
    return {panel.label: panel for panel in panels_of([StoredRun(write_run(folder, events))], axis)}


def test_a_panel_for_each_metric_then_rate_speed_and_waits(tmp_path: Path) -> None:
    found = panels(tmp_path, training())
    assert list(found) == ["loss", "accuracy", "learning rate", "speed (samples/s)", "wait per step (ms)"]
    assert [curve.kind for curve in found["loss"].curves] == ["train", "test"]
    assert [curve.kind for curve in found["wait per step (ms)"].curves] == ["data", "params"]
    assert found["loss"].curves[0].x.tolist() == [10.0 * i for i in range(10)]


def test_curves_over_time_count_from_the_start_of_the_run(tmp_path: Path) -> None:
    (train, _) = panels(tmp_path, training(), "time")["loss"].curves
    np.testing.assert_allclose(train.x, 1 + 0.1 * np.arange(10), atol=1e-6)


def test_of_several_groups_the_mean_and_each(tmp_path: Path) -> None:
    events = [metrics(step, group=group, loss=1.0 + group, samples_per_s=10.0) for step in (0, 5) for group in (0, 1)]
    found = panels(tmp_path, events)
    assert [(curve.group, curve.y.tolist()) for curve in found["loss"].curves] == [
        (0, [1.0, 1.0]), (1, [2.0, 2.0]), (None, [1.5, 1.5])
    ]  # fmt: skip
    assert [curve.y.tolist() for curve in found["speed (samples/s)"].curves] == [[20.0, 20.0]]


def test_a_value_that_is_not_finite_is_a_gap(tmp_path: Path) -> None:
    events = [metrics(0, loss=1.0), metrics(1, loss=float("nan")), metrics(2, loss=3.0)]
    (curve,) = panels(tmp_path, events)["loss"].curves
    np.testing.assert_array_equal(curve.y, [1.0, np.nan, 3.0])


def test_values_of_many_magnitudes_are_drawn_on_a_logarithmic_axis(tmp_path: Path) -> None:
    assert panels(tmp_path / "a", [metrics(i, loss=10.0**-i) for i in range(4)])["loss"].is_log
    assert not panels(tmp_path / "b", [metrics(i, loss=10.0**-i - 0.001) for i in range(4)])["loss"].is_log


def test_the_axis_of_a_value_that_does_not_change_starts_at_zero(tmp_path: Path) -> None:
    found = panels(tmp_path, [metrics(step, loss=1.0 + step, lr=1e-3) for step in range(5)])
    assert found["learning rate"].from_zero
    assert not found["loss"].from_zero


def test_thinning_keeps_spikes_and_ends_and_gaps() -> None:
    y = np.zeros(1_000_000)
    y[[0, 123_456, 654_321, 999_999]] = 3.0, 1e6, -1e6, 4.0
    y[500_000] = np.nan
    kept = thin(y, MAX_POINTS)
    assert len(kept) <= MAX_POINTS
    assert {0, 123_456, 654_321, 500_000, 999_999} <= set(kept.tolist())
    assert thin(y[:10], 10).tolist() == list(range(10))
