"""NeuralNet: every mistake at once, sharing, which gradients exist, figures, cursors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.errors import CheckpointError, ConfigError
from singa_dask.training import BP
from tests.net.jobs import DATA, TEST, build, dense, layer, mlp, ready


def problems(layers: list[dict[str, Any]], **context: Any) -> dict[tuple[Any, ...], str]:
    with pytest.raises(ConfigError) as caught:
        build(layers, **context)
    return {problem.path[2:]: problem.message for problem in caught.value.problems}


def test_building_allocates_nothing() -> None:
    net = build(mlp())
    assert all(not f.has_data and f.grad is None for each in net.layers for f in each.features)
    assert all(not p.has_data and not p.has_grad for p in net.params)
    net.allocate()
    assert all(not p.has_data and p.has_grad for p in net.params)
    net.allocate_params()
    assert [p.data.shape for p in net.params] == [(5, 6), (5,), (3, 5), (3,)]


def test_what_others_ask() -> None:
    net = build(mlp())
    assert [each.name for each in net.layers] == ["data", "fc1", "act1", "fc2", "loss"]
    assert [p.name for p in net.params] == ["w_fc1", "b_fc1", "w_fc2", "b_fc2"]
    assert net.owners == net.params
    assert net.n_params == 5 * 6 + 5 + 3 * 5 + 3
    assert net.name2layer("act1").conf.type == "STanh"
    assert net.param("w_fc2").shape == (3, 5)
    assert net.param_path("b_fc2") == ("neuralnet", "layer", 3, "param", 1)
    assert all(p.cancellation is net.cancellation for p in net.params)


def test_description_is_a_table() -> None:
    text = build(mlp()).describe()
    lines = text.splitlines()
    assert lines[0].split() == ["layer", "type", "reads", "shape", "params"]
    assert lines[2].split() == ["fc1", "InnerProduct", "data", "8", "x", "5", "w_fc1", "5", "x", "6,", "b_fc1", "5"]
    assert lines[-1] == "53 values to learn"


def test_all_mistakes_of_shape_at_once() -> None:
    found = problems(
        [
            DATA,
            {"name": "a", "type": "InnerProduct", "srclayers": ["data"]},
            layer("after_a", "Sigmoid", "a"),
            layer("b", "Softmax", "data", softmax_conf={"num_softmax_per_instance": 4}),
            layer("loss", "SoftmaxLoss", "data"),
        ]
    )
    assert set(found) == {(1, "innerproduct_conf"), (3, "softmax_conf", "num_softmax_per_instance"), (4, "srclayers")}
    assert "takes 2 to 3 source layers, not 1" in found[4, "srclayers"]


def test_a_param_name_is_used_once() -> None:
    found = problems([DATA, dense("a", "data", 2), {**dense("a", "data", 2), "name": "b"}])
    assert set(found) == {(2, "param", 0, "name"), (2, "param", 1, "name")}
    assert "share_from" in found[2, "param", 0, "name"]


def tied(share_from: str, n: int = 6) -> list[dict[str, Any]]:
    """Return a net of two layers whose weights are one."""
    second = dense("b", "a", n)
    second["param"][0] = {"name": "w_b", "share_from": share_from}
    return [DATA, dense("a", "data", 6), second, layer("loss", "EuclideanLoss", "b", "data")]


@pytest.mark.parametrize("name", ["w_a", "0#w_a"])
def test_shared_params_have_one_value_and_gradients_of_their_own(name: str) -> None:
    net = ready(tied(name))
    w_a, w_b = net.param("w_a"), net.param("w_b")
    assert w_b.owner is w_a
    assert w_b.data is w_a.data
    assert w_b.grad is not w_a.grad
    assert net.owners == [w_a, net.param("b_a"), net.param("b_b")]
    assert net.sharers(w_a) == [w_a, w_b]
    assert net.n_params == 36 + 6 + 6


def test_a_sharer_may_see_the_values_in_another_shape() -> None:
    transposed = dense("b", "a", 6)
    transposed["param"][0] = {"name": "w_b", "share_from": "w_a"}
    net = ready([DATA, dense("a", "data", 4), transposed, layer("loss", "EuclideanLoss", "b", "data")])
    assert net.param("w_b").data.shape == (6, 4)
    assert np.shares_memory(net.param("w_b").data, net.param("w_a").data)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (tied("w_c"), "there is no param 'w_c'"),
        (tied("w_b"), "shared from itself"),
        (tied("w_a", 5), "cannot share the values"),
    ],
)
def test_sharing_that_cannot_be(layers: list[dict[str, Any]], words: str) -> None:
    found = problems(layers)
    assert words in found[2, "param", 0, "share_from"]


def test_a_test_net_uses_the_values_of_the_training_net() -> None:
    train = ready(mlp())
    test = ready(mlp(), share_from=train, phase=TEST)
    assert all(mine.data is theirs.data for mine, theirs in zip(test.params, train.params, strict=True))
    assert all(not p.has_grad for p in test.params)
    assert all(f.grad is None for each in test.layers for f in each.features)
    assert test.owners == []
    BP(test).test_one_batch(TEST)
    assert set(test.take_metrics()) == {"loss", "accuracy"}


def test_a_test_net_with_a_param_of_its_own_is_refused() -> None:
    layers = [*mlp()[:-1], dense("fc3", "fc2", 3), layer("loss", "SoftmaxLoss", "fc3", "data")]
    with pytest.raises(ConfigError, match="the training net has no param 'w_fc3'"):
        build(layers, share_from=build(mlp()), phase=TEST)
    with pytest.raises(ConfigError, match="'w_fc1' has shape"):
        build([DATA, dense("fc1", "data", 4)], share_from=build(mlp()), phase=TEST)


def test_gradients_exist_between_what_learns_and_a_loss_only() -> None:
    layers = [
        DATA,
        layer("noise", "Dropout", "data"),
        dense("fc", "noise", 3),
        layer("loss", "SoftmaxLoss", "fc", "data"),
        layer("right", "Accuracy", "fc", "data"),
        dense("idle", "data", 3),
        layer("best", "ArgSort", "idle"),
    ]
    net = ready(layers)
    assert {each.name for each in net.layers if each.learns} == {"fc", "split(fc)", "loss"}
    assert [p.name for p in net.params if p.has_grad] == ["w_fc", "b_fc"]
    split = net.name2layer("split(fc)")
    assert [f.grad is not None for f in split.features] == [True, False]
    assert net.name2layer("noise").features[0].grad is None
    assert net.sharers(net.param("w_idle")) == []
    updated: list[str] = []
    BP(net, update=lambda step, param: updated.append(param.name)).train_one_batch(0)
    assert updated == ["b_fc", "w_fc"]


def test_a_loss_gives_the_same_gradient_beside_an_accuracy() -> None:
    plain = ready(mlp())
    watched = ready([*mlp(), layer("right", "Accuracy", "fc2", "data")])
    for net in (plain, watched):
        BP(net).train_one_batch(0)
    for one, other in zip(plain.params, watched.params, strict=True):
        np.testing.assert_array_equal(one.grad, other.grad)


def test_a_figure_of_several_layers_carries_their_names() -> None:
    layers = [
        *mlp(),
        dense("fc3", "data", 6),
        layer("copy", "EuclideanLoss", "fc3", "data"),
    ]
    net = ready(layers)
    BP(net).train_one_batch(0)
    BP(net).train_one_batch(1)
    figures = net.take_metrics()
    assert set(figures) == {"loss.loss", "copy.loss", "accuracy"}
    assert all(count == 2 for _, count in figures.values())
    assert net.take_metrics() == {}


def test_cursors_resume() -> None:
    net = ready(mlp())
    BP(net).train_one_batch(0)
    assert net.cursors() == {"data": {"position": 1}}
    net.seek({"data": {"position": 5}})
    assert net.cursors() == {"data": {"position": 5}}
    with pytest.raises(CheckpointError, match=r"no input layer 'dota'.* Did you mean 'data'"):
        net.seek({"dota": {"position": 5}})


def test_close_reaches_every_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    net = ready(mlp())

    def fail() -> None:
        raise OSError("disk full")

    monkeypatch.setattr(net.layers[-1], "close", fail)
    monkeypatch.setattr(net.layers[1], "close", fail)
    with pytest.raises(OSError, match="disk full"):
        net.close()
    assert net.name2layer("data").closed  # type: ignore[attr-defined]


def test_two_workers_see_the_gradient_of_one() -> None:
    whole = ready(mlp(), dtype=np.dtype(np.float64))
    BP(whole).train_one_batch(0)
    halves = [ready(mlp(), worker=i, n_workers=2, dtype=np.dtype(np.float64)) for i in range(2)]
    for net in halves:
        BP(net).train_one_batch(0)
    for k, param in enumerate(whole.params):
        mean = (halves[0].params[k].grad + halves[1].params[k].grad) / 2
        np.testing.assert_allclose(mean, param.grad, rtol=1e-12)


def test_phase_none_of_them_matters_to_a_validation_net() -> None:
    train = ready(mlp())
    net = ready(mlp(), share_from=train, phase=Phase.VALIDATION)
    BP(net).test_one_batch(Phase.VALIDATION)
    assert not any(each.learns for each in net.layers)
