"""Metrics of whole tests in a job, by any number of workers, against scikit-learn on what the net has predicted."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.lookup import find
from singa_dask.runtime.job.checks.job import check_job
from singa_dask.training.pass_metrics import Scores
from tests.runtime.end_to_end.test_partition import PLACES
from tests.runtime.end_to_end.test_whole_passes import THREE, job
from tests.runtime.harness import ALLREDUCE, SANDBLASTER_1, Outcome, dense, mlp
from tests.selection import circles

sklearn = pytest.importorskip("sklearn.metrics")

Run = Callable[..., Outcome]
CLASSES = ["f1_macro", "precision_weighted", "balanced_accuracy", "roc_auc_ovr", "average_precision", "top_3_accuracy"]
LABELS = ["f1_micro", "recall_macro", "roc_auc"]
VALUES = ["mse", "mae", "rmse", "r2"]
CLUSTERS: list[dict[str, Any]] = [ALLREDUCE, THREE, {}, SANDBLASTER_1]
# how a net is divided, and among whom
DIVIDED = [
    (ALLREDUCE, None),
    (SANDBLASTER_1, PLACES["features"]),
    (THREE, PLACES["hybrid"]),
    (ALLREDUCE, PLACES["pipeline"]),
    (THREE, None),
]


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Return a list to which each batch of a test adds labels, or targets, and outputs."""
    found: list[tuple[Any, Any]] = []
    add = Scores.add

    def keep(self: Scores, y: Any, p: Any) -> None:
        found.append((np.array(y), np.array(p)))
        add(self, y, p)

    monkeypatch.setattr(Scores, "add", keep)
    return found


def wanted(kind: str, y: Any, p: Any) -> dict[str, float]:
    if kind == "classes":
        best = p.argmax(1)
        areas = [(sklearn.roc_auc_score(y == k, p[:, k])) for k in range(10)]
        return {
            "f1_macro": sklearn.f1_score(y, best, average="macro"),
            "precision_weighted": sklearn.precision_score(y, best, average="weighted", zero_division=0),
            "balanced_accuracy": sklearn.balanced_accuracy_score(y, best),
            "roc_auc_ovr": np.mean(areas),
            "average_precision": sklearn.average_precision_score(y, p),
            "top_3_accuracy": sklearn.top_k_accuracy_score(y, p, k=3),
        }
    if kind == "labels":
        return {
            "f1_micro": sklearn.f1_score(y, p > 0.5, average="micro"),
            "recall_macro": sklearn.recall_score(y, p > 0.5, average="macro"),
            "roc_auc": sklearn.roc_auc_score(y, p),
        }
    return {
        "mse": sklearn.mean_squared_error(y, p),
        "mae": sklearn.mean_absolute_error(y, p),
        "rmse": sklearn.root_mean_squared_error(y, p),
        "r2": sklearn.r2_score(y, p),
    }


