"""Recurrent nets and nets of text, partitioned: they compute what the whole net does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS
from tests.net.group import Group
from tests.net.jobs import UNIFORM, dense, job, layer
from tests.net.test_partition import DIMS, compare, placed
from tests.selection import few_examples, mostly_long

Layers = list[dict[str, Any]]

BLOCKS = {"GRU": ("gru_conf", 3), "LSTM": ("lstm_conf", 4), "RNN": ("rnn_conf", 1)}
N, N_STEPS, VOCAB = 12, 3, 27
EVERY_STEP = {"unroll_conn_type": ["OneToAll"]}
WHOLE, PARTS = {"partition_dim": -1}, {"partition_dim": 1}


def text(n_rows: int = N, n_steps: int = N_STEPS) -> Layers:
    data = {
        "path": "tests/gold/data/small_text.txt",
        "vocab_path": "tests/gold/data/small_vocab.txt",
        "batchsize": n_rows,
        "unroll_len": n_steps,
    }
    return [
        layer("data", "CharRNN", unroll_len=1, char_rnn_conf=data),
        layer("in", "OneHot", "data", onehot_conf={"vocab_size": VOCAB}, **EVERY_STEP),
        layer("label", "RNNLabel", "data", **EVERY_STEP),
    ]


def recurrent(name: str, kind: str, source: str, dim: int = 10, **more: Any) -> dict[str, Any]:
    block, n_gates = BLOCKS[kind]
    params = [{"name": f"{name}_{k}", "init": UNIFORM} for k in range(3 * n_gates)]
    state = more.pop("state", [])
    return layer(
        name, kind, source, *state, param=params, **{block: {"dim_hidden": dim, **more.pop("block", {})}, **more}
    )


def end(source: str) -> Layers:
    return [dense("ip", source, VOCAB), layer("loss", "SoftmaxLoss", "ip", "label")]


def one(kind: str) -> Layers:
    return [*text(), recurrent("h", kind, "in"), *end("h")]


def stacked() -> Layers:
    return [
        *text(),
        recurrent("h1", "GRU", "in"),
        recurrent("h2", "LSTM", "h1", 6),
        layer("act", "Tanh", "h2"),
        recurrent("h3", "RNN", "act", 5),
        layer("both", "Concate", "h3", "h1", concate_conf={"concate_dim": 1}),
        *end("both"),
    ]


def encoder_decoder(kind: str) -> Layers:
    given: dict[str, Any] = {"state": ["encoder"], "unroll_conn_type": ["OneToOne", "FirstToLast"]}
    return [*text(), recurrent("encoder", kind, "in"), recurrent("decoder", kind, "in", **given), *end("decoder")]


def embedded() -> Layers:
    """Return a net whose characters have the same vectors where they are read and where they are told."""
    data, _, label = text()
    block = {"vocab_size": VOCAB, "feature_dim": 7}
    table = [{"name": "table", "init": UNIFORM, "share_gradient": "sum"}]
    layers = [data, label, layer("in", "Embedding", "data", embedding_conf=block, param=table, **EVERY_STEP)]
    tied = dense("ip", "h", VOCAB)
    tied["param"][0] = {"name": "w_ip", "share_from": "table"}
    return [*layers, recurrent("h", "GRU", "in", 7), tied, layer("loss", "SoftmaxLoss", "ip", "label")]


NETS: dict[str, Callable[[], Layers]] = {
    "GRU": lambda: one("GRU"),
    "LSTM": lambda: one("LSTM"),
    "RNN": lambda: one("RNN"),
    "stacked": stacked,
    "encoder-decoder": lambda: encoder_decoder("GRU"),
    "encoder-decoder of LSTMs": lambda: encoder_decoder("LSTM"),
    "embedded": embedded,
}


@pytest.mark.pairs
@pytest.mark.parametrize("n_workers", [2, 4])
@pytest.mark.parametrize("where", DIMS, ids=str)
@pytest.mark.parametrize("name", mostly_long(NETS, 2))
def test_all_layers_alike(name: str, where: dict[str, Any], n_workers: int) -> None:
    compare([{**each, **where} for each in NETS[name]()], NETS[name](), n_workers, N_STEPS)


@pytest.mark.parametrize("name", NETS)
@few_examples(1)
@given(data=st.data(), n_workers=st.integers(2, 4))
def test_any_mixture(name: str, data: st.DataObject, n_workers: int) -> None:
    layers = NETS[name]()
    compare(placed(layers, data, n_workers), layers, n_workers, N_STEPS)


@pytest.mark.parametrize("kind", mostly_long(BLOCKS, 3))
def test_parts_of_a_recurrent_layer_compute_step_by_step(kind: str) -> None:
    layers = one(kind)
    layers[3] |= PARTS
    group = compare(layers, one(kind), 4, N_STEPS)
    n_gates = BLOCKS[kind][1]
    for net, units in zip(group.nets, [2, 3, 2, 3], strict=True):
        shapes = [(units, VOCAB)] * n_gates + [(units, 10)] * n_gates + [(units,)] * n_gates
        copies = [each for each in net.layers if each.conf_name == "h"]
        assert [each.site.n_steps for each in copies] == [1] * N_STEPS
        assert [param.shape for param in copies[0].params] == shapes
        assert copies[-1].params == copies[0].params


@pytest.mark.parametrize("where", [{}, WHOLE, {"location": 1}], ids=str)
def test_whole_units_compute_all_steps_at_once(where: dict[str, Any]) -> None:
    layers = one("GRU")
    layers[3] |= where
    group = compare([{**layers[0], **WHOLE}, *layers[1:]], one("GRU"), 2, N_STEPS)
    assert {each.site.n_steps for net in group.nets for each in net.layers if each.conf_name == "h"} == {N_STEPS}


def test_a_table_is_cut_by_columns_and_a_tied_one_kept_whole() -> None:
    layers = [{**each, **PARTS} for each in embedded()]
    tied = compare(layers, embedded(), 2, N_STEPS)
    assert [[param.shape for param in net.name2layer(f"in@{k}").params] for k, net in enumerate(tied.nets)] == [
        [(VOCAB, 3)],
        [(VOCAB, 4)],
    ]
    assert {param.memory_shape for net in tied.nets for param in net.owners if param.name == "table"} == {(VOCAB, 7)}
    del layers[4]["param"][0]["share_from"]
    layers[4]["param"][0]["init"] = UNIFORM
    whole = [{key: value for key, value in each.items() if key != "partition_dim"} for each in layers]
    group = compare(layers, whole, 2, N_STEPS)
    assert [param.memory_shape for net in group.nets for param in net.owners if param.name == "table"] == [
        (VOCAB, 3),
        (VOCAB, 4),
    ]


def test_rows_of_ones_are_not_made_where_their_numbers_do() -> None:
    group = compare([{**each, **PARTS} for each in one("GRU")], one("GRU"), 2, N_STEPS)
    for worker, net in enumerate(group.nets):
        rows = net.name2layer(f"in@{worker}").features[0]
        assert not rows.has_data and rows.one_hot_index is not None
        # what is on the way has characters and labels, no rows of ones
    assert not [net for net in group.nets for each in net.layers if each.name.startswith("bridge_src(in")]


@pytest.mark.parametrize("n_workers", mostly_long([3, 2], 2))
def test_test_nets_are_partitioned_too(n_workers: int) -> None:
    whole, parted = (job([], neuralnet={"layer": each, "unroll_len": N_STEPS}) for each in layers_of(stacked()))
    alone, group = Group(whole, 1), Group(parted, n_workers)
    group.train(2), alone.train(2)
    figures = alone.test(whole)
    assert group.test(parted) == {name: pytest.approx(figure, rel=1e-10) for name, figure in figures.items()}


def layers_of(layers: Layers) -> tuple[Layers, Layers]:
    return layers, [{**each, **PARTS} for each in layers]


# -- states from batch to batch ------------------------------------------------------------------------


@pytest.mark.pairs
@pytest.mark.parametrize("kind", mostly_long(BLOCKS, 3))
@pytest.mark.parametrize("where", [{"partition_dim": 0}, WHOLE, {"location": 1}, {"location": 2}], ids=str)
@pytest.mark.parametrize("reader", [0, 1])
def test_carried_states_are_dropped_where_the_text_starts_anew(kind: str, where: dict[str, Any], reader: int) -> None:
    # 62 characters a row: the fourth batch starts anew
    n_steps = 25
    layers = [*text(96, n_steps), recurrent("h1", kind, "in", block={"carry_state": True}, **where)]
    layers += [recurrent("h2", kind, "h1", block={"carry_state": True}), *end("h2")]
    read = [{**layers[0], "location": reader}, *({**each, **WHOLE} for each in layers[1:3]), *layers[3:]]
    group = compare(read, layers, 3, n_steps, n_steps=4)
    assert group.nets[reader].cursors()["data"]["offset"] == n_steps


@pytest.mark.parametrize("kind", BLOCKS)
def test_parts_do_not_carry_states(kind: str) -> None:
    layers = [*text(), recurrent("h", kind, "in", block={"carry_state": True}, **PARTS), *end("h")]
    with pytest.raises(ConfigError, match=r"carry_state cannot be partitioned by features\. Use 0 or -1") as found:
        Group(job([], neuralnet={"layer": layers, "unroll_len": N_STEPS}), 2)
    assert found.value.problems[0].path == ("neuralnet", "layer", 3, "partition_dim")
    Group(job([], neuralnet={"layer": layers, "unroll_len": N_STEPS}), 1)


# -- copies ------------------------------------------------------------------------------------------------


def test_copies_add_their_gradients_in_order_whatever_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("InnerProduct", "RNNLabel", "SoftmaxLoss"):
        monkeypatch.setattr(LAYERS.find(kind), "speed", LAYERS.find(kind).speed.replace(time_foldable=False))
    layers = one("GRU")
    layers[4] |= {"location": 1}
    placed = [{"location": 0, **each} for each in layers]
    whole, parted = (job([], neuralnet={"layer": each, "unroll_len": N_STEPS}) for each in (one("GRU"), placed))
    wanted = Group(whole, 1).train(3)
    for seed in range(4):
        group = Group(parted, 2, late=np.random.default_rng(seed))
        np.testing.assert_allclose(group.train(3), wanted, rtol=1e-10)


@pytest.mark.parametrize("name", mostly_long(["encoder-decoder of LSTMs", "stacked"], 2))
def test_steps_wait_for_each_other_whatever_comes_first(name: str) -> None:
    layers = [{**each, **PARTS} for each in NETS[name]()]
    parted = job([], neuralnet={"layer": layers, "unroll_len": N_STEPS})
    prompt = Group(parted, 3).train(2)
    for seed in range(2):
        assert Group(parted, 3, late=np.random.default_rng(seed)).train(2) == prompt
