"""Unrolled nets: SINGA's copies and edges, copies put together again, and gradients through time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.inputs import InputContext
from singa_dask.layers import LAYERS
from singa_dask.layers.norm import BMConf
from singa_dask.net import NeuralNet, make_net, plan
from singa_dask.net.plan import check_types, cut_feedback_edges, layers_in_phase
from singa_dask.net.unroll import merge, unroll
from singa_dask.ops import get_ops
from singa_dask.training import BP, initial_values
from tests.net.jobs import dense, job, layer
from tests.net.recurrent import Columns, Decay, Gain, Sum

T, N, D = 3, 4, 2
DATA = {"name": "data", "type": "Feed", "unroll_len": 1, "user_conf": {"shape": [N, T * D], "classes": 3}}
UNIFORM = {"type": "Uniform", "low": -0.5, "high": 0.5}


@pytest.fixture(autouse=True)
def known_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYERS._classes, "Columns", Columns)
    monkeypatch.setitem(LAYERS._classes, "Decay", Decay)
    monkeypatch.setitem(LAYERS._classes, "Gain", Gain)
    monkeypatch.setitem(LAYERS._classes, "Sum", Sum)


def unrolled(layers: list[dict[str, Any]], steps: int = T) -> JobConf:
    return job([], neuralnet={"layer": layers, "unroll_len": steps})


def columns(**more: Any) -> dict[str, Any]:
    return layer("in", "Columns", "data", user_conf={"width": D}, **more)


def decay(name: str, *sources: str, **more: Any) -> dict[str, Any]:
    return layer(name, "Decay", *sources, param=[{"name": f"a_{name}", "init": UNIFORM}], **more)


def copies(layers: list[dict[str, Any]], steps: int = T) -> dict[str, tuple[str, ...]]:
    net = unrolled(layers, steps).neuralnet
    nodes = unroll(cut_feedback_edges(check_types(layers_in_phase(net.layer, Phase.TRAIN))), net.unroll_len)
    return {node.name: node.source_names for node in nodes}


def planned(layers: list[dict[str, Any]], steps: int = T) -> dict[str, tuple[str, ...]]:
    return {node.name: node.source_names for node in plan(unrolled(layers, steps).neuralnet, Phase.TRAIN)}


def recurrent_net() -> list[dict[str, Any]]:
    return [
        DATA,
        columns(),
        decay("h", "in"),
        dense("out", "h", 3),
        layer("loss", "SoftmaxLoss", "out", "in"),
    ]


# -- SINGA's graph -----------------------------------------------------------------------------------


def test_the_graph_of_singas_own_test() -> None:
    layers = [
        DATA,
        columns(unroll_conn_type="OneToAll"),
        decay("gru", "in"),
        dense("out", "gru", 3),
        layer("loss", "SoftmaxLoss", "out", "data", unroll_conn_type=["OneToOne", "OneToAll"]),
    ]
    assert copies(layers) == {
        "0#data": (),
        **{f"{i}#in": ("0#data",) for i in range(3)},
        "0#gru": ("0#in",),
        "1#gru": ("1#in", "0#gru"),
        "2#gru": ("2#in", "1#gru"),
        **{f"{i}#out": (f"{i}#gru",) for i in range(3)},
        **{f"{i}#loss": (f"{i}#out", "0#data") for i in range(3)},
    }
    assert list(copies(layers))[:5] == ["0#data", "0#in", "1#in", "2#in", "0#gru"]


def test_a_shift_reads_an_earlier_step_of_a_layer_that_comes_later() -> None:
    layers = [
        DATA,
        layer("e", "Dummy", "out", shift=1, unroll_conn_type="OneToOne"),
        dense("out", "e", 3),
    ]
    assert copies(layers)["0#e"] == () and copies(layers)["2#e"] == ("1#out",)


def test_first_to_last_reads_the_last_step_at_the_first() -> None:
    layers = [
        DATA,
        columns(),
        decay("enc", "in"),
        decay("dec", "in", "enc", unroll_conn_type=["OneToOne", "FirstToLast"]),
    ]
    made = copies(layers)
    assert made["0#dec"] == ("0#in", "2#enc")
    assert made["1#dec"] == ("1#in", "0#dec")


def test_customized_steps_are_read_as_listed() -> None:
    steps = [[[0], [0, 1], [2, 0]]]
    layers = [DATA, columns(), layer("c", "Concate", "in", unroll_conn_type="Customized", unroll_steps=steps)]
    made = copies(layers)
    assert [made[f"{i}#c"] for i in range(3)] == [("0#in",), ("0#in", "1#in"), ("2#in", "0#in")]


@pytest.mark.parametrize(
    ("layers", "message", "path"),
    [
        ([{**DATA, "unroll_len": 3}], "records are read once", (0, "unroll_len")),
        (
            [DATA, columns(unroll_len=2), dense("out", "in", 3)],
            "step 2 would read step 2 of 'in', which has 2",
            (2, "srclayers", 0),
        ),
        (
            [DATA, columns(), layer("c", "Concate", "in", unroll_conn_type="Customized", unroll_steps=[[[0]]])],
            "for each of the 3 steps, got 1",
            (2, "unroll_steps"),
        ),
    ],
)
def test_edges_that_cannot_be(layers: list[dict[str, Any]], message: str, path: tuple[str | int, ...]) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        planned(layers)
    assert caught.value.problems[0].path == ("neuralnet", "layer", *path)


def test_records_are_read_once_unless_the_job_says_otherwise() -> None:
    data = {key: value for key, value in DATA.items() if key != "unroll_len"}
    assert planned([data, columns(), decay("h", "in")])["in"] == ("data",)


# -- copies put together -----------------------------------------------------------------------------


def test_a_whole_recurrent_net_becomes_rows() -> None:
    assert planned(recurrent_net()) == {
        "data": (),
        "in": ("data",),
        "h": ("in",),
        "out": ("h",),
        "loss": ("out", "in"),
    }


def test_nets_without_time_steps_stay_as_they_are() -> None:
    layers = [DATA, dense("fc", "data", 3)]
    net = unrolled(layers, 1).neuralnet
    nodes = layers_in_phase(net.layer, Phase.TRAIN)
    assert merge(unroll(nodes)) == nodes


def feedback_net() -> list[dict[str, Any]]:
    """Return a net whose steps read what the step before has put out."""
    return [
        DATA,
        columns(),
        dense("x", "in", D),
        layer("sum", "Sum", "x", "back", shift=[0, 1], unroll_conn_type=["OneToOne", "OneToOne"]),
        layer("y", "Tanh", "sum"),
        dense("back", "y", D),
        dense("out", "y", 3),
        layer("loss", "SoftmaxLoss", "out", "in"),
    ]


def test_a_circle_is_computed_step_by_step_and_the_rest_at_once() -> None:
    made = planned(feedback_net())
    assert made["slice(x)"] == ("x",)
    assert made["0#sum"] == ("slice(x)->0",) and made["1#sum"] == ("slice(x)->1", "0#back")
    assert made["concate(y)"] == ("split(0#y)->1", "split(1#y)->1", "split(2#y)->1")
    assert made["out"] == ("concate(y)",) and made["loss"] == ("out", "in")


# -- numbers -----------------------------------------------------------------------------------------


def ready(layers: list[dict[str, Any]], steps: int = T) -> NeuralNet:
    context = InputContext(dtype=np.dtype(np.float64), seed=3)
    net = make_net(unrolled(layers, steps), context, get_ops("numpy"))
    net.allocate()
    net.allocate_params()
    for param in net.owners:
        if param.conf.init:
            param.data[...] = initial_values(param.conf.init, param.name, param.shape, 3, param.dtype)
    return net


def train(net: NeuralNet) -> tuple[float, dict[str, Any]]:
    """Return loss and gradients of the first batch."""
    net.seek({"data": {"position": 0}})
    handed: list[str] = []
    BP(net, update=lambda step, param: handed.append(param.name)).train_one_batch(0)
    assert sorted(handed) == sorted(param.name for param in net.params)
    total, count = net.take_metrics()["loss"]
    return total / count, {param.name: param.grad.copy() for param in net.params}


def step_by_step(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> None:
    for kind in kinds:
        monkeypatch.setattr(LAYERS.find(kind), "speed", LAYERS.find(kind).speed.replace(time_foldable=False))


@pytest.mark.parametrize("kinds", [("Decay",), ("InnerProduct", "SoftmaxLoss"), ("Columns", "Decay", "SoftmaxLoss")])
def test_copies_give_what_rows_give(monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...]) -> None:
    loss, grads = train(ready(recurrent_net()))
    step_by_step(monkeypatch, *kinds)
    net = ready(recurrent_net())
    assert len(net.layers) > 5
    other_loss, other_grads = train(net)
    assert other_loss == pytest.approx(loss, rel=1e-12)
    assert grads.keys() == other_grads.keys()
    for name, grad in grads.items():
        np.testing.assert_allclose(other_grads[name], grad, rtol=1e-10, atol=1e-12)


def encoder_decoder() -> list[dict[str, Any]]:
    return [
        DATA,
        columns(),
        decay("enc", "in"),
        decay("dec", "in", "enc", unroll_conn_type=["OneToOne", "FirstToLast"]),
        dense("out", "dec", 3),
        layer("loss", "SoftmaxLoss", "out", "in"),
    ]


def net_with_plain_layers() -> list[dict[str, Any]]:
    """Return a net with layers whose gradients are not added to those of other time steps by themselves."""
    return [
        *recurrent_net()[:3],
        layer("gain", "Gain", "h", param=[{"name": "g", "init": UNIFORM}]),
        layer("norm", "BatchNorm", "gain", param=[{"name": "scale", "init": UNIFORM}]),
        dense("out", "norm", 3),
        recurrent_net()[4],
    ]


@pytest.mark.parametrize("kinds", [(), ("Decay",), ("InnerProduct",)])
@pytest.mark.parametrize("make", [recurrent_net, encoder_decoder, feedback_net, net_with_plain_layers])
def test_gradients_are_those_of_the_sum_of_the_losses(
    monkeypatch: pytest.MonkeyPatch, make: Any, kinds: tuple[str, ...]
) -> None:
    step_by_step(monkeypatch, *kinds)
    net = ready(make())
    _, grads = train(net)
    for param in net.params:
        for place in () if param.running_statistic else np.ndindex(param.shape):
            kept, sides = param.data[place], []
            for sign in (1, -1):
                param.data[place] = kept + sign * 1e-5
                sides.append(train(net)[0])
            param.data[place] = kept
            slope = T * (sides[0] - sides[1]) / 2e-5
            assert grads[param.name][place] == pytest.approx(slope, abs=1e-8)


def test_copies_share_the_memory_of_gradients_that_are_added_up() -> None:
    net = ready(net_with_plain_layers())
    shared = [memory for layer, memory in net._copies.memory(net.ops) if layer.conf_name == "gain"]
    assert len(shared) == T - 1
    assert len({memory.owner for memory in shared}) == 1
    alone, before = net.memory_of_layers()["gain"], net.name2layer("0#gain").features[0]
    assert alone == 8 * (2 * T * before.size * before.shape[0] + 3 * D)


def test_a_statistic_takes_the_average_of_its_time_steps() -> None:
    net = ready(net_with_plain_layers())
    _, grads = train(net)
    name = next(param.name for param in net.params if param.name.endswith(".mean"))
    means = [net.name2layer(f"{step}#gain").features[0].data.mean(axis=0) for step in range(T)]
    part = 1 - BMConf().momentum
    np.testing.assert_allclose(grads[name], -part * np.mean(means, axis=0), rtol=1e-10)


def test_only_the_last_step_counts_where_only_it_is_read() -> None:
    layers = [
        *recurrent_net()[:3],
        dense("out", "h", 3, unroll_len=1, unroll_conn_type="FirstToLast"),
        layer("loss", "SoftmaxLoss", "out", "data", unroll_len=1),
    ]
    net = ready(layers)
    assert [each.name for each in net.layers] == ["data", "in", "h", "slice(h)", "out", "loss"]
    loss, grads = train(net)
    net.param("a_h").data[0] += 1e-6
    assert (train(net)[0] - loss) / 1e-6 == pytest.approx(grads["a_h"][0], rel=1e-4)


def test_dropout_draws_the_same_for_copies_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [*recurrent_net()[:3], layer("drop", "Dropout", "h"), dense("out", "drop", 3), recurrent_net()[4]]
    loss, _ = train(ready(layers))
    step_by_step(monkeypatch, "Dropout")
    assert train(ready(layers))[0] == pytest.approx(loss, rel=1e-12)


def test_copies_show_one_figure() -> None:
    layers = [
        *recurrent_net()[:4],
        layer("loss", "SoftmaxLoss", "out", "data", unroll_conn_type=["OneToOne", "OneToAll"]),
    ]
    net = ready(layers)
    BP(net).train_one_batch(0)
    metrics = net.take_metrics()
    assert metrics.keys() == {"loss", "accuracy"} and metrics["loss"][1] == T


def test_a_merged_layer_is_described_with_its_steps() -> None:
    lines = ready(recurrent_net()).describe().splitlines()
    assert "3 steps x 4 x 2" in next(line for line in lines if line.startswith("h "))
