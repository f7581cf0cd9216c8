"""Converters to PyTorch: layers of images."""

from __future__ import annotations

import numpy as np

from singa_dask.errors import ConfigError
from singa_dask.exports.converters import TORCH_CONVERTERS
from singa_dask.exports.torch_module import TorchModule
from singa_dask.layers.conv import Convolution, GlobalPooling, Pooling
from singa_dask.layers.image import ImagePreprocess
from singa_dask.layers.norm import LRN, BatchNorm, GroupNorm

__all__: list[str] = []

register = TORCH_CONVERTERS.register


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