def table(folder: Path, kind: str, **changes: Any) -> JobConf:
    """Return a job that predicts three columns of a table from four others."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(100, 4))
    y = x @ rng.normal(size=(4, 3)) + rng.normal(size=(100, 3))
    y = (y > 0).astype(int) if kind == "labels" else y
    with (folder / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "c", "d", "t", "u", "v"], *np.concatenate([x, y], 1).tolist()])
    store = {"path": str(folder / "t.csv"), "features": ["[a-d]"], "target": ["t", "u", "v"], "batchsize": 24}
    loss = "SigmoidCrossEntropyLoss" if kind == "labels" else "EuclideanLoss"
    layers = [
        {"name": "data", "type": "RecordInput", "store_conf": {**store, "shape": [4]}},
        {"name": "target", "type": "TargetInput", "store_conf": {**store, "shape": [4]}},
        dense("fc", "data", 3),
        {"name": "loss", "type": loss, "srclayers": ["fc", "target"]},
    ]
    return mlp(neuralnet={"layer": layers}, precision="float64", test_freq=20, test_after=10, **changes)


def agrees(outcome: Outcome, kind: str, predicted: list[tuple[Any, Any]], n: int) -> None:
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    y, p = (np.concatenate(each) for each in zip(*predicted, strict=True))
    assert len(y) == n
    for name, value in wanted(kind, y, p).items():
        assert outcome.metric(name, "test")[10] == pytest.approx(value, rel=1e-12, abs=1e-12), name


@pytest.mark.parametrize("cluster", circles(CLUSTERS, long=2))
@pytest.mark.parametrize(("kind", "names"), [("labels", LABELS), ("values", VALUES)])
def test_of_labels_and_values(
    run_job: Run, tmp_path: Path, predicted: list[Any], kind: str, names: list[str], cluster: dict[str, Any]
) -> None:
    agrees(run_job(table(tmp_path, kind, metrics=names, cluster=cluster)), kind, predicted, 100)


@pytest.mark.parametrize(("cluster", "places"), circles(DIVIDED, long=4))
def test_of_classes(run_job: Run, tmp_path: Path, predicted: list[Any], cluster: dict[str, Any], places: Any) -> None:
    made = job(tmp_path, 145, places=places, cluster=cluster, metrics=CLASSES, test_freq=20, test_after=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agrees(run_job(made), "classes", predicted, 145)


def test_jobs_may_follow_them(run_job: Run, tmp_path: Path) -> None:
    keys = {"early_stopping": {"metric": "test.f1_macro", "patience": 1, "min_delta": 2.0}, "metrics": ["f1_macro"]}
    best = {"keep_checkpoints": {"best": 1, "metric": "test.f1_macro"}, "checkpoint_freq": 5}
    made = job(tmp_path, 143, cluster=ALLREDUCE, validate_freq=0, **keys, **best)
    check_job(made)
    outcome = run_job(made)
    first = outcome.metric("f1_macro", "test")[0]
    assert outcome.reports["worker-0-1"]["ended"].endswith(f"Best: {first:.6g} at step 0.")
    latest = Checkpoint(find(outcome.url)).manifest["metrics"]["test.f1_macro"]
    assert latest == {"value": outcome.metric("f1_macro", "test")[5], "step": 5}


def test_validations_and_tests_of_one_step_do_not_mix(run_job: Run, tmp_path: Path) -> None:
    conf = job(tmp_path, 146, cluster=THREE, metrics=["f1_macro"]).model_dump(mode="json", exclude_unset=True)
    conf["neuralnet"]["layer"][1]["include"] = ["test", "val"]
    outcome = run_job(JobConf.model_validate({**conf, "test_freq": 5, "validate_freq": 5}))
    assert len(outcome.metric("f1_macro", "test")) == 3
    assert outcome.metric("f1_macro", "validation") == outcome.metric("f1_macro", "test")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["f1"], "metrics[0]: f1: it needs two classes, and layer 'loss' has 10. Use f1_macro."),
        (["f1_macro", "mse"], "metrics[1]: mse: layer 'loss' outputs probabilities."),
        (["binary_accuracy"], "metrics[0]: binary_accuracy: no layer measures it. Known: accuracy, loss."),
        (
            ["top_10_accuracy"],
            "metrics[0]: top_10_accuracy: layer 'loss' has 10 classes. Expected a number from 1 to 9.",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, names: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_job(job(tmp_path, 143, metrics=names))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "meant"),
    [("f1_makro", "f1_macro"), ("AUC", "auc"), ("r2_score", "r2"), ("F1-score", "f1"), ("mean_squared_error", "mse")],
)
def test_unknown_names_are_refused(tmp_path: Path, name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"unknown metric '{name}'\. Did you mean '{meant}'\?"):
        job(tmp_path, 143, metrics=[name])


def test_metrics_that_layers_measure_may_be_named(tmp_path: Path) -> None:
    assert check_job(job(tmp_path, 143, metrics=["accuracy", "loss"]))


def test_labels_that_exclude_each_other_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="confusion_matrix: it needs classes that exclude each other"):
        check_job(table(tmp_path, "labels", metrics=["confusion_matrix"]))
