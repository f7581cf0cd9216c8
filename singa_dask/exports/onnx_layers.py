"""The ONNX converters for all types of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from singa_dask.exports.converters import ONNX_CONVERTERS, input_dtype
from singa_dask.exports.onnx_graph import BATCH, OPSET, OnnxGraph
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
from singa_dask.layers.window import Windowed
from singa_dask.ops.numpy.elementwise import STANH_X, STANH_Y

register = ONNX_CONVERTERS.register

FLOAT = np.dtype(np.float32)
FUNCTIONS = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}


@register(StoreInput, RecordInput, CSVInput)
def _store_input(graph: OnnxGraph, layer: StoreInput) -> str:
    dtype = input_dtype(layer)
    x = graph.input(layer.conf_name, (BATCH, *layer.features[0].shape[1:]), dtype)
    for operator, value in zip(("Sub", "Div"), layer.normalisation.statistics(), strict=True):
        if value is not None:
            x = graph.add(operator, x, graph.constant(value, dtype))
    return x if dtype == np.float32 else graph.add("Cast", x, to=graph.helper.np_dtype_to_tensor_dtype(FLOAT))


@register(neuron.InnerProduct)
def _inner_product(graph: OnnxGraph, layer: neuron.InnerProduct, x: str) -> str:
    params = [graph.param(param) for param in layer.params]
    return graph.add("Gemm", graph.rows(x, layer.sources[0]), *params, transB=int(not layer.transpose))


@register(activation.Activation, activation.ReLU)
def _activation(graph: OnnxGraph, layer: activation.Activation, x: str) -> str:
    kernels, slope = layer.kernels, layer.kernels.options.get("negative_slope")
    if kernels.name == "stanh":
        inner = graph.add("Tanh", graph.add("Mul", x, graph.constant(STANH_X)))
        return graph.add("Mul", inner, graph.constant(STANH_Y))
    return graph.add("LeakyRelu", x, alpha=slope) if slope else graph.add(FUNCTIONS[kernels.name], x)


@register(activation.SiLU)
def _silu(graph: OnnxGraph, layer: activation.SiLU, x: str) -> str:
    return graph.add("Mul", x, graph.add("Sigmoid", x))


@register(activation.GELU)
def _gelu(graph: OnnxGraph, layer: activation.GELU, x: str) -> str:
    if layer.options.approximate == "tanh":
        cube = graph.add("Mul", graph.add("Mul", x, graph.add("Mul", x, x)), graph.constant(0.044715))
        inner = graph.add("Mul", graph.add("Add", x, cube), graph.constant(np.sqrt(2 / np.pi)))
        chance = graph.add("Tanh", inner)
    else:
        chance = graph.add("Erf", graph.add("Mul", x, graph.constant(np.sqrt(0.5))))
    half = graph.add("Mul", x, graph.constant(0.5))
    return graph.add("Mul", half, graph.add("Add", chance, graph.constant(1)))


@register(neuron.Dropout)
def _dropout(graph: OnnxGraph, layer: neuron.Dropout, x: str) -> str:
    return x


@register(neuron.Softmax)
def _softmax(graph: OnnxGraph, layer: neuron.Softmax, x: str) -> str:
    if layer.by_pixel:
        return graph.add("Softmax", x, axis=1)
    rows, size = graph.rows(x, layer.sources[0]), layer.sources[0].size
    if layer.width == size:
        return graph.add("Softmax", rows, axis=1)
    parts = graph.reshape(rows, -1, size // layer.width, layer.width)
    return graph.reshape(graph.add("Softmax", parts, axis=2), -1, size)


@register(torch_module.TorchModule)
def _module(graph: OnnxGraph, layer: torch_module.TorchModule, *xs: str) -> list[str]:
    return graph.embed(layer.to_onnx(OPSET), *xs)


@register(norm.LayerNorm)
def _layer_norm(graph: OnnxGraph, layer: norm.LayerNorm, x: str) -> str:
    params = (graph.param(layer.scale), graph.param(layer.shift))
    return graph.add("LayerNormalization", x, *params, axis=-1, epsilon=layer.epsilon)


@register(norm.RMSNorm)
def _rms_norm(graph: OnnxGraph, layer: norm.RMSNorm, x: str) -> str:
    squares = graph.add("ReduceMean", graph.add("Mul", x, x), graph.integers([1]), keepdims=1)
    width = graph.add("Sqrt", graph.add("Add", squares, graph.constant(layer.epsilon)))
    return graph.add("Mul", graph.add("Div", x, width), graph.param(layer.scale))


@register(combine.Add)
def _add(graph: OnnxGraph, layer: combine.Add, *xs: str) -> str:
    return graph.add("Sum", *xs)


@register(combine.Multiply)
def _multiply(graph: OnnxGraph, layer: combine.Multiply, *xs: str) -> str:
    n_axes = len(layer.features[0].shape)
    product, *others = (
        graph.add("Unsqueeze", x, graph.integers([2, 3])) if len(source.shape) < n_axes else x
        for x, source in zip(xs, layer.sources, strict=True)
    )
    for x in others:
        product = graph.add("Mul", product, x)
    return product


@register(connection.Split)
def _split(graph: OnnxGraph, layer: connection.Split, x: str) -> list[str]:
    return [x] * len(layer.features)


@register(connection.Slice)
def _slice(graph: OnnxGraph, layer: connection.Slice, x: str) -> list[str]:
    sizes = [span.size for span in layer.spans]
    if len(sizes) == 1:
        return [x]
    if layer.axis:
        return graph.add_several("Split", x, graph.integers(sizes), outputs=len(sizes), axis=layer.axis)
    return graph.add_several("Split", x, outputs=len(sizes), axis=0, num_outputs=len(sizes))


@register(connection.Concate)
def _concate(graph: OnnxGraph, layer: connection.Concate, *xs: str) -> str:
    if layer.axis or layer.steps == 1:
        return graph.add("Concat", *xs, axis=layer.axis)
    rest = layer.features[0].shape[1:]
    by_steps = [graph.reshape(x, layer.steps, -1, *rest) for x in xs]
    return graph.reshape(graph.add("Concat", *by_steps, axis=1), -1, *rest)


@register(ArgSort)
def _arg_sort(graph: OnnxGraph, layer: ArgSort, x: str) -> str:
    # we sort equal scores by descending column, but ONNX sorts them by ascending column
    rows, width = graph.rows(x, layer.sources[0]), layer.sources[0].size
    backwards = graph.add("Gather", rows, graph.integers(range(width)[::-1]), axis=1)
    _, places = graph.add_several("TopK", backwards, graph.integers([layer.topk]), outputs=2, axis=1)
    columns = graph.add("Sub", graph.constant(width - 1, np.int64), places)
    return graph.add("Cast", columns, to=graph.onnx.TensorProto.FLOAT)


# -- images ------------------------------------------------------------------------------------------------


def window(layer: Windowed) -> dict[str, list[int]]:
    """Return the window of a layer as attributes. Padding is in the order top, left, bottom, right."""
    return {"kernel_shape": [*layer.kernel], "strides": [*layer.stride], "pads": [*layer.pad, *layer.pad]}


@register(conv.Convolution, conv.ConvTranspose)
def _convolution(graph: OnnxGraph, layer: conv.Convolution | conv.ConvTranspose, x: str) -> str:
    images, weight = graph.images(x, layer.sources[0]), graph.param(layer.weight, layer.shape)
    biases = [] if layer.bias is None else [graph.param(layer.bias)]
    how = {**window(layer), "dilations": [*layer.dilation], "group": layer.groups}
    if isinstance(layer, conv.Convolution):
        return graph.add("Conv", images, weight, *biases, **how)
    return graph.add("ConvTranspose", images, weight, *biases, output_padding=2 * [layer.output_pad], **how)


@register(upsample.Upsample)
def _upsample(graph: OnnxGraph, layer: upsample.Upsample, x: str) -> str:
    scales = graph.constant([1, 1, *layer.window], name="scales")
    if layer.takes_lines:
        how = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    else:
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return graph.add("Resize", graph.images(x, layer.sources[0]), "", scales, **how)


@register(pooling.AdaptivePooling)
def _adaptive_pooling(graph: OnnxGraph, layer: pooling.AdaptivePooling, x: str) -> str:
    images = graph.images(x, layer.sources[0])
    if len(layer.cells) == 1:
        kernel = [*layer.cells[0][2]]
        operator = "AveragePool" if layer.takes_mean else "MaxPool"
        return graph.add(operator, images, kernel_shape=kernel, strides=kernel)
    axes, reduce = graph.constant([2, 3], np.int64), "ReduceMean" if layer.takes_mean else "ReduceMax"
    cells = []
    for (_, *cuts), _, _ in layer.cells:
        edges = [graph.constant([getattr(cut, edge) for cut in cuts], np.int64) for edge in ("start", "stop")]
        cells.append(graph.add(reduce, graph.add("Slice", images, *edges, axes), axes, keepdims=1))
    width = layer.features[0].shape[3]
    rows = [graph.add("Concat", *cells[i : i + width], axis=3) for i in range(0, len(cells), width)]
    return graph.add("Concat", *rows, axis=2)


@register(pooling.Pooling)
def _pooling(graph: OnnxGraph, layer: pooling.Pooling, x: str) -> str:
    images = graph.images(x, layer.sources[0])
    if layer.takes_mean:
        return graph.add("AveragePool", images, count_include_pad=int(layer.count_pad), **window(layer))
    return graph.add("MaxPool", images, **window(layer))


@register(pooling.GlobalPooling)
def _global_pooling(graph: OnnxGraph, layer: pooling.GlobalPooling, x: str) -> str:
    operator = "GlobalAveragePool" if layer.takes_mean else "GlobalMaxPool"
    return graph.add("Flatten", graph.add(operator, graph.images(x, layer.sources[0])), axis=1)


@register(norm.LRN)
def _lrn(graph: OnnxGraph, layer: norm.LRN, x: str) -> str:
    size, alpha, beta, knorm = layer.how.values()
    images = graph.images(x, layer.sources[0])
    normal = graph.add("LRN", images, size=size, alpha=alpha, beta=beta, bias=knorm)
    return like_source(graph, layer, normal)


@register(norm.BatchNorm)
def _batch_norm(graph: OnnxGraph, layer: norm.BatchNorm, x: str) -> str:
    images = x if layer.rows_of_values else graph.images(x, layer.sources[0])
    params = [graph.param(param) for param in layer.params]
    return like_source(graph, layer, graph.add("BatchNormalization", images, *params, epsilon=layer.epsilon))


@register(norm.GroupNorm)
def _group_norm(graph: OnnxGraph, layer: norm.GroupNorm, x: str) -> str:
    shape = layer.sources[0].shape
    images = graph.images(x, layer.sources[0])
    n_channels = layer.scale.shape[0]
    n_groups = layer.mean.shape[1]
    groups = graph.reshape(images, 0, n_groups, -1)
    ones, zeros = graph.constant([1.0] * n_groups), graph.constant([0.0] * n_groups)
    normal = graph.add("InstanceNormalization", groups, ones, zeros, epsilon=layer.epsilon)
    normal = graph.reshape(normal, -1, n_channels, *shape[-2:])
    scaled = graph.add("Mul", normal, graph.param(layer.scale, (n_channels, 1, 1)))
    return like_source(graph, layer, graph.add("Add", scaled, graph.param(layer.shift, (n_channels, 1, 1))))


@register(ImagePreprocess)
def _image_preprocess(graph: OnnxGraph, layer: ImagePreprocess, x: str) -> str:
    pad, (top, left) = layer.pad, (int(room) // 2 for room in layer.room)
    height, width = layer.features[0].shape[2:]
    if pad:
        x = graph.add("Pad", x, graph.integers([0, 0, pad, pad, 0, 0, pad, pad]))
    if layer.room.any():
        starts, ends = graph.integers([top, left]), graph.integers([top + height, left + width])
        x = graph.add("Slice", x, starts, ends, graph.integers([2, 3]))
    return x if layer.scale == 1 else graph.add("Mul", x, graph.constant(layer.scale))


def like_source(graph: OnnxGraph, layer: norm.LRN | norm.BatchNorm | norm.GroupNorm, images: str) -> str:
    """Return images in the shape of the source, which may lack the channel axis."""
    shape = layer.sources[0].shape
    return images if len(shape) != 3 else graph.add("Squeeze", images, graph.integers([1]))


# -- texts and other sequences: rows (T N, D), first time step first -------------------------


# For each gate in the order of ONNX, its index in our order. GRU: ONNX has z, r, h; we have z, r, c. LSTM: ONNX has i,
# o, f, c; we have i, f, g, o.
GATES: dict[type[Layer], tuple[int, ...]] = {
    recurrent.GRU: (0, 1, 2),
    recurrent.LSTM: (0, 3, 1, 2),
    recurrent.RNN: (0,),
}


@register(CharRNN)
def _char_rnn(graph: OnnxGraph, layer: CharRNN) -> str:
    # the input has no last column, because this column is only a label
    return graph.input(layer.conf_name, (BATCH, layer.options.unroll_len), np.int64)


def numbers(graph: OnnxGraph, layer: Numbers, x: str) -> str:
    """Return the integers that a layer reads: (rows,) int64, first time step first; all columns as (N, k)."""
    source, site = layer.sources[0], layer.site
    x = graph.add("Cast", graph.rows(x, source), to=graph.onnx.TensorProto.INT64)
    if layer.all_columns:
        return x
    if layer.own_columns:
        first, last = graph.integers([site.first_step]), graph.integers([site.first_step + site.n_steps])
        x = graph.add("Slice", x, first, last, graph.integers([1]))
        x = graph.add("Transpose", x, perm=[1, 0])
    elif source.n_steps == 1 and site.n_steps > 1:
        x = graph.add("Concat", *[x] * site.n_steps, axis=0)
    return graph.reshape(x, -1)


@register(embedding.OneHot)
def _one_hot(graph: OnnxGraph, layer: embedding.OneHot, x: str) -> str:
    depth, values = graph.integers([layer.n_values]), graph.constant([0.0, 1.0])
    return graph.add("OneHot", numbers(graph, layer, x), depth, values, axis=-1)


@register(embedding.Embedding)
def _embedding(graph: OnnxGraph, layer: embedding.Embedding, x: str) -> str:
    # the appended row of zeros has index -1, which stands for padding
    zeros = graph.constant(np.zeros((1, layer.table.shape[1])))
    table = graph.add("Concat", graph.param(layer.table), zeros, axis=0)
    return graph.add("Gather", table, numbers(graph, layer, x), axis=0)


@register(embedding.PositionalEmbedding)
def _positional_embedding(graph: OnnxGraph, layer: embedding.PositionalEmbedding, x: str) -> str:
    site, width = layer.site, layer.features[0].shape[1]
    steps = graph.integers(range(site.first_step, site.first_step + site.n_steps))
    rows = graph.reshape(graph.add("Gather", graph.param(layer.table), steps, axis=0), site.n_steps, 1, width)
    return graph.reshape(graph.add("Add", graph.reshape(x, site.n_steps, -1, width), rows), -1, width)


@register(sequence.PaddingMask)
def _padding_mask(graph: OnnxGraph, layer: sequence.PaddingMask, x: str) -> str:
    read, n_steps = numbers(graph, layer, x), layer.site.n_steps
    if layer.takes_lengths:
        steps = graph.constant(np.arange(n_steps)[:, None], np.int64)
        return graph.reshape(graph.add("Greater", graph.reshape(read, n_steps, -1), steps), -1, 1)
    return graph.reshape(graph.add("Not", graph.add("Equal", read, graph.constant(layer.padding, np.int64))), -1, 1)


@register(sequence.TimePooling)
def _time_pooling(graph: OnnxGraph, layer: sequence.TimePooling, x: str, mask: str = "") -> str:
    width = layer.sources[0].shape[1]
    steps, axes = graph.reshape(x, layer.n_steps, -1, width), graph.integers([0])
    if not mask and layer.pool in ("FIRST", "LAST"):
        return graph.add("Gather", steps, graph.constant(0 if layer.pool == "FIRST" else -1, np.int64), axis=0)
    if not mask:
        return graph.add("ReduceMean" if layer.pool == "AVG" else "ReduceMax", steps, axes, keepdims=0)
    valid = graph.add("Cast", graph.reshape(mask, layer.n_steps, -1, 1), to=graph.onnx.TensorProto.FLOAT)
    if layer.pool == "MAX":
        seen = graph.add("Where", graph.reshape(mask, layer.n_steps, -1, 1), steps, graph.constant(HIDDEN))
        has_steps = graph.add("ReduceMax", valid, axes, keepdims=0)
        return graph.add("Mul", graph.add("ReduceMax", seen, axes, keepdims=0), has_steps)
    if layer.pool != "AVG":
        # take the valid step of the highest rank; ranks are 1 ... T for LAST and T ... 1 for FIRST
        ranks = np.arange(1, layer.n_steps + 1)[:: 1 if layer.pool == "LAST" else -1, None, None]
        ranked = graph.add("Mul", valid, graph.constant(ranks))
        is_taken = graph.add("Equal", ranked, graph.add("ReduceMax", ranked, axes, keepdims=1))
        valid = graph.add("Mul", valid, graph.add("Cast", is_taken, to=graph.onnx.TensorProto.FLOAT))
    total = graph.add("ReduceSum", graph.add("Mul", steps, valid), axes, keepdims=0)
    n_valid = graph.add("Max", graph.add("ReduceSum", valid, axes, keepdims=0), graph.constant(1))
    return graph.add("Div", total, n_valid)


@register(sequence.ClassToken)
def _class_token(graph: OnnxGraph, layer: sequence.ClassToken, x: str) -> str:
    width, n_steps = layer.token.size, layer.site.n_steps - 1
    steps = graph.reshape(x, n_steps, -1, width)
    # multiply a time step by 0 to get a row of zeros for each sequence
    first = graph.add("Mul", graph.add("Slice", steps, *map(graph.integers, ([0], [1], [0]))), graph.constant(0))
    token = graph.add("Add", first, graph.param(layer.token))
    return graph.reshape(graph.add("Concat", token, steps, axis=0), -1, width)


@register(axes.Reshape)
def _reshape(graph: OnnxGraph, layer: axes.Reshape, x: str) -> str:
    return graph.reshape(x, -1, *layer.features[0].shape[1:])


@register(axes.Transpose)
def _transpose(graph: OnnxGraph, layer: axes.Transpose, x: str) -> str:
    order = list(range(len(layer.sources[0].shape)))
    one, other = layer.axes
    order[one], order[other] = other, one
    return graph.add("Transpose", x, perm=order)


@register(axes.Stack)
def _stack(graph: OnnxGraph, layer: axes.Stack, x: str) -> str:
    steps = graph.reshape(x, layer.n_steps, -1, layer.sources[0].shape[1])
    if not layer.images:
        return graph.add("Transpose", steps, perm=[1, 0, 2])
    return graph.add("Unsqueeze", graph.add("Transpose", steps, perm=[1, 2, 0]), graph.integers([2]))


@register(axes.Unstack)
def _unstack(graph: OnnxGraph, layer: axes.Unstack, x: str) -> str:
    perm = [1, 0, 2] if len(layer.sources[0].shape) == 3 else [3, 0, 2, 1]
    return graph.reshape(graph.add("Transpose", x, perm=perm), -1, layer.features[0].shape[1])


@register(attention.MultiHeadAttention)
def _multi_head_attention(graph: OnnxGraph, layer: attention.MultiHeadAttention, *xs: str) -> str:
    n_heads, width, names = layer.n_heads, layer.features[0].shape[1], dict(zip(layer.sources, xs, strict=True))
    heads: list[str] = []
    for source, of_params, _ in layer.projections:
        n_parts = (of_params.stop - of_params.start) // width
        rows = linear(graph, names[source], layer.qkv_weight, layer.qkv_bias, of_params)
        n_steps = source.shape[0] // layer.n_sequences
        by_part = graph.reshape(rows, n_steps, -1, n_parts, n_heads, width // n_heads)
        # each part has shape (N, H, T, d)
        by_part = graph.add("Transpose", by_part, perm=[2, 1, 3, 0, 4])
        heads += [graph.add("Gather", by_part, graph.constant(k, np.int64), axis=0) for k in range(n_parts)]
    queries, keys, values = heads
    if layer.rotary_base is not None:
        queries, keys = rotated(graph, layer, queries), rotated(graph, layer, keys)
    scores = graph.add("MatMul", queries, graph.add("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = graph.add("Mul", scores, graph.constant(layer.scale))
    if layer.mask is not None:
        valid = graph.add("Transpose", graph.reshape(names[layer.mask], layer.n_keys, -1), perm=[1, 0])
        valid = graph.add("Unsqueeze", valid, graph.integers([1, 2]))
        scores = graph.add("Where", valid, scores, graph.constant(HIDDEN))
    if layer.causal:
        later = np.triu(np.full((layer.n_steps, layer.n_keys), np.finfo(np.float32).min, np.float32), 1)
        scores = graph.add("Add", scores, graph.constant(later))
    weights = graph.add("Softmax", scores, axis=-1)
    if layer.mask is not None:
        weights = graph.add("Where", valid, weights, graph.constant(0))
    attended = graph.add("MatMul", weights, values)
    rows = graph.reshape(graph.add("Transpose", attended, perm=[2, 0, 1, 3]), -1, width)
    return linear(graph, rows, layer.output_weight, layer.output_bias)


def rotated(graph: OnnxGraph, layer: attention.MultiHeadAttention, heads: str) -> str:
    """Add the rotation of queries or keys (N, H, T, d) by their time steps."""
    one, other = graph.add_several("Split", heads, outputs=2, axis=3, num_outputs=2)
    cos, sin = (graph.constant(buffer.data) for buffer in (layer.cos, layer.sin))
    first = graph.add("Sub", graph.add("Mul", one, cos), graph.add("Mul", other, sin))
    second = graph.add("Add", graph.add("Mul", other, cos), graph.add("Mul", one, sin))
    return graph.add("Concat", first, second, axis=3)


def linear(graph: OnnxGraph, x: str, weight: Param, bias: Param | None, rows: slice = slice(None)) -> str:
    """Add x W^T + b. ``rows`` selects rows of the params, because queries, keys and values share them."""
    params = [param for param in (weight, bias) if param is not None]
    if rows == slice(None) or rows == slice(0, len(weight.data)):
        return graph.add("Gemm", x, *map(graph.param, params), transB=1)
    return graph.add("Gemm", x, *(graph.constant(param.data[rows]) for param in params), transB=1)


@register(*GATES)
def _recurrent(graph: OnnxGraph, layer: recurrent.Recurrent, *xs: str) -> str:
    """Add a recurrent layer. In ONNX the params of all gates are in one array.

    With ``carry_state`` the first state is an input of the model, and the last state is an output. The same is true for
    the cell of an LSTM.
    """
    cls = next(cls for cls in GATES if isinstance(layer, cls))
    operator, attributes = cls.__name__, dict[str, object]()
    if cls is recurrent.GRU:
        attributes["linear_before_reset"] = 1  # our GRU applies r after the matrix product
    elif isinstance(layer, recurrent.RNN):
        attributes["activations"] = [FUNCTIONS[layer.kernels.name]]
    source, dim, names = layer.sources[0], layer.dim, dict(zip(layer.sources, xs, strict=True))
    state = "" if layer.first_state is None else names[layer.first_state]
    n_steps = layer.site.n_steps
    steps = graph.reshape(graph.rows(xs[0], source), n_steps, -1, source.size)

    def joined(params: list[Param], name: str) -> str:
        values = [params[gate].data for gate in GATES[cls]]
        return graph.constant(np.concatenate(values)[None], name=name)

    biases = ""
    if layer.biases:
        own = np.concatenate([layer.biases[gate].data for gate in GATES[cls]])
        biases = graph.constant(np.concatenate([own, np.zeros_like(own)])[None], name="biases")
    carried = (("state", "cell") if operator == "LSTM" else ("state",)) if layer.carries else ()
    firsts = [state]
    if carried and not state:
        firsts = [graph.input(f"{layer.conf_name}.{name}", (BATCH, dim)) for name in carried]
    firsts = [graph.add("Unsqueeze", first, graph.integers([0])) if first else "" for first in firsts]
    weights = joined(layer.weights, "weights"), joined(layer.recurrences, "recurrences")
    attributes["hidden_size"] = dim
    if layer.mask is not None:
        masked = add_masked(graph, layer, operator, steps, (*weights, biases), names[layer.mask], firsts, attributes)
        states, lasts = masked[0], masked[1][: len(carried)]
    else:
        inputs = [steps, *weights, biases, "", *firsts]
        while not inputs[-1]:
            inputs.pop()
        if layer.reverse:
            attributes["direction"] = "reverse"
        states, *lasts = graph.add_several(operator, *inputs, outputs=1 + len(carried), **attributes)
    for name, last in zip(carried, lasts, strict=True):
        graph.next_state(f"{layer.conf_name}.next_{name}", graph.reshape(last, -1, dim), dim)
    return graph.reshape(states, -1, dim)


def add_masked(
    graph: OnnxGraph,
    layer: recurrent.Recurrent,
    operator: str,
    steps: str,
    params: Sequence[str],
    mask: str,
    firsts: Sequence[str],
    attributes: Mapping[str, object],
) -> tuple[str, list[str]]:
    """Add each time step of a recurrent layer separately, keeping the state at padding.

    Returns the states of all time steps, and the last states.
    """
    n_steps, n_states = layer.site.n_steps, 2 if operator == "LSTM" else 1
    valid = graph.reshape(mask, n_steps, -1, 1)
    xs, valids = (graph.add_several("Split", x, outputs=n_steps, axis=0, num_outputs=n_steps) for x in (steps, valid))
    nothing = graph.add("Mul", graph.add("ReduceSum", xs[0], graph.integers([2]), keepdims=1), graph.constant(0))
    zeros = graph.add("Add", nothing, graph.constant(np.zeros(layer.dim)))
    last = [first or zeros for first in (*firsts, "")[:n_states]]
    states: dict[int, str] = {}
    for t in sorted(range(n_steps), reverse=layer.reverse):
        _, *new = graph.add_several(operator, xs[t], *params, "", *last, outputs=1 + n_states, **attributes)
        last = [graph.add("Where", valids[t], each, old) for each, old in zip(new, last, strict=True)]
        states[t] = last[0]
    return graph.add("Concat", *(states[t] for t in range(n_steps)), axis=0), last
