"""MultiHeadAttention: its formula, whole and step by step, and what it refuses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS, Context, Feature, Layer, LayerSite
from singa_dask.net import make_net, wiring
from singa_dask.testing.case import CPU, Case, forward, results, source, wire
from singa_dask.testing.layer_exam import check_gradients
from tests.net.feed import Feed
from tests.net.jobs import job
from tests.net.jobs import layer as net_layer
from tests.net.recurrent import Columns

T, N, D, H = 3, 2, 6, 2
KEY = "multiheadattention_conf"
CASES = [
    Case("MultiHeadAttention", [(T * N, D)], {KEY: {"num_heads": H}}, n_steps=T),
    Case("MultiHeadAttention", [(4 * N, D)], {KEY: {"num_heads": 3, "causal": True}}, n_steps=4),
    Case("MultiHeadAttention", [(T * N, D)], {KEY: {"num_heads": 1, "causal": True, "bias_term": False}}, n_steps=T),
    Case("MultiHeadAttention", [(T * N, D), (T * N, 1)], {KEY: {"num_heads": H}}, n_steps=T, masked=True),
    Case("MultiHeadAttention", [(T * N, D), (T * N, 1)], {KEY: {"num_heads": H, "causal": True}}, T, masked=True),
    Case("MultiHeadAttention", [(T * N, D), (5 * N, D)], {KEY: {"num_heads": H}}, T, source_steps=(T, 5)),
    Case(
        "MultiHeadAttention",
        [(T * N, D), (2 * N, D), (2 * N, 1)],
        {KEY: {"num_heads": 1, "causal": True, "bias_term": False}},
        T,
        source_steps=(T, 2, 2),
        masked=True,
    ),
    Case("MultiHeadAttention", [(N, D), (5 * N, D)], {KEY: {"num_heads": 3}}, source_steps=(1, 5)),
    Case("MultiHeadAttention", [(T * N, 8)], {KEY: {"num_heads": H, "causal": True, "rotary_base": 10.0}}, T),
    Case("MultiHeadAttention", [(T * N, D)], {KEY: {"num_heads": H, "dropout_ratio": 0.4}}, n_steps=T),
    Case("MultiHeadAttention", [(T * N, D), (T * N, 1)], {KEY: {"num_heads": H, "dropout_ratio": 0.4}}, T, masked=True),
]


def made(x: Any, n_steps: int, context: Context | None = None, **block: Any) -> Layer:
    return wire("MultiHeadAttention", [x], context, n_steps, **{KEY: {"num_heads": H, **block}})


def attention(layer: Layer, causal: bool) -> Any:
    """Compute the formula, sequence by sequence and head by head."""
    w_in, w_out, b_in, b_out = (param.data for param in layer.params)
    x = layer.sources[0].data.reshape(-1, N, D)
    y = np.empty_like(x)
    for n in range(N):
        q, k, v = np.split(x[:, n] @ w_in.T + b_in, 3, axis=1)
        heads = []
        for h in range(H):
            own = slice(h * D // H, (h + 1) * D // H)
            scores = q[:, own] @ k[:, own].T / np.sqrt(D // H)
            if causal:
                scores[np.triu_indices(len(scores), 1)] = -np.inf
            p = np.exp(scores)
            heads.append(p / p.sum(axis=1, keepdims=True) @ v[:, own])
        y[:, n] = np.concatenate(heads, axis=1) @ w_out.T + b_out
    return y.reshape(-1, D)


@pytest.mark.parametrize("causal", [False, True])
def test_formula(causal: bool) -> None:
    layer = made(source((T * N, D)), T, causal=causal)
    forward(layer)
    np.testing.assert_allclose(layer.features[0].data, attention(layer, causal))


def test_params() -> None:
    names = ["qkv_weight", "output_weight", "qkv_bias", "output_bias"]
    shapes = [(3 * D, D), (D, D), (3 * D,), (D,)]
    layer = made(source((T * N, D)), T)
    assert [(param.name, param.shape) for param in layer.params] == [
        (f"layer.{name}", shape) for name, shape in zip(names, shapes, strict=True)
    ]
    assert len(made(source((T * N, D)), T, bias_term=False).params) == 2
    # as if queries, keys and values had a matrix each
    inits = [param.initial for param in layer.params]
    assert inits[0] == inits[1] and inits[0] is not None and inits[0].type == "Uniform"


def test_a_causal_one_does_not_see_what_comes() -> None:
    x = source((T * N, D))
    layer = made(x, T, causal=True)
    forward(layer)
    before = layer.features[0].data.copy()
    x.data[2 * N :] += 1
    forward(layer)
    np.testing.assert_array_equal(layer.features[0].data[: 2 * N], before[: 2 * N])
    assert (layer.features[0].data[2 * N :] != before[2 * N :]).any()


@pytest.mark.parametrize("causal", [False, True])
def test_a_query_without_a_key_gets_the_bias(causal: bool) -> None:
    mask = Feature((T * N, 1), bool, requires_grad=False)
    mask.data = np.array([[False, True], [False, True], [False, False]]).reshape(-1, 1)
    x = source((T * N, D))
    layer = wire("MultiHeadAttention", [x, mask], n_steps=T, **{KEY: {"num_heads": H, "causal": causal}})
    arrays = results(layer)
    y, gx = (arrays[name].reshape(T, N, D) for name in ("output 0", "the gradient of source 0"))
    np.testing.assert_array_equal(y[:, 0], np.broadcast_to(layer.params[3].data, (T, D)))
    np.testing.assert_array_equal(gx[:, 0], 0)
    assert np.isfinite(gx).all() and (gx[0, 1] != 0).all()
    # what is padding has no part in anything
    x.data.reshape(T, N, D)[2, 1] += 100
    np.testing.assert_array_equal(results(layer)["output 0"].reshape(T, N, D)[:2], y[:2])


def test_time_steps_that_another_sequence_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in (("Feed", Feed), ("Columns", Columns)):
        monkeypatch.setitem(LAYERS._classes, name, kind)
    layers = [
        *(net_layer(f"data{n}", "Feed", user_conf={"shape": [N, n * D], "classes": 3}) for n in (T, 5)),
        net_layer("numbers", "Feed", user_conf={"shape": [N, 5], "classes": 3}),
        net_layer("x", "Columns", f"data{T}", user_conf={"width": D}, unroll_len=T),
        net_layer("memory", "Columns", "data5", user_conf={"width": D}, unroll_len=5),
        net_layer("mask", "PaddingMask", "numbers", unroll_len=5),
        net_layer("read", "MultiHeadAttention", "x", "memory", "mask", unroll_len=T, **{KEY: {"num_heads": H}}),
    ]
    read = make_net(job(layers), Context(), CPU).layers[-1]
    assert [source.n_steps for source in read.sources] == [T, 5, 5] and read.site.n_steps == T


def test_dropout_draws_by_the_row_in_the_groups_batch_in_training_only() -> None:
    x = source((T * 4, D))
    masks = []
    for n_workers in (1, 2, 4):
        parts = []
        for worker in range(n_workers):
            context = Context(seed=3, step=7, worker=worker, n_workers=n_workers, dtype=np.dtype(np.float64))
            layer = made(source((T * 4 // n_workers, D)), T, context, dropout_ratio=0.4)
            forward(layer)
            parts.append(layer.dropout_mask.data)  # type: ignore[attr-defined]
        masks.append(np.concatenate(parts))
    assert (masks[0] == masks[1]).all() and (masks[0] == masks[2]).all() and 0 < (masks[0] == 0).mean() < 1
    for phase in (Phase.TEST, Phase.VALIDATION):
        plain, dropping = (
            made(x, T, Context(phase=phase, dtype=np.dtype(np.float64)), dropout_ratio=ratio) for ratio in (0.0, 0.4)
        )
        forward(plain)
        forward(dropping)
        assert (plain.features[0].data == dropping.features[0].data).all() and "dropout mask" in dropping.buffers
        assert dropping.buffers["dropout mask"].data_if_needed is None


def test_records_need_no_gradient() -> None:
    check_gradients(made(source((T * N, D), grad=False), T))


@pytest.mark.parametrize("base", [None, 10.0])
@pytest.mark.parametrize("n_at_once", [1, 2, 7])
def test_keys_and_values_are_kept_from_batch_to_batch(n_at_once: int, base: float | None) -> None:
    n_steps = 14
    block = {"causal": True, "rotary_base": base, "num_heads": 3}
    x = source((n_steps * N, D), grad=False)
    whole = made(x, n_steps, **block)
    forward(whole)
    context = Context(phase=Phase.TEST, dtype=np.dtype(np.float64))
    few = source((n_at_once * N, D), grad=False)
    layer = made(few, n_at_once, context, carry_state=True, **block)
    for own, shared in zip(layer.params, whole.params, strict=True):
        own.share(shared)
    for _ in range(2):
        context.stream_start = True
        for first in range(0, n_steps, n_at_once):
            rows = slice(first * N, (first + n_at_once) * N)
            CPU.copy(x.data[rows], out=few.data)
            forward(layer)
            context.stream_start = False
            np.testing.assert_allclose(layer.features[0].data, whole.features[0].data[rows], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "n_steps", "block", "words"),
    [
        ((6, 2, 3, 1), T, {}, "srclayers: 'src0' gives records of (2, 3, 1), expected rows."),
        ((6, 5), T, {}, f"{KEY}.num_heads: expected a number that divides the 5 features, got 2."),
        (
            (6, 6),
            T,
            {"carry_state": True},
            f"{KEY}.carry_state: carry_state needs causal: true, as later batches are not known.",
        ),
        ((6, 6), T, {"carry_state": True, "causal": True}, "not carried from batch to batch in training"),
        ((6, 6), 1, {}, "unroll_len: there is only one time step"),
        (
            (6, 6),
            T,
            {"rotary_base": 10.0},
            f"{KEY}.rotary_base: expected an even number of features in each head, got 3.",
        ),
    ],
)
def test_refuses(shape: tuple[int, ...], n_steps: int, block: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        made(source(shape), n_steps, **block)


@pytest.mark.parametrize(
    ("shapes", "block", "words"),
    [
        ([(4, D)], {}, "srclayers[1]: there is only one time step"),
        ([(5 * N, 4)], {}, f"srclayers[1]: the source of keys and values has shape (10, 4), expected (10, {D})"),
        ([(5 * N, D)], {"rotary_base": 9.0}, "rotary_base: distances between two sequences cannot be encoded."),
        (
            [(5 * N, D), (5 * N, D)],
            {},
            "srclayers: MultiHeadAttention takes 1 to 2 sources, and optionally one Padding",
        ),
    ],
)
def test_refuses_other_keys(shapes: list[tuple[int, ...]], block: dict[str, Any], words: str) -> None:
    sources = [source(shape) for shape in shapes]
    for each in sources:
        each.n_steps = 5 if each.shape[0] == 5 * N else 1
    with pytest.raises(ConfigError, match=re.escape(words)):
        wire("MultiHeadAttention", [source((T * N, D)), *sources], n_steps=T, **{KEY: {"num_heads": H, **block}})


def test_refuses_to_be_computed_step_by_step() -> None:
    layer = made(source((T * N, D)), T)
    copy = LAYERS.find("MultiHeadAttention")(
        layer.conf.model_copy(update={"name": "1#layer"}), layer.context, LayerSite("layer", first_step=1)
    )
    with pytest.raises(ConfigError, match="needs all time steps at once, but here they are computed one by one"):
        wiring.wire(copy, [source((N, D))], CPU)


@pytest.mark.parametrize(
    "edges",
    [{"unroll_conn_type": ["Customized"], "unroll_steps": [[[0], [2], [1]]]}, {"unroll_conn_type": ["FirstToLast"]}],
)
def test_a_net_whose_time_steps_wait_for_each_other_is_refused(
    monkeypatch: pytest.MonkeyPatch, edges: dict[str, Any]
) -> None:
    for name, kind in (("Feed", Feed), ("Columns", Columns)):
        monkeypatch.setitem(LAYERS._classes, name, kind)
    layers = [
        net_layer("data", "Feed", unroll_len=1, user_conf={"shape": [N, T * D]}),
        net_layer("in", "Columns", "data", user_conf={"width": D}),
        net_layer("read", "MultiHeadAttention", "in", **{KEY: {"num_heads": H}}, **edges),
    ]
    given = job([], neuralnet={"layer": layers, "unroll_len": T})
    with pytest.raises(ConfigError) as caught:
        make_net(given, Context(), CPU)
    problem = caught.value.problems[0]
    assert problem.path == ("neuralnet", "layer", 2, "srclayers")
    assert "needs all time steps at once" in problem.message
