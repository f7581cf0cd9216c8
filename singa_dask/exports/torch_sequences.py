"""Converters to PyTorch: layers of texts and other sequences. Their rows (T N, D) are those of the first step first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.errors import ConfigError
from singa_dask.exports.converters import TORCH_CONVERTERS, refuse_carried, refuse_single_steps
from singa_dask.exports.torch_module import TorchModule
from singa_dask.layers import Param
from singa_dask.layers.cells import GRU, LSTM, RNN, RNNConf
from singa_dask.layers.embedding import Embedding, Numbers, OneHot, PositionalEmbedding
from singa_dask.layers.multi_head_attention import MultiHeadAttention
from singa_dask.layers.recurrent import Recurrent
from singa_dask.layers.text import CharRNN

__all__: list[str] = []

register = TORCH_CONVERTERS.register


@register(CharRNN)
def char_rnn(module: TorchModule, layer: CharRNN) -> str:
    return module.input(layer.conf_name)


def numbers(module: TorchModule, layer: Numbers, x: str) -> str:
    """Return the numbers that a layer reads: (rows,) int64, those of the first time step first."""
    source, site = layer.sources[0], layer.site
    rows = module.rows(x, source)
    if layer.own_columns:
        return f"{rows}[:, {site.first_step}:{site.first_step + site.n_steps}].long().T.flatten()"
    steps = f".repeat({site.n_steps})" if source.n_steps == 1 and site.n_steps > 1 else ""
    return f"{rows}.long().flatten(){steps}"


@register(OneHot)
def one_hot(module: TorchModule, layer: OneHot, x: str) -> str:
    return f"F.one_hot({numbers(module, layer, x)}, {layer.n_values}).float()"


@register(Embedding)
def embedding(module: TorchModule, layer: Embedding, x: str) -> str:
    # -1, the last row, is padding
    return f"F.pad({module.param(layer.table)}, (0, 0, 0, 1))[{numbers(module, layer, x)}]"


@register(PositionalEmbedding)
def positional_embedding(module: TorchModule, layer: PositionalEmbedding, x: str) -> str:
    refuse_carried(layer)
    site = layer.site
    rows = f"{module.param(layer.table)}[{site.first_step}:{site.first_step + site.n_steps}].unsqueeze(1)"
    return f"({x}.unflatten(0, ({site.n_steps}, -1)) + {rows}).flatten(0, 1)"


@register(MultiHeadAttention)
def multi_head_attention(module: TorchModule, layer: MultiHeadAttention, x: str) -> str:
    refuse_carried(layer)
    n_steps, width = layer.n_steps, layer.features[0].shape[1]
    names = ("in_proj_weight", "out_proj.weight", "in_proj_bias", "out_proj.bias")
    values = {name: param.data for name, param in zip(names, layer.params, strict=False)}
    more = ", bias=False" if layer.qkv_bias is None else ""
    attention = module.add(f"nn.MultiheadAttention({width}, {layer.n_heads}{more})", values)
    steps = module.let(f"{x}.unflatten(0, ({n_steps}, -1))", "steps")
    mask = f"torch.ones({n_steps}, {n_steps}, dtype=torch.bool, device={x}.device).triu(1)" if layer.causal else "None"
    return f"{attention}({steps}, {steps}, {steps}, need_weights=False, attn_mask={mask})[0].flatten(0, 1)"


@register(GRU)
def gru(module: TorchModule, layer: GRU, x: str, state: str = "") -> str:
    # ours are z, r, c
    return recurrent(module, layer, "nn.GRU", (1, 0, 2), x, state and f"{state}.unsqueeze(0)")


@register(LSTM)
def lstm(module: TorchModule, layer: LSTM, x: str, state: str = "") -> str:
    refuse_single_steps(layer)
    first = state and f"({state}.unsqueeze(0), torch.zeros_like({state}).unsqueeze(0))"
    return recurrent(module, layer, "nn.LSTM", (0, 1, 2, 3), x, first)


@register(RNN)
def rnn(module: TorchModule, layer: RNN, x: str, state: str = "") -> str:
    kind = layer.conf.block(RNNConf).activation.lower()
    if kind == "sigmoid":
        raise ConfigError("nn.RNN has tanh and relu only, not activation: SIGMOID.")
    return recurrent(module, layer, "nn.RNN", (0,), x, state and f"{state}.unsqueeze(0)", f', nonlinearity="{kind}"')


def recurrent(
    module: TorchModule, layer: Recurrent, kind: str, gates: Sequence[int], x: str, state: str, more: str = ""
) -> str:
    """Add a recurrent layer, whose params of all gates are one array in PyTorch."""

    def joined(params: Sequence[Param]) -> Any:
        return np.concatenate([params[gate].data for gate in gates])

    values = {"weight_ih_l0": joined(layer.weights), "weight_hh_l0": joined(layer.recurrences)}
    if layer.biases:
        bias = joined(layer.biases)
        values |= {"bias_ih_l0": bias, "bias_hh_l0": np.zeros_like(bias)}
    else:
        more += ", bias=False"
    source = layer.sources[0]
    added = module.add(f"{kind}({source.size}, {layer.dim}{more})", values)
    steps = f"{module.rows(x, source)}.unflatten(0, ({layer.site.n_steps}, -1))"
    return f"{added}({steps}{', ' if state else ''}{state})[0].flatten(0, 1)"
