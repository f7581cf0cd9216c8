"""Converters to ONNX: layers of texts and other sequences. Their rows (T N, D) are those of the first step first."""

from __future__ import annotations

import numpy as np

from singa_dask.exports.converters import ONNX_CONVERTERS, refuse_carried, refuse_single_steps
from singa_dask.exports.onnx_graph import BATCH, OnnxGraph
from singa_dask.layers import Param
from singa_dask.layers.cells import GRU, LSTM, RNN, RNNConf
from singa_dask.layers.embedding import Embedding, Numbers, OneHot, PositionalEmbedding
from singa_dask.layers.multi_head_attention import MultiHeadAttention
from singa_dask.layers.recurrent import Recurrent
from singa_dask.layers.text import CharRNN

__all__: list[str] = []

register = ONNX_CONVERTERS.register

# Places of ONNX's gates among ours: GRU z, r, h of z, r, c; LSTM i, o, f, c of i, f, g, o.
GATES = {"GRU": (0, 1, 2), "LSTM": (0, 3, 1, 2), "RNN": (0,)}
FUNCTIONS = {"TANH": "Tanh", "RELU": "Relu", "SIGMOID": "Sigmoid"}


@register(CharRNN)
def char_rnn(graph: OnnxGraph, layer: CharRNN) -> str:
    # the last column is only a label
    return graph.input(layer.conf_name, (BATCH, layer.text_conf.unroll_len), np.int64)


def numbers(graph: OnnxGraph, layer: Numbers, x: str) -> str:
    """Return the numbers that a layer reads: (rows,) int64, those of the first time step first."""
    source, site = layer.sources[0], layer.site
    x = graph.add("Cast", graph.rows(x, source), to=graph.onnx.TensorProto.INT64)
    if layer.own_columns:
        first, last = graph.integers([site.first_step]), graph.integers([site.first_step + site.n_steps])
        x = graph.add("Slice", x, first, last, graph.integers([1]))
        x = graph.add("Transpose", x, perm=[1, 0])
    elif source.n_steps == 1 and site.n_steps > 1:
        x = graph.add("Concat", *[x] * site.n_steps, axis=0)
    return graph.reshape(x, -1)


@register(OneHot)
def one_hot(graph: OnnxGraph, layer: OneHot, x: str) -> str:
    depth, values = graph.integers([layer.n_values]), graph.constant([0.0, 1.0])
    return graph.add("OneHot", numbers(graph, layer, x), depth, values, axis=-1)


@register(Embedding)
def embedding(graph: OnnxGraph, layer: Embedding, x: str) -> str:
    # -1, the last row, is padding
    zeros = graph.constant(np.zeros((1, layer.table.shape[1])))
    table = graph.add("Concat", graph.param(layer.table), zeros, axis=0)
    return graph.add("Gather", table, numbers(graph, layer, x), axis=0)


@register(PositionalEmbedding)
def positional_embedding(graph: OnnxGraph, layer: PositionalEmbedding, x: str) -> str:
    refuse_carried(layer)
    site, width = layer.site, layer.features[0].shape[1]
    steps = graph.integers(range(site.first_step, site.first_step + site.n_steps))
    rows = graph.reshape(graph.add("Gather", graph.param(layer.table), steps, axis=0), site.n_steps, 1, width)
    return graph.reshape(graph.add("Add", graph.reshape(x, site.n_steps, -1, width), rows), -1, width)


@register(MultiHeadAttention)
def multi_head_attention(graph: OnnxGraph, layer: MultiHeadAttention, x: str) -> str:
    refuse_carried(layer)
    n_steps, n_heads, width = layer.n_steps, layer.n_heads, layer.features[0].shape[1]
    qkv = linear(graph, x, layer.qkv_weight, layer.qkv_bias)
    qkv = graph.reshape(qkv, n_steps, -1, 3, n_heads, width // n_heads)
    # each (N, H, T, d)
    parts = graph.add("Transpose", qkv, perm=[2, 1, 3, 0, 4])
    queries, keys, values = (graph.add("Gather", parts, graph.constant(k, np.int64), axis=0) for k in range(3))
    scores = graph.add("MatMul", queries, graph.add("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = graph.add("Mul", scores, graph.constant(layer.scale))
    if layer.causal:
        later = np.triu(np.full((n_steps, n_steps), np.finfo(np.float32).min, np.float32), 1)
        scores = graph.add("Add", scores, graph.constant(later))
    attended = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), values)
    rows = graph.reshape(graph.add("Transpose", attended, perm=[2, 0, 1, 3]), -1, width)
    return linear(graph, rows, layer.output_weight, layer.output_bias)


def linear(graph: OnnxGraph, x: str, weight: Param, bias: Param | None) -> str:
    """Add x W^T + b."""
    params = [graph.param(param) for param in (weight, bias) if param is not None]
    return graph.add("Gemm", x, *params, transB=1)


@register(GRU)
def gru(graph: OnnxGraph, layer: GRU, x: str, state: str = "") -> str:
    # r is applied after the matrix product
    return recurrent(graph, layer, "GRU", x, state, linear_before_reset=1)


@register(LSTM)
def lstm(graph: OnnxGraph, layer: LSTM, x: str, state: str = "") -> str:
    refuse_single_steps(layer)
    return recurrent(graph, layer, "LSTM", x, state)


@register(RNN)
def rnn(graph: OnnxGraph, layer: RNN, x: str, state: str = "") -> str:
    return recurrent(graph, layer, "RNN", x, state, activations=[FUNCTIONS[layer.conf.block(RNNConf).activation]])


def recurrent(graph: OnnxGraph, layer: Recurrent, operator: str, x: str, state: str, **attributes: object) -> str:
    """Add a recurrent layer, whose params of all gates are one array in ONNX.

    With ``carry_state`` the first state is an input of the model, and the last one an output; an LSTM has a cell, too.
    """
    source, dim = layer.sources[0], layer.dim
    n_steps = layer.site.n_steps
    steps = graph.reshape(graph.rows(x, source), n_steps, -1, source.size)

    def joined(params: list[Param], name: str) -> str:
        values = [params[gate].data for gate in GATES[operator]]
        return graph.constant(np.concatenate(values)[None], name=name)

    biases = ""
    if layer.biases:
        own = np.concatenate([layer.biases[gate].data for gate in GATES[operator]])
        biases = graph.constant(np.concatenate([own, np.zeros_like(own)])[None], name="biases")
    carried = (("state", "cell") if operator == "LSTM" else ("state",)) if layer.carries else ()
    firsts = [state]
    if carried and not state:
        firsts = [graph.input(f"{layer.conf_name}.{name}", (BATCH, dim)) for name in carried]
    firsts = [graph.add("Unsqueeze", first, graph.integers([0])) if first else "" for first in firsts]
    weights = joined(layer.weights, "weights"), joined(layer.recurrences, "recurrences")
    inputs = [steps, *weights, biases, "", *firsts]
    while not inputs[-1]:
        inputs.pop()
    made, *lasts = graph.add_several(operator, *inputs, outputs=1 + len(carried), hidden_size=dim, **attributes)
    for name, last in zip(carried, lasts, strict=True):
        graph.next_state(f"{layer.conf_name}.next_{name}", graph.reshape(last, -1, dim), dim)
    return graph.reshape(made, -1, dim)
