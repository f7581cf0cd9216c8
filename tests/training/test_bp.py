"""BP: the order of what it asks for and gives, gradients of a whole net, and the layer where it fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError, NumericError
from singa_dask.training import ALGORITHMS, BP, UPDATERS
from tests.net.jobs import DATA, TEST, dense, job, layer, mlp, ready


def test_params_are_asked_for_before_and_given_right_after_their_layer() -> None:
    net = ready(mlp())
    events: list[str] = []
    algorithm = BP(net, lambda p: events.append(f"collect {p.name}"), lambda s, p: events.append(f"{s} {p.name}"))
    for each in net.layers:
        for verb in ("forward", "backward"):
            run = getattr(each, verb)

            def traced(phase: Any, run: Any = run, said: str = f"{verb} {each.name}") -> None:
                events.append(said)
                run(phase)

            setattr(each, verb, traced)
    algorithm.train_one_batch(4)
    assert events == [
        *("forward data", "collect w_fc1", "collect b_fc1", "forward fc1", "forward act1"),
        *("collect w_fc2", "collect b_fc2", "forward fc2", "forward loss"),
        *("backward loss", "backward fc2", "4 b_fc2", "4 w_fc2", "backward act1", "backward fc1", "4 b_fc1", "4 w_fc1"),
    ]
    assert net.context.step == 4


@pytest.mark.parametrize("watched", [False, True])
def test_a_gradient_that_is_ready_leaves_while_its_layer_runs(watched: bool) -> None:
    net, events = ready(mlp()), []
    net.is_watched = watched
    fc2 = net.name2layer("fc2")
    fc2.speed = fc2.speed.replace(capturable=False)
    run, (weight, bias) = fc2.backward, fc2.params

    def early(phase: Any) -> None:
        fc2.ready(bias)
        run(phase)
        events.append("backward fc2")

    fc2.backward = early  # type: ignore[method-assign]
    BP(net, update=lambda step, param: events.append(param.name)).train_one_batch(0)
    # a net that is debugged runs each layer several times, and checks its gradients before they leave
    assert (events.index(bias.name) < events.index("backward fc2")) is not watched
    assert [name for name in events if name != "backward fc2"] == [bias.name, weight.name, "b_fc1", "w_fc1"]


def test_a_gradient_is_not_sent_twice() -> None:
    net = ready(mlp())
    fc2 = net.name2layer("fc2")
    fc2.speed = fc2.speed.replace(capturable=False)
    fc2.backward = lambda phase: [fc2.ready(fc2.params[0]) for _ in range(2)]  # type: ignore
    with pytest.raises(RuntimeError, match=r"fc2: backward\(\) calls ready\(\) twice for param w_fc2"):
        BP(net).train_one_batch(0)


def test_a_test_asks_for_nothing() -> None:
    train = ready(mlp())
    net = ready(mlp(), share_from=train, phase=TEST)

    def refuse(*_: object) -> None:
        raise AssertionError("asked")

    BP(net, refuse, refuse).test_one_batch(TEST)


def test_gradients_of_a_net_with_branches() -> None:
    layers = [
        DATA,
        dense("fc1", "data", 5),
        layer("a", "STanh", "fc1"),
        layer("b", "Sigmoid", "fc1"),
        dense("left", "a", 3),
        dense("right", "b", 3),
        layer("loss", "SoftmaxLoss", "left", "data"),
        layer("near", "EuclideanLoss", "right", "left"),
    ]
    net = ready(layers, dtype=np.dtype(np.float64))

    def objective() -> float:
        net.seek({"data": {"position": 0}})
        BP(net).train_one_batch(0)
        figures = net.take_metrics()
        return figures["loss.loss"][0] + figures["near.loss"][0] / 2

    for param in net.params:
        objective()
        analytic = param.grad.copy()
        for place in np.ndindex(param.shape):
            kept, sides = param.data[place], []
            for epsilon in (1e-5, -1e-5):
                param.data[place] = kept + epsilon
                sides.append(objective())
            param.data[place] = kept
            assert analytic[place] == pytest.approx((sides[0] - sides[1]) / 2e-5, abs=1e-6)


def test_shared_weights_learn_from_the_mean_of_their_gradients() -> None:
    second = dense("b", "a", 6)
    second["param"][0] = {"name": "w_b", "share_from": "w_a"}
    net = ready([DATA, dense("a", "data", 6), second, layer("loss", "EuclideanLoss", "b", "data")])
    owner = net.param("w_a")
    before = owner.data.copy()
    BP(net).train_one_batch(0)
    sharers = net.sharers(owner)
    updater = UPDATERS.find("SGD")(job(mlp()).updater)
    total = sum(param.grad for param in sharers).reshape(-1)
    updater.update(0, 0, owner.data.reshape(-1), total, {}, n_sharers=len(sharers))
    mean = (net.param("w_a").grad + net.param("w_b").grad) / 2
    np.testing.assert_allclose(owner.data, before - 0.1 * mean, rtol=1e-5)


def test_the_layer_of_a_failure_is_known() -> None:
    net = ready(mlp())

    def fail(phase: Any) -> None:
        raise ArithmeticError("no")

    net.name2layer("fc2").backward = fail  # type: ignore[method-assign]
    algorithm = BP(net)
    with pytest.raises(ArithmeticError):
        algorithm.train_one_batch(0)
    assert algorithm.layer is net.name2layer("fc2")


def test_a_loss_that_is_no_number_is_found_before_a_gradient_of_it_leaves() -> None:
    net, sent = ready(mlp()), []
    for param in net.params:
        param.data[...] = 1e38
    algorithm = BP(net, update=lambda step, param: sent.append(param))
    with pytest.raises(NumericError, match="the loss is not finite"):  # and numpy warns of nothing
        algorithm.train_one_batch(0)
    assert sent == []
    assert algorithm.layer is net.name2layer("loss")


def test_algorithms_are_known_by_name() -> None:
    assert ALGORITHMS.find("BP") is BP
    with pytest.raises(ConfigError, match=r"unknown algorithm 'BPX'"):
        ALGORITHMS.find("BPX")
    assert isinstance(job(mlp()), JobConf)
