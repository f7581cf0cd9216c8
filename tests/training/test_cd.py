"""CD: the updates of whole runs by hand, chains that go on, tests, and nets that it cannot train."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.conf.job import AlgConf
from singa_dask.errors import ConfigError, NumericError
from singa_dask.layers import Param
from singa_dask.net import NeuralNet
from singa_dask.ops import philox
from singa_dask.training import ALGORITHMS, BP, CD
from tests.net.jobs import DATA, TEST, UNIFORM, build, dense, layer, mlp, ready

RATE = 0.1
FLOAT64 = {"dtype": np.dtype(np.float64)}


def rbm(source: str = "data", hdim: int = 4, **hidden: Any) -> list[dict[str, Any]]:
    visible = [{"name": "w", "init": UNIFORM}, {"name": "b", "init": UNIFORM}]
    shared = [{"name": "w_", "share_from": "w"}, {"name": "c", "init": UNIFORM}]
    return [
        layer("vis", "RBMVis", source, "hid", rbm_conf={"hdim": hdim}, param=visible),
        layer("hid", "RBMHid", "vis", rbm_conf={"hdim": hdim, **hidden}, param=shared),
    ]


def trainer(net: NeuralNet, **conf: Any) -> CD:
    """Return CD that changes params right away by their whole gradients, as plain SGD with the rate `RATE`."""

    def update(step: int, param: Param) -> None:
        if not param.is_idle:
            param.data[...] -= RATE * param.grad

    return CD(net, update=update, conf=AlgConf.model_validate({"alg": "CD", "cd_conf": conf}))


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def reconstruct(h: Any, step: int, number: int, w: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Return visible and hidden probabilities after a Gibbs step from hidden ones, with the random numbers of CD."""
    key = (0, "vis", 0, int(Phase.TRAIN), step, "hidden", number)
    v = logistic((philox.uniform(key, h.shape) < h) @ w + b)
    return v, logistic(v @ w.T + c)


def by_hand(net: NeuralNet, n_steps: int, k: int, persistent: bool) -> tuple[list[Any], list[float]]:
    """Return what SINGA's formulas make of the params in some steps, and the error of each."""
    w, b, c = (net.param(name).data.copy() for name in "wbc")
    chain, errors, feed = None, [], net.name2layer("data")
    for step in range(n_steps):
        feed.compute_feature(Phase.TRAIN)
        x = feed.features[0].data.copy()
        positive = logistic(x @ w.T + c)
        v, h = reconstruct(positive, step, 0, w, b, c)
        errors.append(((x - v) ** 2).sum() / len(x))
        if persistent and chain is not None:
            h = chain
        for number in range(1, k + persistent):
            v, h = reconstruct(h, step, number, w, b, c)
        chain = h
        w, b, c = (
            w - RATE * (h.T @ v - positive.T @ x) / len(x),
            b - RATE * (v - x).mean(axis=0),
            c - RATE * (h - positive).mean(axis=0),
        )
    net.seek({"data": {"position": 0}})
    return [w, b, c], errors


@pytest.mark.parametrize(("k", "persistent"), [(1, False), (3, False), (1, True), (2, True)])
def test_updates_by_hand(k: int, persistent: bool) -> None:
    net = ready([DATA, *rbm()], **FLOAT64)
    wanted, errors = by_hand(net, 4, k, persistent)
    cd, found = trainer(net, cd_k=k, persistent=persistent), []
    for step in range(4):
        cd.train_one_batch(step)
        total, count = net.take_metrics()["squared_error"]
        found.append(total / count)
    assert found == pytest.approx(errors, rel=1e-9)
    for name, values in zip("wbc", wanted, strict=True):
        np.testing.assert_allclose(net.param(name).data, values, rtol=1e-9, atol=1e-12)


def test_it_learns() -> None:
    """Two records, which the units of a Bernoulli RBM can tell apart."""
    net = ready([DATA, *rbm()], **FLOAT64)
    feed = net.name2layer("data")
    feed.forward = lambda phase: None  # type: ignore[method-assign]
    feed.features[0].data[...] = np.tile([[1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 0, 1]], (4, 1))
    cd, errors = trainer(net), []
    for step in range(1500):
        cd.train_one_batch(step)
        errors.append(net.take_metrics()["squared_error"][0])
    assert np.mean(errors[:20]) > 1
    assert np.mean(errors[-20:]) < 0.1


