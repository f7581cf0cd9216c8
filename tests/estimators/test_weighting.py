"""Weights of records in fits of estimators: the same values from NumPy, pandas and Dask, and what is refused."""

from __future__ import annotations

from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import singa_dask as sd

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(60, 3)) * [1, 10, 100]
Y = (X[:, 0] + X[:, 1] / 10 > 0).astype(int)
WEIGHTS = RANDOM.integers(0, 4, 60) / 2
QUICK: dict[str, Any] = {"hidden_layer_sizes": (), "batch_size": 20, "max_iter": 2, "random_state": 1}


def classifier(*given: Any, **more: Any) -> np.ndarray:
    """Return the probabilities of a classifier that is fitted to these records."""
    found: np.ndarray = sd.SingaClassifier(**QUICK, **more).fit(*given).predict_proba(X)
    return found


def lazy(values: Any, name: str, n: int = 1) -> Any:
    """Return a column or frame of Dask."""
    made = pd.Series(values, name=name) if values.ndim == 1 else pd.DataFrame(values, columns=list("abc"))
    return dd.from_pandas(made, npartitions=n)


def test_records_of_weight_zero_are_left_out() -> None:
    kept = WEIGHTS > 0
    found = classifier(X, Y, WEIGHTS)
    np.testing.assert_array_equal(found, classifier(X[kept], Y[kept], WEIGHTS[kept]))
    assert not np.array_equal(found, classifier(X[kept], Y[kept]))
    outlier = np.where(kept[:, None], X, 1e6)
    np.testing.assert_array_equal(found, classifier(outlier, Y, pd.Series(WEIGHTS)))
    assert np.array_equal(classifier(X, Y), classifier(X, Y, np.ones(60)))


def test_collections_of_dask() -> None:
    wanted = classifier(X, Y, WEIGHTS)
    x, y, weights = (da.from_array(each, chunks=60) for each in (X, Y, WEIGHTS))
    for given in ((x, y, weights), (x, Y, WEIGHTS), (lazy(X, ""), lazy(Y, "y"), lazy(WEIGHTS, "w"))):
        found = sd.SingaClassifier(**QUICK).fit(*given)
        np.testing.assert_array_equal(found.predict_proba(given[0]).compute(), wanted)
    several = [classifier(da.from_array(X, chunks=20), y, WEIGHTS) for y in (Y, da.from_array(Y, chunks=7))]
    several.append(
        sd.SingaClassifier(**QUICK)
        .fit(lazy(X, "", 3), lazy(Y, "y", 3), lazy(WEIGHTS, "w", 3))
        .predict_proba(lazy(X, ""))
        .compute()
    )
    np.testing.assert_array_equal(several[0], several[1])
    np.testing.assert_array_equal(several[0], several[2])


def test_a_regressor_and_partial_fits() -> None:
    target = X @ [1.0, 0.2, 0.01]
    net = sd.SingaRegressor(**QUICK)
    first = net.fit(X, target, sample_weight=WEIGHTS).predict(X)
    goes_on = net.partial_fit(X, target, sample_weight=WEIGHTS).predict(X)
    without = sd.SingaRegressor(**QUICK).fit(X, target)
    assert not np.array_equal(first, goes_on) and not np.array_equal(first, without.predict(X))
    assert net.score(X, target, WEIGHTS) != net.score(X, target)
    steps = sd.SingaClassifier(**QUICK).partial_fit(X, Y, classes=[0, 1], sample_weight=WEIGHTS)
    assert steps.partial_fit(X, Y).predict(X).shape == (60,)


@pytest.mark.long
def test_a_job_reads_weights() -> None:
    records = {"path": "dask://any", "shape": [3], "batchsize": 20, "shuffle": "full"}
    layers = [
        sd.layer("RecordInput", name="data", store_conf=records),
        sd.layer("WeightInput", name="weight", store_conf=records),
        sd.layer("InnerProduct", name="out", srclayers="data", num_output=2),
        sd.layer("SoftmaxLoss", name="loss", srclayers=["out", "data", "weight"]),
    ]
    keys = {"train_steps": 5, "train_one_batch": {"alg": "BP"}}
    keys["updater"] = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.001}}
    job = sd.Job(sd.Net(layers), **keys)
    assert not np.array_equal(classifier(X, Y, WEIGHTS, job=job), classifier(X, Y, job=job))
    np.testing.assert_array_equal(classifier(X, Y, np.ones(60), job=job), classifier(X, Y, job=job))
    layers[3] = sd.layer("SoftmaxLoss", name="loss", srclayers=["out", "data"])
    plain = sd.Job(sd.Net([layers[0], *layers[2:]]), **keys)
    with pytest.raises(sd.ConfigError, match="no layer reads the weights"):
        classifier(X, Y, WEIGHTS, job=plain)


def test_wrong_weights_are_refused() -> None:
    x, y, weights = (da.from_array(each, chunks=20) for each in (X, Y, WEIGHTS))
    frame = lazy(X, "", 2)
    for given, message in (
        ((X, Y, -WEIGHTS), "Negative values"),
        ((X, Y, WEIGHTS[:3]), r"expected \(60,\)"),
        ((X, Y, 0 * WEIGHTS), "."),
        ((x, y, -weights), r"sample_weight: record \d+ of a partition: the weight -"),
        ((x, y, weights * np.nan), r"the weight nan"),
        ((x, y, weights[:40]), r"sample_weight: shape \(40,\)"),
        ((x, y, 0 * weights), "X has no records"),
        ((frame, lazy(Y, "y", 2), WEIGHTS), "sample_weight: in memory, but X is a Dask collection"),
        ((frame, lazy(Y, "y", 2), lazy(WEIGHTS, "w", 3)), "X has 2 partitions, y 2 and sample_weight 3"),
        ((frame, lazy(Y, "y", 2), lazy(WEIGHTS[:50], "w", 2)), r"sample_weight: 25 in a partition of 30 records"),
    ):
        with pytest.raises(ValueError, match=message):
            sd.SingaClassifier(**QUICK).fit(*given)
