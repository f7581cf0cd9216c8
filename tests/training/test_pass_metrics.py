"""Metrics of a pass against scikit-learn, however the records are divided; what they refuse."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from singa_dask.training import pass_metrics
from singa_dask.training.pass_metrics import Scores

sklearn = pytest.importorskip("sklearn.metrics")

AVERAGES = ("macro", "micro", "weighted")
OF_CLASSES = ["balanced_accuracy", "perplexity", "roc_auc_ovr", "average_precision", "confusion_matrix"]
OF_CLASSES += [f"{name}_{how}" for name in ("precision", "recall", "f1") for how in AVERAGES]
OF_LABELS = [name for name in OF_CLASSES if "_" in name and name.split("_")[0] in ("precision", "recall", "f1")]
OF_LABELS += ["roc_auc", "average_precision"]


def scored(kind: str, names: list[str], y: Any, p: Any, n_parts: int, rng: np.random.Generator) -> Scores:
    """Return the scores of records that are divided into parts, and these into batches, at random."""
    whole = Scores(kind, p.shape[1], names)
    for rows in np.split(np.arange(len(y)), np.sort(rng.integers(0, len(y), n_parts - 1))):
        part = Scores(kind, p.shape[1], names)
        for batch in np.split(rows, np.sort(rng.integers(0, len(rows) + 1, 3))):
            if len(batch):
                part.add(y[batch], p[batch])
        whole.merge(part.state())
    return whole


def of_classes(rng: np.random.Generator, n: int, n_classes: int) -> tuple[Any, Any]:
    """Return labels, imbalanced and perhaps not all of the classes, and probabilities with ties."""
    labels = rng.choice(n_classes, n, p=rng.dirichlet(np.full(n_classes, 0.5)))
    scores = rng.normal(size=(n, n_classes)) + 1.5 * np.eye(n_classes)[labels] * rng.integers(0, 2)
    p = np.exp(np.round(scores, rng.integers(0, 3)))
    return labels.astype(np.int32), (p / p.sum(1, keepdims=True)).astype(np.float32)


def wanted_of_classes(y: Any, p: Any) -> dict[str, Any]:
    n, exact = p.shape[1], p.astype(np.float64)
    predicted = n - 1 - p[:, ::-1].argmax(1)
    wanted = of_predicted(y, predicted)
    wanted["balanced_accuracy"] = sklearn.balanced_accuracy_score(y, predicted)
    wanted["confusion_matrix"] = sklearn.confusion_matrix(y, predicted, labels=range(n))
    wanted["perplexity"] = np.exp(-np.log(exact[np.arange(len(y)), y]).mean())
    for k in range(1, n) if n > 2 else ():
        wanted[f"top_{k}_accuracy"] = sklearn.top_k_accuracy_score(y, p, k=k, labels=range(n))
    areas = [(y == k, p[:, k]) for k in range(n)]
    is_there = len(np.unique(y)) == n
    wanted["roc_auc_ovr"] = np.mean([sklearn.roc_auc_score(*each) for each in areas]) if is_there else np.nan
    wanted["auc"] = wanted["roc_auc_ovr"]
    wanted["average_precision"] = sklearn.average_precision_score(y, p) if n > 2 and is_there else np.nan
    if n == 2:
        wanted["average_precision"] = sklearn.average_precision_score(y, p[:, 1])
        wanted["roc_auc"] = sklearn.roc_auc_score(y, p[:, 1]) if is_there else np.nan
        for name in ("precision", "recall", "f1"):
            wanted[name] = getattr(sklearn, f"{name}_score")(y, predicted)
    return wanted


def of_predicted(y: Any, predicted: Any) -> dict[str, Any]:
    return {
        f"{name}_{how}": getattr(sklearn, f"{name}_score")(y, predicted, average=how)
        for name in ("precision", "recall", "f1")
        for how in AVERAGES
    }


def wanted_of_labels(y: Any, p: Any) -> dict[str, Any]:
    wanted = of_predicted(y.astype(int), (p > 0.5).astype(int))
    some = [0 < column.sum() < len(column) for column in y.T]
    wanted["roc_auc"] = sklearn.roc_auc_score(y, p) if all(some) else np.nan
    wanted["auc"] = wanted["roc_auc"]
    wanted["average_precision"] = sklearn.average_precision_score(y, p)
    return wanted


def wanted_of_values(y: Any, p: Any) -> dict[str, Any]:
    y, p = y.astype(np.float64), p.astype(np.float64)
    wanted = {"mse": sklearn.mean_squared_error(y, p), "mae": sklearn.mean_absolute_error(y, p)}
    return {**wanted, "rmse": sklearn.root_mean_squared_error(y, p), "r2": sklearn.r2_score(y, p)}


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 50))])
def test_they_are_those_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 300))
    kind = ("classes", "classes", "labels", "values")[seed % 4]
    size = int(rng.integers(2, 3 if seed % 8 == 0 else 9))
    with warnings.catch_warnings():
        # what is not defined, or 0 by definition
        warnings.simplefilter("ignore")
        if kind == "classes":
            y, p = of_classes(rng, n, size)
            wanted = wanted_of_classes(y, p)
        elif kind == "labels":
            y = (rng.random((n, size)) < rng.beta(0.5, 0.8, size)).astype(np.float32)
            p = np.round(rng.random((n, size)), rng.integers(1, 4)).astype(np.float32)
            wanted = wanted_of_labels(y, p)
        else:
            y = (rng.normal(size=(n, size)) * 10.0 ** rng.integers(-3, 6, size) + 1e4).astype(np.float32)
            y[:, 0] = rng.choice([y[0, 0], 0.1])
            p = np.where(rng.random((n, size)) < 0.1, y, y + rng.normal(size=(n, size))).astype(np.float32)
            wanted = wanted_of_values(y, p)
    for n_parts in (1, 2, 3):
        scores = scored(kind, list(wanted), y, p, n_parts, rng)
        if kind == "classes":
            np.testing.assert_array_equal(scores.confusion(), wanted["confusion_matrix"])
        found = {name: scores.value(name) for name in wanted if name != "confusion_matrix"}
        for name, value in found.items():
            np.testing.assert_allclose(value, wanted[name], rtol=1e-12, atol=1e-12, err_msg=name)


def test_what_is_not_defined_is_no_number() -> None:
    p = np.array([[0.3, 0.7], [0.6, 0.4]], np.float32)
    scores = scored("classes", ["roc_auc", "f1"], np.array([1, 1], np.int32), p, 1, np.random.default_rng(1))
    assert np.isnan(scores.value("roc_auc")) and scores.value("f1") == pytest.approx(2 / 3)
    assert np.isnan(Scores("values", 1, ["r2"]).value("r2"))


@pytest.mark.parametrize("n_parts", [1, 3])
def test_outputs_that_take_too_much_memory_are_not_kept(
    n_parts: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(3)
    y, p = of_classes(rng, 200, 4)
    monkeypatch.setattr(pass_metrics, "MAX_BYTES", y.nbytes + p.nbytes - 1)
    scores = scored("classes", ["roc_auc_ovr", "f1_macro"], y, p, n_parts, rng)
    assert np.isnan(scores.value("roc_auc_ovr"))
    assert scores.value("f1_macro") == pytest.approx(wanted_of_classes(y, p)["f1_macro"])
    assert {record.message for record in caplog.records} == {
        "roc_auc_ovr: undefined, as more than 0 MiB of outputs would have to be kept."
    }
