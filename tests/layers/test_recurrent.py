"""Recurrent layers: SINGA's numbers, gradients, all time steps at once or one by one, states from batch to batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS, Context, Feature, Layer
from singa_dask.net import NeuralNet, make_net
from singa_dask.ops import BFLOAT16, get_ops
from singa_dask.testing.case import Case, backward, forward, source, wire
from singa_dask.testing.layer_exam import check_gradients
from singa_dask.training import BP
from tests.selection import mostly_long

Array = np.ndarray[Any, Any]
BLOCKS = {"GRU": "gru_conf", "LSTM": "lstm_conf", "RNN": "rnn_conf"}
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("GRU", {}),
    ("LSTM", {}),
    *(("RNN", {"activation": name}) for name in ("TANH", "SIGMOID", "RELU")),
]
N, D, H = 3, 4, 5
CASES = [
    Case(kind, [(6, 4), (6, 1)], {block: {"dim_hidden": 4}}, n_steps=3, masked=True) for kind, block in BLOCKS.items()
]


def context(phase: Phase = Phase.TRAIN) -> Context:
    return Context(phase=phase, dtype=np.dtype(np.float64))


def recurrent(
    kind: str, sources: Sequence[Feature], n_steps: int = 1, where: Context | None = None, **more: Any
) -> Layer:
    """Return a layer of H units."""
    param = more.pop("param", [])
    return wire(kind, sources, where, n_steps, param=param, **{BLOCKS[kind]: {"dim_hidden": H, **more}})


def sigmoid(x: Array) -> Array:
    y: Array = 1 / (1 + np.exp(-x))
    return y


def one_step(kind: str, params: Sequence[Array], x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    """Return state and cell after a step, by the formulas of the documentation."""
    n = len(params) // 3
    a = [x @ w.T + b for w, b in zip(params[:n], params[2 * n :], strict=True)]
    u = [h @ w.T for w in params[n : 2 * n]]
    if kind == "RNN":
        return np.tanh(a[0] + u[0]), c
    if kind == "GRU":
        z, r = sigmoid(a[0] + u[0]), sigmoid(a[1] + u[1])
        return z * h + (1 - z) * np.tanh(a[2] + r * u[2]), c
    i, f, o = (sigmoid(a[k] + u[k]) for k in (0, 1, 3))
    c = f * c + i * np.tanh(a[2] + u[2])
    return o * np.tanh(c), c


# -- numbers of SINGA's test_gru_layer -----------------------------------------------------------------


def golden(grad: float) -> tuple[Layer, Layer]:
    """Return two steps of a GRU whose weights are all one half, after a backward pass of the second."""
    x1, x2 = (source((2, 4)) for _ in range(2))
    x1.data[...] = [[0, 0, 0, 1], [0, 0, 1, 0]]
    x2.data[...] = [[0, 1, 0, 0], [1, 0, 0, 0]]
    layers: list[Layer] = []
    for x in (x1, x2):
        sources = [x, layers[0].features[0]] if layers else [x]
        layer = wire("GRU", sources, gru_conf={"dim_hidden": 2})
        for param in layer.params:
            param.data[...] = 0.5
        forward(layer)
        layers.append(layer)
    layers[1].features[0].grad[...] = grad
    backward(layers[1])
    return layers[0], layers[1]


def test_gru_gives_the_numbers_of_singas_test() -> None:
    one, two = golden(1)
    np.testing.assert_allclose(one.features[0].data, 0.204824, atol=1e-6)
    np.testing.assert_allclose(two.features[0].data, 0.346753, atol=1e-6)


@pytest.mark.parametrize("grad", [1, 2])
def test_gru_gives_singas_gradients_and_its_mended_one_of_the_state(grad: int) -> None:
    one, two = golden(grad)
    w_z, w_r, w_c, u_z, u_r, u_c, b_z, b_r, b_c = (param.grad / grad for param in two.params)
    wanted = [(w_z, -0.1091975), (w_r, 0.00274224), (w_c, 0.07545507)]
    for found, value in wanted:
        np.testing.assert_allclose(found, np.full((2, 1), value) * [1, 1, 0, 0], atol=1e-6)
    wanted = [(b_z, -0.218395), (b_r, 0.00548448), (b_c, 0.15091014)]
    wanted += [(u_z, -0.04473258), (u_r, 0.00112335), (u_c, 0.02378163)]
    wanted += [(two.sources[0].grad / grad, -0.03100019), (one.features[0].grad / grad, 0.72098037)]
    for found, value in wanted:
        np.testing.assert_allclose(found, value, atol=1e-6)


# -- formulas and gradients -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("given", [False, True])
def test_steps_follow_the_formulas(kind: str, given: bool) -> None:
    n_steps = 3
    sources = [source((n_steps * N, D)), source((N, H), seed=1)][: 1 + given]
    layer = recurrent(kind, sources, n_steps)
    forward(layer)
    h, c = sources[1].data if given else np.zeros((N, H)), np.zeros((N, H))
    params = [param.data for param in layer.params]
    for t, x in enumerate(np.split(sources[0].data, n_steps)):
        h, c = one_step(kind, params, x, h, c)
        np.testing.assert_allclose(layer.features[0].data[t * N : (t + 1) * N], h, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "more"), KINDS)
@pytest.mark.parametrize("n_steps", mostly_long([3, 1], 2))
@pytest.mark.parametrize("given", [False, True])
def test_gradients(kind: str, more: dict[str, Any], n_steps: int, given: bool) -> None:
    sources = [source((n_steps * N, D)), source((N, H), seed=1)][: 1 + given]
    check_gradients(recurrent(kind, sources, n_steps, **more))


def test_gradients_without_biases_of_images_and_where_the_input_has_none() -> None:
    for kind in BLOCKS:
        check_gradients(recurrent(kind, [source((2 * N, 2, 2, 3))], 2, bias_term=False))
        check_gradients(recurrent(kind, [source((2 * N, D), grad=False)], 2))


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("bias", [False, True])
def test_places_of_ones_do_as_one_hot_rows(kind: str, bias: bool) -> None:
    numbers = np.array([0, 3, 3, 1, 0, 2])
    found = []
    for by_place in (False, True):
        x = source((len(numbers), D), grad=False)
        x.data[...] = np.eye(D)[numbers]
        if by_place:
            x._data, x.one_hot_index = None, numbers
        layer = recurrent(kind, [x], 2, bias_term=bias)
        forward(layer)
        layer.features[0].grad[...] = np.random.default_rng(3).normal(size=layer.features[0].shape)
        backward(layer)
        first = [layer.features[0].data.copy(), *(param.grad.copy() for param in layer.params)]
        forward(layer)
        backward(layer, adds=True)
        found.append([*first, *(param.grad for param in layer.params)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


# -- params --------------------------------------------------------------------------------------------------


def test_params_are_all_w_all_u_all_b() -> None:
    layer = recurrent("GRU", [source((N, D))])
    names = ["W_z", "W_r", "W_c", "U_z", "U_r", "U_c", "b_z", "b_r", "b_c"]
    assert [param.name for param in layer.params] == [f"layer.{name}" for name in names]
    assert [param.shape for param in layer.params] == [(H, D)] * 3 + [(H, H)] * 3 + [(H,)] * 3
    layer = recurrent("LSTM", [source((N, D))], bias_term=False)
    names = ["W_i", "W_f", "W_g", "W_o", "U_i", "U_f", "U_g", "U_o"]
    assert [param.name for param in layer.params] == [f"layer.{name}" for name in names]
    assert [param.name for param in recurrent("RNN", [source((N, D))]).params] == ["layer.W", "layer.U", "layer.b"]


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_list_of_all_weights_and_no_bias_means_no_biases_as_in_singa(kind: str) -> None:
    n = GATES[kind]
    listed = [{"name": f"p{k}"} for k in range(3 * n)]
    assert len(recurrent(kind, [source((N, D))], param=listed[: 2 * n]).params) == 2 * n
    assert len(recurrent(kind, [source((N, D))], param=listed).params) == 3 * n
    assert len(recurrent(kind, [source((N, D))], param=listed[:1]).params) == 3 * n
    with pytest.raises(ConfigError, match="there is no 'b"):
        recurrent(kind, [source((N, D))], param=listed, bias_term=False)


def test_what_cannot_be_is_refused() -> None:
    sources = [source((4, D)), source((4, H))]
    with pytest.raises(ConfigError, match=r"the first state has shape \(4, 5\), expected \(2, 5\)"):
        recurrent("GRU", sources, 2)
    with pytest.raises(ConfigError, match=r"'src1' gives the first state\. Remove that source, or carry_state"):
        recurrent("LSTM", sources, carry_state=True)
    with pytest.raises(ConfigError, match=r"does not compute in bf16\. Use precision: float32 or float64"):
        recurrent("RNN", [source((4, D))], where=Context(dtype=BFLOAT16))
    with pytest.raises(ConfigError, match=r"gru_conf\.carry_state: with reverse: true, no batch continues"):
        recurrent("GRU", [source((4, D))], 2, carry_state=True, reverse=True)
    with pytest.raises(ConfigError, match="needs this block, with dim_hidden"):
        wire("LSTM", [source((4, D))])


# -- states from batch to batch ----------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.TRAIN, Phase.VALIDATION, Phase.TEST])
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_carried_state_makes_one_stream_of_batches(kind: str, phase: Phase) -> None:
    whole, part = source((6 * N, D)), source((2 * N, D))
    long = recurrent(kind, [whole], 6, context(phase))
    short = recurrent(kind, [part], 2, context(phase), carry_state=True)
    forward(long)
    wanted = np.split(long.features[0].data, 3)
    for _ in range(2):
        short.context.stream_start = True
        for x, y in zip(np.split(whole.data, 3), wanted, strict=True):
            part.data[...] = x
            forward(short)
            np.testing.assert_allclose(short.features[0].data, y, rtol=1e-12, atol=1e-12)
            short.context.stream_start = False


@pytest.mark.parametrize("kind", BLOCKS)
def test_no_gradient_goes_into_the_batch_before(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    layer = recurrent(kind, [source((2 * N, D))], 2, carry_state=True)
    forward(layer)
    kept = tuple(values.copy() for values in layer.state or ())
    # else each pass of the check would go on from the one before
    monkeypatch.setattr(layer, "carries", False)
    layer.state = kept
    check_gradients(layer)


def test_without_carry_state_a_batch_starts_at_zeros() -> None:
    layer = recurrent("LSTM", [source((2 * N, D))], 2)
    forward(layer)
    once = layer.features[0].data.copy()
    forward(layer)
    np.testing.assert_array_equal(layer.features[0].data, once)


# -- in a net: merged, or a copy for each time step ----------------------------------------------------------------


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text").write_text("".join(np.random.default_rng(0).choice(list("abcde"), 300)))
    (tmp_path / "vocab").write_text("abcde")
    return tmp_path


def job(text: Path, kinds: Sequence[str], n_steps: int, carry: bool, dense: bool) -> JobConf:
    """Return a job of stacked recurrent layers, the first of them also read by a loss of its own."""
    data = {"path": str(text / "text"), "vocab_path": str(text / "vocab"), "batchsize": N, "unroll_len": n_steps}
    init = {"init": {"type": "Uniform", "low": -0.9, "high": 0.9}}
    layers: list[dict[str, Any]] = [
        {"name": "data", "type": "CharRNN", "char_rnn_conf": data, "unroll_len": 1},
        {"name": "label", "type": "RNNLabel", "srclayers": ["data"]},
        {"name": "onehot", "type": "OneHot", "srclayers": ["data"], "onehot_conf": {"vocab_size": 5}},
    ]
    if dense:
        layers.append({"name": "inner", "type": "InnerProduct", "srclayers": ["onehot"], "param": [init, init],
                       "innerproduct_conf": {"num_output": 4}})  # fmt: skip
    for k, kind in enumerate(kinds):
        block = {"dim_hidden": 4 + k, "carry_state": carry}
        layers.append({"name": f"rnn{k}", "type": kind, "srclayers": [layers[-1]["name"]], BLOCKS[kind]: block,
                       "param": [init] * (3 * GATES[kind])})  # fmt: skip
    for k, read in enumerate(["rnn0", layers[-1]["name"]]):
        layers.append({"name": f"ip{k}", "type": "InnerProduct", "srclayers": [read], "param": [init, init],
                       "innerproduct_conf": {"num_output": 5}})  # fmt: skip
        layers.append({"name": f"loss{k}", "type": "SoftmaxLoss", "srclayers": [f"ip{k}", "label"]})
    return JobConf.model_validate({
        "name": "job", "train_steps": 1, "train_one_batch": {"alg": "BPTT"},
        "updater": {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.1}},
        "neuralnet": {"layer": layers, "unroll_len": n_steps},
    })  # fmt: skip


def built(job: JobConf) -> NeuralNet:
    net = make_net(job, context(), get_ops("numpy"))
    net.allocate()
    net.allocate_params()
    for k, param in enumerate(net.owners):
        param.data[...] = np.random.default_rng(k).uniform(-0.9, 0.9, param.shape)
    return net


@pytest.mark.pairs
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("carry", [False, True])
@pytest.mark.parametrize("kinds", [["GRU", "GRU"], ["LSTM", "LSTM"], ["RNN", "LSTM", "GRU"]])
def test_copies_and_merged_layers_are_the_same(
    text: Path, monkeypatch: pytest.MonkeyPatch, kinds: list[str], carry: bool, dense: bool
) -> None:
    wanted = job(text, kinds, 4, carry, dense)
    merged = built(wanted)
    for kind in set(kinds):
        monkeypatch.setattr(LAYERS.find(kind), "speed", LAYERS.find(kind).speed.replace(time_foldable=False))
    copies = built(wanted)
    assert "rnn0" in {layer.name for layer in merged.layers}
    assert {"0#rnn0", "3#rnn0"} <= {layer.name for layer in copies.layers}
    for step in range(2):
        for net in (merged, copies):
            BP(net).train_one_batch(step)
        for one, other in zip(merged.owners, copies.owners, strict=True):
            assert one.name == other.name
            np.testing.assert_allclose(one.grad, other.grad, rtol=1e-10, atol=1e-12, err_msg=one.name)


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("kind", BLOCKS)
def test_an_encoder_gives_a_decoder_its_first_state(
    text: Path, monkeypatch: pytest.MonkeyPatch, kind: str, merge: bool
) -> None:
    given = job(text, [kind, kind], 4, False, False).model_dump(exclude_unset=True)
    layers = given["neuralnet"]["layer"]
    second = next(layer for layer in layers if layer["name"] == "rnn1")
    second |= {"srclayers": ["onehot", "rnn0"], "unroll_conn_type": ["OneToOne", "FirstToLast"]}
    second[BLOCKS[kind]]["dim_hidden"] = 4
    monkeypatch.setattr(LAYERS.find(kind), "speed", LAYERS.find(kind).speed.replace(time_foldable=merge))
    net = built(JobConf.model_validate(given))
    algorithm = BP(net)
    algorithm.train_one_batch(0)
    grads = {param.name: param.grad.copy() for param in net.owners}

    def objective() -> float:
        net.name2layer("data").seek({**net.name2layer("data").cursor(), "offset": 0})  # type: ignore[dict-item]
        net.take_metrics()
        algorithm.forward(Phase.TRAIN | Phase.FORWARD, lambda _: None)
        figures = net.take_metrics()
        return sum(4 * total / count for name, (total, count) in figures.items() if name.endswith("loss"))

    for param in net.owners:
        values, place = param.data.reshape(-1), param.size // 2
        kept, sides = values[place], []
        for sign in (1, -1):
            values[place] = kept + sign * 1e-5
            sides.append(objective())
        values[place] = kept
        assert (sides[0] - sides[1]) / 2e-5 == pytest.approx(grads[param.name].reshape(-1)[place], abs=1e-7)