def test_params_are_asked_for_and_given_below_an_rbm_only_asked_for() -> None:
    net = ready([DATA, dense("fc", "data", 5), layer("act", "Sigmoid", "fc"), *rbm("act")])
    assert [each.name for each in net.layers if each.learns] == ["vis", "hid"]
    assert net.sharers(net.param("w_fc")) == []
    assert not net.param("w_fc").has_grad
    events: list[str] = []
    CD(net, lambda p: events.append(f"collect {p.name}"), lambda s, p: events.append(f"{s} {p.name}")).train_one_batch(
        4
    )
    assert events == [
        *("collect w_fc", "collect b_fc", "collect w", "collect b", "collect w_", "collect c"),
        *("4 c", "4 w_", "4 b", "4 w"),
    ]


def test_a_frozen_dropout_drops_nothing() -> None:
    net = ready([DATA, layer("drop", "Dropout", "data"), *rbm("drop")])
    CD(net).train_one_batch(0)
    np.testing.assert_array_equal(net.name2layer("drop").features[0].data, net.name2layer("data").features[0].data)


def test_a_test_tells_the_error_of_its_own_records() -> None:
    train = ready([DATA, *rbm()], **FLOAT64)
    net = ready([DATA, *rbm()], share_from=train, phase=TEST, seed=5, **FLOAT64)

    def refuse(*_: object) -> None:
        raise AssertionError("asked")

    cd = CD(net, refuse, refuse)
    for _ in range(2):
        cd.test_one_batch(TEST)
    x, v = net.name2layer("data").features[0].data, net.name2layer("vis").features[0].model
    (total, count), last = net.take_metrics()["squared_error"], ((x - v) ** 2).sum() / len(x)
    assert count == 2
    cd.test_one_batch(TEST)
    assert 0 < last < total
    assert train.take_metrics() == {}


def test_an_error_that_is_no_number_is_found_before_a_gradient_leaves() -> None:
    net, sent = ready([DATA, *rbm(gaussian=True)]), []
    net.param("w").data[...] = np.nan
    cd = CD(net, update=lambda step, param: sent.append(param))
    with pytest.raises(NumericError, match="the squared error is not finite"):
        cd.train_one_batch(0)
    assert sent == []
    assert cd.layer is net.name2layer("vis")


def test_weights_must_be_shared() -> None:
    layers = [DATA, *rbm()]
    layers[2]["param"][0] = {"name": "other", "init": UNIFORM}
    with pytest.raises(ConfigError) as caught:
        CD.check(build(layers))
    (problem,) = caught.value.problems
    assert problem.path == ("neuralnet", "layer", 2, "param", 0)
    assert problem.message == "'hid' has other weights than its RBMVis. Set share_from: w."


def test_the_hidden_layer_may_own_the_weights() -> None:
    layers = [DATA, *rbm()]
    layers[1]["param"][0], layers[2]["param"][0] = {"name": "w", "share_from": "w_"}, {"name": "w_", "init": UNIFORM}
    CD.check(build(layers))


def test_what_learns_from_a_loss_too_is_refused() -> None:
    second = dense("fc", "hid", 6)
    second["param"][0] = {"name": "w_fc", "share_from": "w"}
    second["innerproduct_conf"]["transpose"] = True
    with pytest.raises(ConfigError, match=r"'w_fc' also learns from a loss, whose gradient CD does not compute\."):
        CD.check(build([DATA, *rbm(), second, layer("loss", "EuclideanLoss", "fc", "data")]))


def test_nets_of_other_kinds() -> None:
    CD.check(build([DATA, *rbm()]))
    with pytest.raises(ConfigError, match=r"CD trains RBMVis and RBMHid, and the net has none\."):
        CD.check(build(mlp()))
    with pytest.raises(ConfigError, match=r"these layers learn without a loss: vis, hid\. Set alg: CD\."):
        BP.check(build([DATA, *rbm()]))
    assert ALGORITHMS.find("CD") is CD
