"""``find_rate``: its rule on made curves, the same answer each time, and how well nets train at its proposal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import singa_dask as sd
from singa_dask.jobs.find_rate import curve_of
from tests.jobs.conftest import KEYS, digits_net

RATES = np.geomspace(1e-6, 10, 100)


def test_the_rule_on_a_made_curve() -> None:
    # the loss falls from the 50th step, is least at the 80th, and explodes
    losses = [*np.full(50, 2.0), *np.linspace(2, 0.5, 30), *np.geomspace(0.5, 1e4, 20)]
    curve = curve_of(RATES, losses, is_whole=True)
    assert 80 <= curve.smoothed.argmin() <= 84
    assert curve.rate == pytest.approx(RATES[curve.smoothed.argmin()] / 4, rel=0.05)
    assert len(curve.rates) == len(curve.losses) == len(curve.smoothed) < 95
    assert curve.smoothed.max() < 4 * curve.smoothed.min() + 1e-9


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (list(np.full(100, 2.0)), "the loss does not fall at any rate. Does each label"),
        ([], "does not fall at any rate"),
        (list(np.linspace(2, 1, 100)), "still falls at the highest rate, 10. Try a higher one."),
    ],
)
def test_a_curve_without_an_answer_is_refused(losses: list[float], message: str) -> None:
    with pytest.raises(sd.ConfigError, match=message):
        curve_of(RATES, losses, is_whole=True)


@pytest.mark.cluster
@pytest.mark.long
def test_a_job_has_one_answer_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    job = sd.Job(digits_net(), train_steps=6, disp_freq=2, test_freq=3, test_steps=2, **KEYS)
    first = sd.find_rate(job, steps=60)
    assert {path.name for path in tmp_path.iterdir()} <= {"dask-scratch-space"}
    groups = {"nworker_groups": 2, "nworkers_per_group": 1, "nserver_groups": 1}
    other = job.replace({"cluster": groups, "updater.learning_rate.base_lr": 3.0})
    again = sd.find_rate(other, steps=60)
    assert (again.rate, again.losses.tolist()) == (first.rate, first.losses.tolist())
    with pytest.raises(sd.ConfigError, match="at least 20 steps, got 1e-06, 10 and 5 steps"):
        sd.find_rate(job, steps=5)


@pytest.mark.long
@pytest.mark.cluster
def test_the_proposal_trains_about_as_well_as_the_best_of_a_grid(tmp_path: Path) -> None:
    keys = {**KEYS, "updater": {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.1}}}
    job = sd.Job(digits_net(), train_steps=200, disp_freq=50, **keys)

    def loss_at(rate: float) -> float:
        run = sd.train(
            job.replace({"updater.learning_rate.base_lr": rate}),
            run_dir=str(tmp_path / "run"),
            overwrite=True,
            progress=False,
        )
        return float(run.metrics["train"]["loss"])

    grid = {rate: loss_at(rate) for rate in (0.001, 0.01, 0.1, 0.5)}
    found = loss_at(sd.find_rate(job).rate)
    first = 2.3
    # of what the best rate of the grid takes off the loss, nine tenths
    assert first - found > 0.9 * (first - min(grid.values())), (found, grid)
    assert found < grid[0.001] and found < grid[0.01]
