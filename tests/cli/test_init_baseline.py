"""What ``init`` says a linear model does, beside scikit-learn's, and what becomes of it in the job that it writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.metrics import accuracy_score, mean_squared_error, roc_auc_score
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from singa_dask.conf import load
from tests.cli.conftest import Call

N = 80


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a new directory."""
    monkeypatch.chdir(tmp_path)


def table(noise: float, curved: bool = False) -> pd.DataFrame:
    random = np.random.default_rng(7)
    frame = pd.DataFrame(random.normal(size=(N, 4)), columns=list("abcd"))
    frame["shop"] = random.choice(["north", "south"], N)
    sums = frame.a * frame.b * 2 if curved else 2 * frame.a - frame.b + (frame.shop == "north")
    return frame.assign(sales=sums + random.normal(size=N) * noise)


def said(
    call: Call, frame: pd.DataFrame, *options: str, number: str = "a linear model is (?:right in|off by) about"
) -> float:
    frame.to_csv("sales.csv", index=False)
    result = call("init", "sales.csv", "--overwrite", "--test-split", "0", *options)
    assert result.exit_code == 0, result.output
    found = re.search(rf"{number} ([\d.]+)", result.stderr)
    assert found, result.stderr
    return float(found[1])


def test_a_linear_model_of_all_other_records_predicts_each(call: Call) -> None:
    frame = table(noise=1.0)
    features = pd.get_dummies(frame.drop(columns="sales"), dtype=float)
    numbers = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
    predicted = cross_val_predict(numbers, features, frame.sales, cv=LeaveOneOut())
    expected = np.sqrt(mean_squared_error(frame.sales, predicted))
    assert said(call, frame, "--target", "sales") == pytest.approx(expected, rel=0.02)

    frame["sales"] = np.where(frame.sales > 0, "many", "few")
    # the model ranks records by the value that it predicts for a class
    frame["rare"] = np.where((frame.a + frame.b).rank() > N - 7, "yes", "no")
    ranked = cross_val_predict(numbers, features, frame.rare == "yes", cv=LeaveOneOut())
    roc_auc = said(call, frame.drop(columns="sales"), "--label", "rare", number="with roc_auc")
    assert roc_auc == pytest.approx(roc_auc_score(frame.rare == "yes", ranked), abs=0.03)

    classes = make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(-3, 3, 13)))
    predicted = cross_val_predict(classes, features, frame.sales, cv=LeaveOneOut())
    assert said(call, frame, "--label", "sales") == pytest.approx(100 * accuracy_score(frame.sales, predicted), abs=2.6)


def settings(call: Call, frame: pd.DataFrame) -> tuple[Any, float, float]:
    """Return the rate, decay of all steps together, and share of values that are dropped, of the job for a table."""
    said(call, frame, "--target", "sales")
    job = load("job.yaml").job
    rate = job.updater.learning_rate.base_lr
    drops = [layer.dropout_conf["dropout_ratio"] for layer in job.neuralnet.layer if layer.type == "Dropout"]
    return rate, rate * job.updater.weight_decay * job.train_steps / 2, drops[0] if drops else 0.0


def test_noise_takes_decay_and_dropout_and_curves_take_larger_steps(call: Call) -> None:
    clean, noisy, curved = (settings(call, each) for each in (table(0.1), table(5.0), table(0.1, curved=True)))
    assert clean[2] == 0 and clean[1] == pytest.approx(1, rel=0.1)
    assert noisy[2] > 0.3 and noisy[1] > 4
    assert curved[0] > 2 * clean[0] == pytest.approx(0.002, rel=0.2)


def test_records_that_say_nothing_still_make_a_job(call: Call) -> None:
    frame = table(noise=1.0).assign(a=1e300, b=[float("nan")] * (N - 2) + [1.0, 2.0])
    assert said(call, frame, "--target", "sales", "--missing", "mean") > 0
    assert load("job.yaml").job.train_steps
