"""Estimators with a module of PyTorch, against the same module trained by PyTorch alone."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import singa_dask as sd
from singa_dask.errors import SingaError
from tests.oracles import torch_models

torch: Any = pytest.importorskip("torch")

N, EPOCHS, RATE = 60, 6, 0.1
KEYS: dict[str, Any] = {"batch_size": N, "max_iter": EPOCHS, "random_state": 0}
KEYS |= {"updater": "SGD", "learning_rate_init": RATE, "module": torch_models.Numbers}


def frame() -> pd.DataFrame:
    """Return a frame of two columns of numbers, and one of texts with three values."""
    rng = np.random.default_rng(5)
    numbers = rng.normal(size=(N, 2)).astype(np.float32)
    return pd.DataFrame({"a": numbers[:, 0], "b": numbers[:, 1], "c": rng.choice(["x", "y", "z"], N)})


def by_torch(x: Any, y: Any, loss: Any, **args: Any) -> tuple[list[float], Any]:
    """Train the module by PyTorch alone; return its losses and its outputs."""
    x, y, module = torch.from_numpy(np.asarray(x, np.float32)), torch.from_numpy(y), torch_models.Numbers(**args)
    optimiser = torch.optim.SGD(module.parameters(), RATE)
    losses = []
    for _ in range(EPOCHS):
        optimiser.zero_grad()
        found = loss(module(x), y)
        found.backward()
        optimiser.step()
        losses.append(float(found.detach()))
    with torch.no_grad():
        return losses, module(x)


@pytest.mark.parametrize("lazy", [False, True], ids=["pandas", "dask"])
def test_classes_of_a_frame(lazy: bool) -> None:
    x, y = frame(), np.arange(N) % 3
    net = sd.SingaClassifier(module__inputs=5, module__start=2, **KEYS)
    to_dask: Any = dd.from_pandas
    given = (to_dask(x, npartitions=2), to_dask(pd.Series(y), npartitions=2)) if lazy else (x, y)
    net.fit(*given)
    encoded = pd.get_dummies(x)[["c_x", "c_y", "c_z", "a", "b"]]
    losses, scores = by_torch(encoded, y, torch.nn.functional.cross_entropy, inputs=5, start=2)
    np.testing.assert_allclose(net.loss_curve_[1:], losses[1:], rtol=1e-5)
    found = net.predict_proba(given[0])
    np.testing.assert_allclose(found.compute() if lazy else found, torch.softmax(scores, 1).numpy(), rtol=1e-4)
    if not lazy:
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(net)).predict_proba(x), found)


def test_targets_of_records_with_axes() -> None:
    x = np.random.default_rng(1).normal(size=(N, 4, 3)).astype(np.float32)
    y = x.mean(1)[:, :2].astype(np.float64)
    net = sd.SingaRegressor(module__inputs=12, module__outputs=2, **KEYS).fit(x, y)

    def half(found: Any, wanted: Any) -> Any:
        return ((found - wanted.float()) ** 2).sum() / 2 / N

    losses, outputs = by_torch(x, y, half, inputs=12, outputs=2)
    # a EuclideanLoss reports twice the loss whose gradient it computes
    np.testing.assert_allclose(net.loss_curve_[1:], np.multiply(losses[1:], 2), rtol=1e-5)
    np.testing.assert_allclose(net.predict(x), outputs.numpy(), rtol=1e-4, atol=1e-5)


def test_parameters_as_scikit_learn_has_them() -> None:
    net = sd.SingaClassifier(module__inputs=2, module__hidden=4, **KEYS)
    assert {"module": torch_models.Numbers, "module__inputs": 2}.items() <= net.get_params().items()
    assert clone(net).set_params(module__hidden=3).get_params()["module__hidden"] == 3
    assert net.get_params()["module__hidden"] == 4
    assert clone(copy.deepcopy(net)).get_params() == net.get_params()
    assert "module__hidden=4" in repr(net)
    x, y = frame()[["a", "b"]], (frame()["a"] > 0).astype(int)
    search = GridSearchCV(net.set_params(learning_rate_init=0.5), {"module__hidden": [2, 4]}, cv=2).fit(x, y)
    assert search.best_params_["module__hidden"] in (2, 4)
    assert min(cross_val_score(make_pipeline(StandardScaler(), net), x, y, cv=2)) > 0.6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"module__hiden": 3}, r"unexpected keyword argument 'hiden'"),
        ({"hidden_layer_sizes": (3,)}, "the module has layers of its own"),
        ({"alpha": 0.1}, "alpha and module are given"),
        ({"module": None, "module__hidden": 3}, "module__hidden: there is no module"),
        ({"module__outputs": 2}, "has 3 classes, 0, 1, 2, but there are scores for 2"),
    ],
)
def test_wrong_parameters(given: dict[str, Any], message: str) -> None:
    net = sd.SingaClassifier(**{**KEYS, "module__inputs": 2, **given})
    with pytest.raises(SingaError, match=message):
        net.fit(frame()[["a", "b"]], np.arange(N) % 3)
