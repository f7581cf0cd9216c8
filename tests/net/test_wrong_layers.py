"""Layers that break their contract: refused when a net is built or run, or found where it is watched."""

from __future__ import annotations

from typing import Any

import pytest

from singa_dask.errors import ConfigError, PartError
from singa_dask.layers import LAYERS, Layer
from singa_dask.net import NeuralNet
from singa_dask.training import BP
from tests.net.group import Group
from tests.net.jobs import DATA, UNIFORM, build, dense, job, layer, ready
from tests.testing.mistakes import WRONG, Wrong
from tests.testing.wrong_layers import FalseAccumulates, FalseReadsGradients, ForwardOnly, Scale


def net_of(monkeypatch: pytest.MonkeyPatch, cls: type[Layer], *sources: str) -> list[dict[str, Any]]:
    """Return a net with a layer after one that learns."""
    monkeypatch.setitem(LAYERS._classes, cls.__name__, cls)
    params = [{"init": UNIFORM} for _ in cls.traits.params]
    return [
        DATA,
        dense("fc1", "data", 5),
        layer("tested", cls.__name__, *(sources or ("fc1",)), param=params),
        dense("fc2", "tested", 3),
        layer("loss", "SoftmaxLoss", "fc2", "data"),
    ]


def trained(net: NeuralNet) -> None:
    for step in range(2):
        BP(net).train_one_batch(step)


@pytest.mark.parametrize("wrong", [wrong for wrong in WRONG if wrong.watched], ids=lambda wrong: wrong.cls.__name__)
def test_a_wrong_layer_is_found_at_run_time(monkeypatch: pytest.MonkeyPatch, wrong: Wrong) -> None:
    layers = net_of(monkeypatch, wrong.cls, "fc1", *["data"] * (wrong.cls.traits.n_sources[0] - 1))
    with pytest.raises((PartError, ConfigError, TypeError, RuntimeError)) as caught:
        net = ready(layers)
        net.is_watched = True
        trained(net)
    assert wrong.watched in str(caught.value)


def test_a_false_accumulates_is_found_in_an_unrolled_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYERS._classes, "FalseAccumulates", FalseAccumulates)
    tested = layer("tested", "FalseAccumulates", "data", param=[{"init": UNIFORM}])
    layers = [DATA, tested, dense("fc2", "tested", 3), layer("loss", "SoftmaxLoss", "fc2", "data")]
    group = Group(job([], neuralnet={"layer": layers, "unroll_len": 2}), 1)
    group.nets[0].is_watched = True
    with pytest.raises(PartError, match=r"Speed\(accumulates=True\) is false: the gradient of param 'tested.gain'"):
        group.train(1)


def test_a_false_reads_gradients_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    net = ready(net_of(monkeypatch, FalseReadsGradients))
    net.is_watched = True
    with pytest.raises(PartError, match=r"backward\(\) writes into the gradient of output 0, which other layers read"):
        trained(net)


def test_a_right_layer_is_not_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    net = ready(net_of(monkeypatch, Scale))
    net.is_watched = True
    trained(net)


@pytest.mark.parametrize("reads", ["fc1", "data"])
def test_a_layer_without_backward_is_refused_where_something_learns(
    monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    layers = net_of(monkeypatch, ForwardOnly, reads)
    if reads == "data":
        trained(ready(layers))
        return
    with pytest.raises(ConfigError) as caught:
        build(layers)
    (problem,) = caught.value.problems
    assert problem.path == ("neuralnet", "layer", 2, "type")
    assert "ForwardOnly has no backward()" in problem.message


def test_no_gradient_passes_an_output_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(ForwardOnly):
        def setup(self) -> None:
            self.y = self.add_output(self.sources[0].shape, requires_grad=False)

    layers = net_of(monkeypatch, Stopped)
    net = ready(layers)
    assert [each.name for each in net.layers if each.learns] == ["fc2", "loss"]
    trained(net)
