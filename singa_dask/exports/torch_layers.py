"""The PyTorch converters for all types of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.errors import ConfigError
from singa_dask.exports.converters import TORCH_CONVERTERS, input_dtype
from singa_dask.exports.torch_source import TorchSource
from singa_dask.inputs.image_preprocess import ImagePreprocess
from singa_dask.inputs.store_input import CSVInput, RecordInput, StoreInput
from singa_dask.inputs.text import CharRNN
from singa_dask.layers import (
    Layer,
    Param,
    activation,
    attention,
    axes,
    combine,
    connection,
    conv,
    embedding,
    neuron,
    norm,
    pooling,
    recurrent,
    sequence,
    torch_module,
    upsample,
)
from singa_dask.layers.numbers import Numbers
from singa_dask.layers.outputs import ArgSort
from singa_dask.layers.time_steps import HIDDEN
from singa_dask.ops.numpy.elementwise import STANH_X, STANH_Y

register = TORCH_CONVERTERS.register

FUNCTIONS = {"tanh": "torch.tanh", "relu": "F.relu", "sigmoid": "torch.sigmoid"}


@register(StoreInput, RecordInput, CSVInput)
def _store_input(module: TorchSource, layer: StoreInput) -> str:
    x, dtype = module.input(layer.conf_name), input_dtype(layer)
    for sign, name, value in zip("-/", ("mean", "std"), layer.normalisation.statistics(), strict=True):
        if value is not None:
            x = module.let(f"{x} {sign} {module.constant(value, name, dtype)}", "normalized")
    return x if dtype == np.float32 else module.let(f"{x}.float()", "normalized")


@register(neuron.InnerProduct)
def _inner_product(module: TorchSource, layer: neuron.InnerProduct, x: str) -> str:
    weight = layer.weight.data.T if layer.transpose else layer.weight.data
    values = {"weight": weight} | ({} if layer.bias is None else {"bias": layer.bias.data})
    n_out, n_in = weight.shape
    more = ", bias=False" if layer.bias is None else ""
    return f"{module.add(f'nn.Linear({n_in}, {n_out}{more})', values)}({module.rows(x, layer.sources[0])})"


@register(activation.Activation, activation.ReLU)
def _activation(module: TorchSource, layer: activation.Activation, x: str) -> str:
    kernels, slope = layer.kernels, layer.kernels.options.get("negative_slope")
    if kernels.name == "stanh":
        return f"{STANH_Y} * torch.tanh({STANH_X} * {x})"
    return f"F.leaky_relu({x}, {slope!r})" if slope else f"{FUNCTIONS[kernels.name]}({x})"


@register(activation.SiLU)
def _silu(module: TorchSource, layer: activation.SiLU, x: str) -> str:
    return f"F.silu({x})"


@register(activation.GELU)
def _gelu(module: TorchSource, layer: activation.GELU, x: str) -> str:
    return f'F.gelu({x}, approximate="{layer.options.approximate}")'


@register(neuron.Dropout)
def _dropout(module: TorchSource, layer: neuron.Dropout, x: str) -> str:
    return f"{module.add(f'nn.Dropout({layer.options.dropout_ratio})')}({x})"


@register(neuron.Softmax)
def _softmax(module: TorchSource, layer: neuron.Softmax, x: str) -> str:
    if layer.by_pixel:
        return f"F.softmax({x}, dim=1)"
    rows = module.rows(x, layer.sources[0])
    if layer.width == layer.sources[0].size:
        return f"F.softmax({rows}, dim=1)"
    return f"F.softmax({rows}.unflatten(1, (-1, {layer.width})), dim=2).flatten(1)"


@register(torch_module.TorchModule)
def _module(module: TorchSource, layer: torch_module.TorchModule, *xs: str) -> str:
    conf = layer.options
    place, _, name = conf.module.partition(":")
    module.import_name(place, name.partition(".")[0])
    return f"{module.add(f'{name}(**{conf.args!r})', layer.state_dict())}({', '.join(xs)})"


@register(norm.LayerNorm)
def _layer_norm(module: TorchSource, layer: norm.LayerNorm, x: str) -> str:
    values = {"weight": layer.scale.data, "bias": layer.shift.data}
    return f"{module.add(f'nn.LayerNorm({layer.scale.shape[0]}, eps={layer.epsilon})', values)}({x})"


@register(norm.RMSNorm)
def _rms_norm(module: TorchSource, layer: norm.RMSNorm, x: str) -> str:
    added = module.add(f"nn.RMSNorm({layer.scale.shape[0]}, eps={layer.epsilon})", {"weight": layer.scale.data})
    return f"{added}({x})"


@register(combine.Add)
def _add(module: TorchSource, layer: combine.Add, *xs: str) -> str:
    return " + ".join(xs)


@register(combine.Multiply)
def _multiply(module: TorchSource, layer: combine.Multiply, *xs: str) -> str:
    n_axes = len(layer.features[0].shape)
    pairs = zip(xs, layer.sources, strict=True)
    return " * ".join(f"{x}[:, :, None, None]" if len(source.shape) < n_axes else x for x, source in pairs)


@register(connection.Split)
def _split(module: TorchSource, layer: connection.Split, x: str) -> list[str]:
    return [x] * len(layer.features)


@register(connection.Slice)
def _slice(module: TorchSource, layer: connection.Slice, x: str) -> list[str]:
    sizes = [span.size for span in layer.spans]
    if len(sizes) == 1:
        return [x]
    if layer.axis:
        return module.let_several(f"{x}.split({sizes}, dim={layer.axis})", len(sizes))
    return module.let_several(f"{x}.chunk({len(sizes)})", len(sizes))


@register(connection.Concate)
def _concate(module: TorchSource, layer: connection.Concate, *xs: str) -> str:
    if layer.axis or layer.steps == 1:
        return f"torch.cat([{', '.join(xs)}], dim={layer.axis})"
    by_steps = ", ".join(f"{x}.unflatten(0, ({layer.steps}, -1))" for x in xs)
    return f"torch.cat([{by_steps}], dim=1).flatten(0, 1)"


@register(ArgSort)
def _arg_sort(module: TorchSource, layer: ArgSort, x: str) -> str:
    # we sort equal scores by descending column
    rows, width = module.rows(x, layer.sources[0]), layer.sources[0].size
    order = f"torch.argsort({rows}.flip(1), dim=1, descending=True, stable=True)"
    return f"({width - 1} - {order}[:, :{layer.topk}]).float()"


# -- images ------------------------------------------------------------------------------------------------


def pair(values: tuple[int, int]) -> str:
    """Return one number if both are equal, else a pair."""
    return str(values[0]) if values[0] == values[1] else str(tuple(values))


@register(conv.Convolution)
def _convolution(module: TorchSource, layer: conv.Convolution, x: str) -> str:
    n_filters, n_channels, *_ = layer.shape
    return _filters(module, layer, x, f"nn.Conv2d({n_channels * layer.groups}, {n_filters}", "")


@register(conv.ConvTranspose)
def _conv_transpose(module: TorchSource, layer: conv.ConvTranspose, x: str) -> str:
    n_channels, n_filters, *_ = layer.shape
    more = f", output_padding={layer.output_pad}" if layer.output_pad else ""
    return _filters(module, layer, x, f"nn.ConvTranspose2d({n_channels}, {n_filters * layer.groups}", more)


def _filters(module: TorchSource, layer: conv.Convolution | conv.ConvTranspose, x: str, head: str, more: str) -> str:
    values = {"weight": np.reshape(layer.weight.data, layer.shape)}
    values |= {} if layer.bias is None else {"bias": layer.bias.data}
    how = f"{pair(layer.kernel)}, stride={pair(layer.stride)}, padding={pair(layer.pad)}{more}"
    how += "" if layer.dilation == (1, 1) else f", dilation={pair(layer.dilation)}"
    how += f", groups={layer.groups}" if layer.groups > 1 else ""
    how += ", bias=False" if layer.bias is None else ""
    return f"{module.add(f'{head}, {how})', values)}({module.images(x, layer.sources[0])})"


@register(upsample.Upsample)
def _upsample(module: TorchSource, layer: upsample.Upsample, x: str) -> str:
    mode = "bilinear" if layer.takes_lines else "nearest"
    return f'F.interpolate({module.images(x, layer.sources[0])}, scale_factor={layer.window[0]}, mode="{mode}")'


@register(pooling.AdaptivePooling)
def _adaptive_pooling(module: TorchSource, layer: pooling.AdaptivePooling, x: str) -> str:
    kind = "avg" if layer.takes_mean else "max"
    return f"F.adaptive_{kind}_pool2d({module.images(x, layer.sources[0])}, {layer.features[0].shape[2:]})"


@register(pooling.Pooling)
def _pooling(module: TorchSource, layer: pooling.Pooling, x: str) -> str:
    images = module.images(x, layer.sources[0])
    kernel, stride, pad = layer.kernel, layer.stride, layer.pad
    if any(2 * p > k for p, k in zip(pad, kernel, strict=True)):
        # PyTorch allows padding of at most half a window
        if layer.takes_mean and not layer.count_pad:
            raise ConfigError("in PyTorch, a mean that leaves out padding allows padding of at most half the window.")
        value = "0.0" if layer.takes_mean else 'float("-inf")'
        images, pad = f"F.pad({images}, ({pad[1]}, {pad[1]}, {pad[0]}, {pad[0]}), value={value})", (0, 0)
    how = f"{pair(kernel)}, stride={pair(stride)}, padding={pair(pad)}"
    if layer.takes_mean:
        return f"F.avg_pool2d({images}, {how}, count_include_pad={layer.count_pad})"
    return f"F.max_pool2d({images}, {how})"


@register(pooling.GlobalPooling)
def _global_pooling(module: TorchSource, layer: pooling.GlobalPooling, x: str) -> str:
    images = module.images(x, layer.sources[0])
    return f"{images}.mean(dim=(2, 3))" if layer.takes_mean else f"{images}.amax(dim=(2, 3))"


@register(norm.LRN)
def _lrn(module: TorchSource, layer: norm.LRN, x: str) -> str:
    size, alpha, beta, knorm = layer.how.values()
    images = module.images(x, layer.sources[0])
    normal = f"F.local_response_norm({images}, {size}, alpha={alpha}, beta={beta}, k={knorm})"
    return like_source(layer, normal)


@register(norm.BatchNorm)
def _batch_norm(module: TorchSource, layer: norm.BatchNorm, x: str) -> str:
    names = ("weight", "bias", "running_mean", "running_var")
    values = {name: param.data for name, param in zip(names, layer.params, strict=True)}
    kind = "1d" if layer.rows_of_values else "2d"
    # the exported module does not need num_batches_tracked of nn.BatchNorm
    how = f"{layer.scale.shape[0]}, eps={layer.epsilon}, momentum={1 - layer.momentum:g}"
    added = module.add(f"nn.BatchNorm{kind}({how})", values)
    images = x if layer.rows_of_values else module.images(x, layer.sources[0])
    return like_source(layer, f"{added}({images})")


@register(norm.GroupNorm)
def _group_norm(module: TorchSource, layer: norm.GroupNorm, x: str) -> str:
    values = {"weight": layer.scale.data, "bias": layer.shift.data}
    call = f"nn.GroupNorm({layer.mean.shape[1]}, {layer.scale.shape[0]}, eps={layer.epsilon})"
    return like_source(layer, f"{module.add(call, values)}({module.images(x, layer.sources[0])})")


@register(ImagePreprocess)
def _image_preprocess(module: TorchSource, layer: ImagePreprocess, x: str) -> str:
    pad, (top, left) = layer.pad, (int(room) // 2 for room in layer.room)
    height, width = layer.features[0].shape[2:]
    if pad:
        x = f"F.pad({x}, ({pad}, {pad}, {pad}, {pad}))"
    if layer.room.any():
        x = f"{x}[:, :, {top}:{top + height}, {left}:{left + width}]"
    return x if layer.scale == 1 else f"{layer.scale} * {x}"


def like_source(layer: norm.LRN | norm.BatchNorm | norm.GroupNorm, images: str) -> str:
    """Return images in the shape of the source, which may lack the channel axis."""
    return images if len(layer.sources[0].shape) != 3 else f"{images}.squeeze(1)"


# -- texts and other sequences: rows (T N, D), first time step first -------------------------


@register(CharRNN)
def _char_rnn(module: TorchSource, layer: CharRNN) -> str:
    return module.input(layer.conf_name)


def numbers(module: TorchSource, layer: Numbers, x: str) -> str:
    """Return the integers that a layer reads: (rows,) int64, first time step first; all columns as (N, k)."""
    source, site = layer.sources[0], layer.site
    rows = module.rows(x, source)
    if layer.all_columns:
        return f"{rows}.long()"
    if layer.own_columns:
        return f"{rows}[:, {site.first_step}:{site.first_step + site.n_steps}].long().T.flatten()"
    steps = f".repeat({site.n_steps})" if source.n_steps == 1 and site.n_steps > 1 else ""
    return f"{rows}.long().flatten(){steps}"


@register(embedding.OneHot)
def _one_hot(module: TorchSource, layer: embedding.OneHot, x: str) -> str:
    return f"F.one_hot({numbers(module, layer, x)}, {layer.n_values}).float()"


@register(embedding.Embedding)
def _embedding(module: TorchSource, layer: embedding.Embedding, x: str) -> str:
    # the appended row of zeros has index -1, which stands for padding
    return f"F.pad({module.param(layer.table)}, (0, 0, 0, 1))[{numbers(module, layer, x)}]"


@register(embedding.PositionalEmbedding)
def _positional_embedding(module: TorchSource, layer: embedding.PositionalEmbedding, x: str) -> str:
    site = layer.site
    rows = f"{module.param(layer.table)}[{site.first_step}:{site.first_step + site.n_steps}].unsqueeze(1)"
    return f"({x}.unflatten(0, ({site.n_steps}, -1)) + {rows}).flatten(0, 1)"


@register(sequence.PaddingMask)
def _padding_mask(module: TorchSource, layer: sequence.PaddingMask, x: str) -> str:
    read, n_steps = numbers(module, layer, x), layer.site.n_steps
    if layer.takes_lengths:
        steps = f"torch.arange({n_steps}, device={x}.device).unsqueeze(1)"
        return f"({read}.unflatten(0, ({n_steps}, -1)) > {steps}).flatten().unsqueeze(1)"
    return f"({read} != {layer.padding}).unsqueeze(1)"


@register(sequence.TimePooling)
def _time_pooling(module: TorchSource, layer: sequence.TimePooling, x: str, mask: str = "") -> str:
    steps = f"{x}.unflatten(0, ({layer.n_steps}, -1))"
    if not mask:
        return steps + {"AVG": ".mean(dim=0)", "MAX": ".amax(dim=0)", "FIRST": "[0]", "LAST": "[-1]"}[layer.pool]
    valid = module.let(f"{mask}.unflatten(0, ({layer.n_steps}, -1))", "valid")
    if layer.pool == "MAX":
        return f"{steps}.masked_fill(~{valid}, {HIDDEN}).amax(dim=0) * {valid}.any(dim=0)"
    if layer.pool == "AVG":
        return f"({steps} * {valid}).sum(dim=0) / {valid}.sum(dim=0).clamp(min=1)"
    # take the first valid time step, or for LAST the first one in reverse order
    turned = ".flip(0)" if layer.pool == "LAST" else ""
    is_first = f"({valid}{turned} & ({valid}{turned}.cumsum(dim=0) == 1))"
    return f"({steps}{turned} * {is_first}).sum(dim=0)"


@register(sequence.ClassToken)
def _class_token(module: TorchSource, layer: sequence.ClassToken, x: str) -> str:
    n_rows = f"{x}.shape[0] // {layer.site.n_steps - 1}"
    return f"torch.cat([{module.param(layer.token)}.expand({n_rows}, -1), {x}])"


@register(axes.Reshape)
def _reshape(module: TorchSource, layer: axes.Reshape, x: str) -> str:
    return f"{x}.reshape(-1, {', '.join(map(str, layer.features[0].shape[1:]))})"


@register(axes.Transpose)
def _transpose(module: TorchSource, layer: axes.Transpose, x: str) -> str:
    return f"{x}.transpose{layer.axes}"


@register(axes.Stack)
def _stack(module: TorchSource, layer: axes.Stack, x: str) -> str:
    axes = ".permute(1, 2, 0).unsqueeze(2)" if layer.images else ".transpose(0, 1)"
    return f"{x}.unflatten(0, ({layer.n_steps}, -1)){axes}"


@register(axes.Unstack)
def _unstack(module: TorchSource, layer: axes.Unstack, x: str) -> str:
    steps = ".transpose(0, 1)" if len(layer.sources[0].shape) == 3 else ".squeeze(2).permute(2, 0, 1)"
    return f"{x}{steps}.flatten(0, 1)"


@register(attention.MultiHeadAttention)
def _multi_head_attention(module: TorchSource, layer: attention.MultiHeadAttention, *xs: str) -> str:
    n_steps, n_keys, names = layer.n_steps, layer.n_keys, dict(zip(layer.sources, xs, strict=True))
    x, memory = names[layer.sources[0]], names[layer.projections[-1].source]
    later = f"torch.ones({n_steps}, {n_keys}, dtype=torch.bool, device={x}.device).triu(1)"
    if layer.mask is not None or layer.rotary_base is not None:
        return _attention_by_formula(module, layer, x, memory, "" if layer.mask is None else names[layer.mask], later)
    keys = ("in_proj_weight", "out_proj.weight", "in_proj_bias", "out_proj.bias")
    values = {name: param.data for name, param in zip(keys, layer.params, strict=False)}
    more = ", bias=False" if layer.qkv_bias is None else ""
    added = module.add(f"nn.MultiheadAttention({layer.features[0].shape[1]}, {layer.n_heads}{more})", values)
    steps = module.let(f"{x}.unflatten(0, ({n_steps}, -1))", "steps")
    read = steps if memory == x else module.let(f"{memory}.unflatten(0, ({n_keys}, -1))", "keys")
    mask = later if layer.causal else "None"
    return f"{added}({steps}, {read}, {read}, need_weights=False, attn_mask={mask})[0].flatten(0, 1)"


def _attention_by_formula(
    module: TorchSource, layer: attention.MultiHeadAttention, x: str, memory: str, mask: str, later: str
) -> str:
    """Add attention that nn.MultiheadAttention cannot compute.

    That is attention with rotary embeddings, or with queries whose keys may all be padding.
    """
    weights = module.let(f"{module.param(layer.qkv_weight)}.chunk(3)", "weights")
    biases = "" if layer.qkv_bias is None else module.let(f"{module.param(layer.qkv_bias)}.chunk(3)", "biases")
    heads = []
    for k, (source, n_steps) in enumerate(((x, layer.n_steps), (memory, layer.n_keys), (memory, layer.n_keys))):
        rows = f"F.linear({source}, {weights}[{k}]{biases and f', {biases}[{k}]'})"
        view = f"{rows}.reshape({n_steps}, -1, {layer.n_heads}, {layer.features[0].shape[1] // layer.n_heads})"
        heads.append(module.let(f"{view}.permute(1, 2, 0, 3)", "qkv"[k]))
    if layer.rotary_base is not None:
        cos, sin = (module.constant(getattr(layer, name).data, name) for name in ("cos", "sin"))
        for k, each in enumerate(heads[:2]):
            one, other = module.let_several(f"{each}.chunk(2, dim=3)", 2)
            turned = f"torch.cat([{one} * {cos} - {other} * {sin}, {other} * {cos} + {one} * {sin}], dim=3)"
            heads[k] = module.let(turned, "qk"[k])
    scores = f"{heads[0]} @ {heads[1]}.transpose(2, 3) * {layer.scale!r}"
    valid = mask and module.let(f"{mask}.reshape({layer.n_keys}, -1).T[:, None, None]", "valid")
    if mask:
        scores = f"({scores}).masked_fill(~{valid}, {HIDDEN})"
    if layer.causal:
        scores = f'({scores}).masked_fill({later}, float("-inf"))'
    attended = module.let(f"({scores}).softmax(dim=3){mask and f' * {valid}'} @ {heads[2]}", "attended")
    bias = "" if layer.output_bias is None else f", {module.param(layer.output_bias)}"
    return (
        f"F.linear({attended}.permute(2, 0, 1, 3).flatten(2).flatten(0, 1), {module.param(layer.output_weight)}{bias})"
    )


# for each gate in the order of PyTorch, its index in our order, which is z, r, c for a GRU
TORCH_GATES: dict[type[Layer], tuple[int, ...]] = {
    recurrent.GRU: (1, 0, 2),
    recurrent.LSTM: (0, 1, 2, 3),
    recurrent.RNN: (0,),
}


@register(*TORCH_GATES)
def _recurrent(module: TorchSource, layer: recurrent.Recurrent, *xs: str) -> str:
    """Add a recurrent layer. In PyTorch the params of all gates are in one array.

    With a mask, each time step is added separately.
    """
    cls = next(cls for cls in TORCH_GATES if isinstance(layer, cls))
    kind, more = f"nn.{cls.__name__}", ""
    if isinstance(layer, recurrent.RNN):
        if layer.kernels.name == "sigmoid":
            raise ConfigError("nn.RNN has tanh and relu only, not activation: SIGMOID.")
        more = f', nonlinearity="{layer.kernels.name}"'

    def joined(params: Sequence[Param]) -> Any:
        return np.concatenate([params[gate].data for gate in TORCH_GATES[cls]])

    values = {"weight_ih_l0": joined(layer.weights), "weight_hh_l0": joined(layer.recurrences)}
    if layer.biases:
        bias = joined(layer.biases)
        values |= {"bias_ih_l0": bias, "bias_hh_l0": np.zeros_like(bias)}
    else:
        more += ", bias=False"
    source, names, n_steps = layer.sources[0], dict(zip(layer.sources, xs, strict=True)), layer.site.n_steps
    added = module.add(f"{kind}({source.size}, {layer.dim}{more})", values)
    steps = f"{module.rows(xs[0], source)}.unflatten(0, ({n_steps}, -1))"
    first = [f"{names[layer.first_state]}.unsqueeze(0)"] if layer.first_state is not None else []
    if kind == "nn.LSTM":
        first += [f"torch.zeros_like({state})" for state in first]
    if layer.mask is None:
        turned, state = ".flip(0)" if layer.reverse else "", f", {_states(first)}" if first else ""
        return f"{added}({steps}{turned}{state})[0]{turned}.flatten(0, 1)"
    valid = module.let(f"{names[layer.mask]}.unflatten(0, ({n_steps}, -1))", "valid")
    steps, zeros = module.let(steps, "steps"), f"torch.zeros(1, {valid}.shape[1], {layer.dim}, device={valid}.device)"
    first = [module.let(state, "state") for state in first or [zeros] * (2 if kind == "nn.LSTM" else 1)]
    states: dict[int, str] = {}
    for t in sorted(range(n_steps), reverse=layer.reverse):
        call = f"{added}({steps}[{t}:{t + 1}], {_states(first)})[1]"
        new = module.let_several(call, 2) if kind == "nn.LSTM" else [module.let(call, "next")]
        both = zip(new, first, strict=True)
        first = [module.let(f"torch.where({valid}[{t}], {each}, {old})", "state") for each, old in both]
        states[t] = first[0]
    return f"torch.cat([{', '.join(states[t] for t in range(n_steps))}]).flatten(0, 1)"


def _states(states: Sequence[str]) -> str:
    """Return the argument of a recurrent module: the state, or state and cell."""
    return states[0] if len(states) == 1 else f"({', '.join(states)})"
