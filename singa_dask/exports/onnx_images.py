"""Converters to ONNX: layers of images."""

from __future__ import annotations

from singa_dask.exports.converters import ONNX_CONVERTERS
from singa_dask.exports.onnx_graph import OnnxGraph
from singa_dask.layers.conv import Convolution, GlobalPooling, Pooling, Windowed
from singa_dask.layers.image import ImagePreprocess
from singa_dask.layers.norm import LRN, BatchNorm, GroupNorm

__all__: list[str] = []

register = ONNX_CONVERTERS.register


def window(layer: Windowed) -> dict[str, list[int]]:
    """Return the window of a layer as attributes; padding is that of top, left, bottom and right."""
    return {"kernel_shape": [*layer.kernel], "strides": [*layer.stride], "pads": [*layer.pad, *layer.pad]}


@register(Convolution)
def convolution(graph: OnnxGraph, layer: Convolution, x: str) -> str:
    biases = [] if layer.bias is None else [graph.param(layer.bias)]
    images = graph.images(x, layer.sources[0])
    return graph.add("Conv", images, graph.param(layer.weight, layer.shape), *biases, **window(layer))


@register(Pooling)
def pooling(graph: OnnxGraph, layer: Pooling, x: str) -> str:
    images = graph.images(x, layer.sources[0])
    if layer.takes_mean:
        return graph.add("AveragePool", images, count_include_pad=int(layer.count_pad), **window(layer))
    return graph.add("MaxPool", images, **window(layer))


@register(GlobalPooling)
def global_pooling(graph: OnnxGraph, layer: GlobalPooling, x: str) -> str:
    operator = "GlobalAveragePool" if layer.takes_mean else "GlobalMaxPool"
    return graph.add("Flatten", graph.add(operator, graph.images(x, layer.sources[0])), axis=1)


@register(LRN)
def lrn(graph: OnnxGraph, layer: LRN, x: str) -> str:
    size, alpha, beta, knorm = layer.how
    images = graph.images(x, layer.sources[0])
    made = graph.add("LRN", images, size=size, alpha=alpha, beta=beta, bias=knorm)
    return like_source(graph, layer, made)


@register(BatchNorm)
def batch_norm(graph: OnnxGraph, layer: BatchNorm, x: str) -> str:
    images = x if layer.rows_of_values else graph.images(x, layer.sources[0])
    params = [graph.param(param) for param in layer.params]
    return like_source(graph, layer, graph.add("BatchNormalization", images, *params, epsilon=layer.eps))


@register(GroupNorm)
def group_norm(graph: OnnxGraph, layer: GroupNorm, x: str) -> str:
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
def image_preprocess(graph: OnnxGraph, layer: ImagePreprocess, x: str) -> str:
    pad, (top, left) = layer.pad, (int(room) // 2 for room in layer.room)
    height, width = layer.features[0].shape[2:]
    if pad:
        x = graph.add("Pad", x, graph.integers([0, 0, pad, pad, 0, 0, pad, pad]))
    if layer.room.any():
        starts, ends = graph.integers([top, left]), graph.integers([top + height, left + width])
        x = graph.add("Slice", x, starts, ends, graph.integers([2, 3]))
    return x if layer.scale == 1 else graph.add("Mul", x, graph.constant(layer.scale))


def like_source(graph: OnnxGraph, layer: LRN | BatchNorm | GroupNorm, images: str) -> str:
    """Return images in the shape of the source, which may have no axis of channels."""
    shape = layer.sources[0].shape
    return images if len(shape) != 3 else graph.add("Squeeze", images, graph.integers([1]))
