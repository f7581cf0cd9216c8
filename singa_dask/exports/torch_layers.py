"""Converters of layers to PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.errors import ConfigError
from singa_dask.exports.converters import (
    TORCH_CONVERTERS,
    input_dtype,
    refuse_carried,
    refuse_cut_batch,
    refuse_single_steps,
)
from singa_dask.exports.onnx_layers import SCALE, SLOPE
from singa_dask.exports.torch_module import TorchModule
from singa_dask.layers import Param
from singa_dask.layers.activation import GELU, GELUConf, LeakyReLU, LeakyReLUConf, SiLU
from singa_dask.layers.cells import GRU, LSTM, RNN, RNNConf
from singa_dask.layers.combine import Add, Multiply
from singa_dask.layers.connection import Concate, Slice, Split
from singa_dask.layers.conv import Convolution, GlobalPooling, Pooling
from singa_dask.layers.embedding import Embedding, Numbers, OneHot, PositionalEmbedding
from singa_dask.layers.image import ImagePreprocess
from singa_dask.layers.input import CSVInput, RecordInput, StoreInput
from singa_dask.layers.layer_norm import LayerNorm
from singa_dask.layers.multi_head_attention import MultiHeadAttention
from singa_dask.layers.neuron import (
    Activation,
    ActivationConf,
    Dropout,
    DropoutConf,
    InnerProduct,
    ReLU,
    ReLUConf,
    Sigmoid,
    Softmax,
    STanh,
    Tanh,
)
from singa_dask.layers.norm import LRN, BatchNorm, GroupNorm
from singa_dask.layers.output import ArgSort
from singa_dask.layers.recurrent import Recurrent
from singa_dask.layers.text import CharRNN

__all__: list[str] = []

register = TORCH_CONVERTERS.register


@register(StoreInput, RecordInput, CSVInput)
def store_input(module: TorchModule, layer: StoreInput) -> str:
    x, dtype = module.input(layer.conf_name), input_dtype(layer)
    for sign, name, value in zip("-/", ("mean", "std"), layer.statistics(), strict=True):
        if value is not None:
            x = module.let(f"{x} {sign} {module.constant(value, name, dtype)}", "normalized")
    return x if dtype == np.float32 else module.let(f"{x}.float()", "normalized")


@register(InnerProduct)
def inner_product(module: TorchModule, layer: InnerProduct, x: str) -> str:
    weight = layer.weight.data.T if layer.transpose else layer.weight.data
    values = {"weight": weight} | ({} if layer.bias is None else {"bias": layer.bias.data})
    n_out, n_in = weight.shape
    more = ", bias=False" if layer.bias is None else ""
    return f"{module.add(f'nn.Linear({n_in}, {n_out}{more})', values)}({module.rows(x, layer.sources[0])})"


@register(ReLU)
def relu(module: TorchModule, layer: ReLU, x: str) -> str:
    slope = layer.conf.block(ReLUConf).negative_slope
    return f"F.leaky_relu({x}, {slope!r})" if slope else f"F.relu({x})"


@register(LeakyReLU)
def leaky_relu(module: TorchModule, layer: LeakyReLU, x: str) -> str:
    return f"F.leaky_relu({x}, {layer.conf.block(LeakyReLUConf).negative_slope!r})"


@register(Sigmoid)
def sigmoid(module: TorchModule, layer: Sigmoid, x: str) -> str:
    return f"torch.sigmoid({x})"


@register(Tanh)
def tanh(module: TorchModule, layer: Tanh, x: str) -> str:
    return f"torch.tanh({x})"


@register(STanh)
def stanh(module: TorchModule, layer: Activation, x: str) -> str:
    return f"{SCALE} * torch.tanh({SLOPE} * {x})"


@register(Activation)
def activation(module: TorchModule, layer: Activation, x: str) -> str:
    kind = layer.conf.block(ActivationConf).type
    return stanh(module, layer, x) if kind == "STANH" else f"torch.{kind.lower()}({x})"


@register(SiLU)
def silu(module: TorchModule, layer: SiLU, x: str) -> str:
    return f"F.silu({x})"


@register(GELU)
def gelu(module: TorchModule, layer: GELU, x: str) -> str:
    return f'F.gelu({x}, approximate="{layer.conf.block(GELUConf).approximate}")'


@register(Dropout)
def dropout(module: TorchModule, layer: Dropout, x: str) -> str:
    return f"{module.add(f'nn.Dropout({layer.conf.block(DropoutConf).dropout_ratio})')}({x})"


@register(Softmax)
def softmax(module: TorchModule, layer: Softmax, x: str) -> str:
    if layer.by_pixel:
        return f"F.softmax({x}, dim=1)"
    rows = module.rows(x, layer.sources[0])
    if layer.width == layer.sources[0].size:
        return f"F.softmax({rows}, dim=1)"
    return f"F.softmax({rows}.unflatten(1, (-1, {layer.width})), dim=2).flatten(1)"


@register(LayerNorm)
def layer_norm(module: TorchModule, layer: LayerNorm, x: str) -> str:
    values = {"weight": layer.scale.data, "bias": layer.shift.data}
    return f"{module.add(f'nn.LayerNorm({layer.scale.shape[0]}, eps={layer.epsilon})', values)}({x})"


@register(Add)
def add(module: TorchModule, layer: Add, *xs: str) -> str:
    return " + ".join(xs)


@register(Multiply)
def multiply(module: TorchModule, layer: Multiply, *xs: str) -> str:
    return " * ".join(xs)


@register(Split)
def split(module: TorchModule, layer: Split, x: str) -> list[str]:
    return [x] * len(layer.features)


@register(Slice)
def slice_(module: TorchModule, layer: Slice, x: str) -> list[str]:
    sizes = [span.size for span in layer.spans]
    if len(sizes) == 1:
        return [x]
    if layer.axis:
        return module.let_several(f"{x}.split({sizes}, dim={layer.axis})", len(sizes))
    refuse_cut_batch(layer)
    return module.let_several(f"{x}.chunk({len(sizes)})", len(sizes))


@register(Concate)
def concate(module: TorchModule, layer: Concate, *xs: str) -> str:
    if layer.axis or layer.steps == 1:
        return f"torch.cat([{', '.join(xs)}], dim={layer.axis})"
    by_steps = ", ".join(f"{x}.unflatten(0, ({layer.steps}, -1))" for x in xs)
    return f"torch.cat([{by_steps}], dim=1).flatten(0, 1)"


@register(ArgSort)
def arg_sort(module: TorchModule, layer: ArgSort, x: str) -> str:
    # of equal scores the higher column is first
    rows, width = module.rows(x, layer.sources[0]), layer.sources[0].size
    order = f"torch.argsort({rows}.flip(1), dim=1, descending=True, stable=True)"
    return f"({width - 1} - {order}[:, :{layer.topk}]).float()"


# -- images ------------------------------------------------------------------------------------------------


def pair(values: tuple[int, int]) -> str:
    """Return a number for both axes where they are equal, else one for each."""
    return str(values[0]) if values[0] == values[1] else str(tuple(values))


@register(Convolution)
def convolution(module: TorchModule, layer: Convolution, x: str) -> str:
    n_filters, n_channels, *_ = layer.shape
    values = {"weight": np.reshape(layer.weight.data, layer.shape)}
    values |= {} if layer.bias is None else {"bias": layer.bias.data}
    how = f"{pair(layer.kernel)}, stride={pair(layer.stride)}, padding={pair(layer.pad)}"
    how += ", bias=False" if layer.bias is None else ""
    images = module.images(x, layer.sources[0])
    return f"{module.add(f'nn.Conv2d({n_channels}, {n_filters}, {how})', values)}({images})"


@register(Pooling)
def pooling(module: TorchModule, layer: Pooling, x: str) -> str:
    images = module.images(x, layer.sources[0])
    kernel, stride, pad = layer.kernel, layer.stride, layer.pad
    if any(2 * p > k for p, k in zip(pad, kernel, strict=True)):
        # PyTorch pads by half a window at most
        if layer.takes_mean and not layer.count_pad:
            raise ConfigError("PyTorch has no mean without padding where that is more than half of the window.")
        value = "0.0" if layer.takes_mean else 'float("-inf")'
        images, pad = f"F.pad({images}, ({pad[1]}, {pad[1]}, {pad[0]}, {pad[0]}), value={value})", (0, 0)
    how = f"{pair(kernel)}, stride={pair(stride)}, padding={pair(pad)}"
    if layer.takes_mean:
        return f"F.avg_pool2d({images}, {how}, count_include_pad={layer.count_pad})"
    return f"F.max_pool2d({images}, {how})"


@register(GlobalPooling)
def global_pooling(module: TorchModule, layer: GlobalPooling, x: str) -> str:
    images = module.images(x, layer.sources[0])
    return f"{images}.mean(dim=(2, 3))" if layer.takes_mean else f"{images}.amax(dim=(2, 3))"


@register(LRN)
def lrn(module: TorchModule, layer: LRN, x: str) -> str:
    size, alpha, beta, knorm = layer.how
    images = module.images(x, layer.sources[0])
    made = f"F.local_response_norm({images}, {size}, alpha={alpha}, beta={beta}, k={knorm})"
    return like_source(layer, made)


@register(BatchNorm)
def batch_norm(module: TorchModule, layer: BatchNorm, x: str) -> str:
    names = ("weight", "bias", "running_mean", "running_var")
    values = {name: param.data for name, param in zip(names, layer.params, strict=True)}
    kind = "1d" if layer.rows_of_values else "2d"
    # the number of batches that nn.BatchNorm counts has no meaning here
    how = f"{layer.scale.shape[0]}, eps={layer.eps}, momentum={1 - layer.momentum:g}"
    added = module.add(f"nn.BatchNorm{kind}({how})", values)
    images = x if layer.rows_of_values else module.images(x, layer.sources[0])
    return like_source(layer, f"{added}({images})")


@register(GroupNorm)
def group_norm(module: TorchModule, layer: GroupNorm, x: str) -> str:
    values = {"weight": layer.scale.data, "bias": layer.shift.data}
    made = f"nn.GroupNorm({layer.mean.shape[1]}, {layer.scale.shape[0]}, eps={layer.epsilon})"
    return like_source(layer, f"{module.add(made, values)}({module.images(x, layer.sources[0])})")


@register(ImagePreprocess)
def image_preprocess(module: TorchModule, layer: ImagePreprocess, x: str) -> str:
    pad, (top, left) = layer.pad, (int(room) // 2 for room in layer.room)
    height, width = layer.features[0].shape[2:]
    if pad:
        x = f"F.pad({x}, ({pad}, {pad}, {pad}, {pad}))"
    if layer.room.any():
        x = f"{x}[:, :, {top}:{top + height}, {left}:{left + width}]"
    return x if layer.scale == 1 else f"{layer.scale} * {x}"


def like_source(layer: LRN | BatchNorm | GroupNorm, images: str) -> str:
    """Return images in the shape of the source, which may have no axis of channels."""
    return images if len(layer.sources[0].shape) != 3 else f"{images}.squeeze(1)"


# -- texts and other sequences: their rows (T N, D) are those of the first step first -------------------------


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
