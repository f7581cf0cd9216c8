"""Layers that move a window over images: convolution and pooling; after SINGA's src/neuralnet/neuron_layer/.

Images are (N, C, H, W), or (N, H, W) with one channel. A window has ``kernel``, ``stride`` and ``pad``, one number for
both axes or one for each (``kernel_x`` for widths, ``kernel_y`` for heights); it takes
floor((H + 2 pad - kernel) / stride) + 1 places down, and so to the right. With ``dilation`` d the pixels of a window
are d apart, and it reaches over d (kernel - 1) + 1 pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.model import Conf, Count, NonNegative, Size, choice
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Buffer, Layer, check_axes
from singa_dask.layers.feature import Raw
from singa_dask.layers.param import ZEROS, glorot
from singa_dask.layers.traits import Connection, Traits
from singa_dask.ops.contract import UNDILATED, Array

STRIDE, PAD = (1, 1), (0, 0)


class WindowConf(Conf):
    """A window that moves over images: one number for both axes where it is given, else one for each.

    ``kernel``, ``pad`` and ``stride`` rule over the keys that end in ``_x`` and ``_y``.
    """

    kernel: Size | None = None
    """Height and width of the window."""
    pad: Count | None = None
    """Rows and columns of padding on each side."""
    stride: Size | None = None
    """Step of the window on both axes."""
    kernel_x: Size = 3
    """Width of the window."""
    kernel_y: Size = 3
    """Height of the window."""
    pad_x: Count = 0
    """Columns of padding on the left and on the right."""
    pad_y: Count = 0
    """Rows of padding above and below."""
    stride_x: Size = 1
    """Step of the window to the right."""
    stride_y: Size = 1
    """Step of the window down."""

    def sizes(self, of: str) -> tuple[int, int]:
        """Return (height, width) of the window, (rows, columns) of padding, or the step (down, to the right)."""
        return getattr(self, self.key(of, 0)), getattr(self, self.key(of, 1))

    def key(self, of: str, axis: int) -> str:
        """Return the key that rules over an axis, 0 for height, 1 for width."""
        return of if getattr(self, of) is not None else f"{of}_{'yx'[axis]}"


class FilterConf(WindowConf):
    """A window of weights."""

    num_filters: Size
    """Channels of the output."""
    dilation: Size | None = None
    """Distance of neighbouring pixels of the window, on both axes."""
    dilation_x: Size = 1
    """Distance of neighbouring pixels of the window to the right."""
    dilation_y: Size = 1
    """Distance of neighbouring pixels of the window down."""
    groups: Size = 1
    """Cut channels and filters into so many parts; each part of the filters sees its part of the channels alone. As
    many as channels make the convolution depthwise."""
    bias_term: bool = True
    """Whether each filter has a bias."""


class ConvolutionConf(FilterConf):
    """``convolution_conf`` (SINGA's ConvolutionProto)."""

    workspace_byte_limit: Count = 512
    """Most memory for cuDNN, in MB."""


class PoolingConf(WindowConf):
    """``pooling_conf`` (SINGA's PoolingProto)."""

    pool: Annotated[Literal["MAX", "AVG"], choice()] = "MAX"
    """Take the largest value of a window, or the mean."""
    ties: Literal["first", "all"] = "first"
    """Which of equal largest values of a window get its gradient: the first, by rows, or each, as SINGA's kPooling."""
    count_include_pad: bool | None = None
    """Whether padding counts in a mean; when not given it does, but for CudnnPool."""
    stride_x: Size = 2
    """Step of the window to the right."""
    stride_y: Size = 2
    """Step of the window down."""


def image_shape(layer: Layer) -> tuple[int, int, int, int]:
    """Return (N, C, H, W) of the images that a layer reads; errors of `check_axes`."""
    check_axes(layer, "images (channels, height, width)", 3, 4)
    n, *rest = layer.sources[0].shape
    return (n, *rest) if len(rest) == 3 else (n, 1, *rest)  # type: ignore[return-value]


def as_images(x: Array) -> Array:
    """Return images (N, C, H, W); those that come as (N, H, W) have one channel."""
    return x if x.ndim == 4 else x[:, None]


class Windowed(Layer):
    """What layers with a window share: its size, and the checks of it."""

    traits = Traits(time_foldable=True, feature_parallel=Connection.ONE_TO_ONE)

    def set_window(self, block: WindowConf, name: str, sizes: tuple[int, int]) -> tuple[int, int]:
        """Take the window of a block; return how many places it takes on images of (height, width).

        Raises
        ------
        ConfigError
            It is larger than an image with its padding.
        """
        self.take_window(block)
        for axis, (size, what) in enumerate(zip(sizes, ("height", "width"), strict=True)):
            room = size + 2 * self.pad[axis]
            if self.reach[axis] > room:
                padded = " with its padding" if self.pad[axis] else ""
                wide = f"{self.reach[axis]} with its dilation" if self.dilation[axis] > 1 else f"{self.kernel[axis]}"
                message = f"expected at most {room}, the {what} of an image{padded}, got {wide}."
                raise ConfigError(Problem((name, block.key("kernel", axis)), message))
        down, right = (
            (size + 2 * pad - reach) // stride + 1
            for size, reach, stride, pad in zip(sizes, self.reach, self.stride, self.pad, strict=True)
        )
        return down, right

    def take_window(self, block: WindowConf) -> None:
        """Take the sizes of the window of a block; ``reach`` is how many pixels it reaches over."""
        self.kernel, self.stride, self.pad = block.sizes("kernel"), block.sizes("stride"), block.sizes("pad")
        self.dilation = block.sizes("dilation") if isinstance(block, FilterConf) else UNDILATED
        down, right = ((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        self.reach = (down, right)


@LAYERS.register("Convolution", "CConvolution", "CudnnConv")
class Convolution(Windowed):
    """y[n, f, i, j] = b[f] + sum_{c, k, l} W[f, c, k, l] x[n, c, i s + k d - pad, j s + l d - pad].

    Here s is ``stride``, d ``dilation``. x (N, C, H, W) is 0 outside; y (N, F, OH, OW); W (F, C kernel_y kernel_x) with
    columns in the order c, k, l; b (F,). The kernel is not flipped. ``bias_term: false`` leaves b out. With ``groups``
    G, filters and channels are cut into G parts, each part of the filters sees its part of the channels, and W has
    C / G channels; with G = C the convolution is depthwise.

    Notes
    -----
    Of SINGA's three the first takes the sizes of x for both axes; here all honour both.
    """

    block = ConvolutionConf
    # it writes to the gradient of its output only where that is a ReLU, which shares it with nobody
    traits = Windowed.traits.replace(
        params=("weight", "bias"),
        capturable=True,
        accumulates=True,
        reads_gradients=True,
        feature_parallel=Connection.ONE_TO_ALL,
    )

    def setup(self) -> None:
        block = self.conf.block(ConvolutionConf)
        n_rows, n_channels, *sizes = image_shape(self)
        places = self.set_window(block, "convolution_conf", (sizes[0], sizes[1]))
        check_groups("convolution_conf", block, n_channels)
        span = self.feature_span(block.num_filters)
        size = n_channels // block.groups
        first, last = (edge * block.groups / block.num_filters for edge in span[:2])
        if block.groups > 1 and not (first.is_integer() and last.is_integer()):
            count = self.site.feature_shard.count
            message = f"{block.groups} groups of filters cannot be shared by {count} workers. Say 0, or -1."
            raise ConfigError(Problem(("partition_dim",), message))
        self.groups = int(last - first) if block.groups > 1 else 1
        # those that the filters of this instance see
        self.channels = slice(int(first) * size, int(last) * size) if block.groups > 1 else slice(0, n_channels)
        output = self.add_output((n_rows, span.size, *places), overwritable=True, span=span)
        output.can_relu = type(self) is Convolution
        self.shape = (span.size, size, *self.kernel)
        area = self.kernel[0] * self.kernel[1]
        self.weight = self.add_param((span.size, size * area), initial=lambda whole: glorot(whole[1], whole[0] * area))
        self.bias = self.add_bias(span.size, block.bias_term, ZEROS)

    def forward(self, phase: Phase) -> None:
        x, w = as_images(self.sources[0].data)[:, self.channels], self.weight.data.reshape(self.shape)
        b, y = None if self.bias is None else self.bias.data, self.features[0]
        self.ops.conv2d(x, w, b, y.data, self.stride, self.pad, y.relu, self.dilation, self.groups)

    def backward(self, phase: Phase) -> None:
        source, feature = self.sources[0], self.features[0]
        gy = feature.masked_grad(self.ops)
        gw, gb = self.weight.grad.reshape(self.shape), None if self.bias is None else self.bias.grad
        x, how = as_images(source.data)[:, self.channels], (self.dilation, self.groups)
        self.ops.conv2d_grad_weight(x, gy, gw, gb, self.stride, self.pad, self.weight.accumulates, *how)
        if source.grad is not None:
            w, gx = self.weight.data.reshape(self.shape), as_images(source.grad)
            for unseen in (gx[:, : self.channels.start], gx[:, self.channels.stop :]):
                if unseen.size:
                    self.ops.clear(unseen)
            self.ops.conv2d_grad_input(gy, w, gx[:, self.channels], self.stride, self.pad, *how)


def check_groups(name: str, block: FilterConf, n_channels: int) -> None:
    """Raise ConfigError where channels or filters cannot be cut into the groups of a block."""
    for n, what in ((n_channels, "channels that it reads"), (block.num_filters, "filters")):
        if n % block.groups:
            message = f"expected a divisor of the number of {what}, {n}, got {block.groups}."
            raise ConfigError(Problem((name, "groups"), message))


class ConvTransposeConf(FilterConf):
    """``convtranspose_conf``."""

    output_pad: Count = 0
    """Rows and columns more of the output, below and to the right; less than the stride or the dilation."""


@LAYERS.register("ConvTranspose", "Deconvolution")
class ConvTranspose(Windowed):
    """y[n, f, i s + k d - pad, j s + l d - pad] += W[c, f, k, l] x[n, c, i, j], from y = b: a convolution turned round.

    Here s is ``stride``, d ``dilation``. x (N, C, H, W); y (N, F, OH, OW) with
    OH = (H - 1) s + d (kernel - 1) + 1 - 2 pad + output_pad, and the width likewise; W (C, F kernel_y kernel_x) with
    columns in the order f, k, l; b (F,). It computes the gradient of a `Convolution` of y with respect to its input.
    With ``groups`` G, channels and filters are cut into G parts, and W has F / G filters.

    Notes
    -----
    Zeiler et al. (2010). With ``kernel`` 2 and ``stride`` 2 it doubles height and width.
    """

    block = ConvTransposeConf
    traits = Traits(
        params=("weight", "bias"), time_foldable=True, capturable=True, accumulates=True, reads_gradients=True
    )

    def setup(self) -> None:
        block = self.conf.block(ConvTransposeConf)
        n_rows, n_channels, *sizes = image_shape(self)
        self.take_window(block)
        check_groups("convtranspose_conf", block, n_channels)
        self.groups, self.output_pad = block.groups, block.output_pad
        places = []
        for axis, size in enumerate(sizes):
            if self.output_pad and self.output_pad >= max(self.stride[axis], self.dilation[axis]):
                message = f"expected less than the stride or the dilation, {self.stride[axis]} and "
                message += f"{self.dilation[axis]}, got {self.output_pad}."
                raise ConfigError(Problem(("convtranspose_conf", "output_pad"), message))
            places.append((size - 1) * self.stride[axis] + self.reach[axis] - 2 * self.pad[axis] + self.output_pad)
            if places[axis] < 1:
                message = f"expected less, as nothing is left of the output, got {self.pad[axis]}."
                raise ConfigError(Problem(("convtranspose_conf", block.key("pad", axis)), message))
        self.add_output((n_rows, block.num_filters, *places))
        n_filters, area = block.num_filters // self.groups, self.kernel[0] * self.kernel[1]
        self.shape = (n_channels, n_filters, *self.kernel)
        self.weight = self.add_param(
            (n_channels, n_filters * area), initial=lambda whole: glorot(n_channels * area // self.groups, whole[1])
        )
        self.bias = self.add_bias(block.num_filters, block.bias_term, ZEROS)
        # means over pixels of the gradient, for that of the bias
        self.means = self.buffer("means", (n_rows, block.num_filters), self.context.dtype, when="backward")

    def forward(self, phase: Phase) -> None:
        x, w, y = as_images(self.sources[0].data), self.weight.data.reshape(self.shape), self.features[0].data
        self.ops.conv2d_grad_input(x, w, y, self.stride, self.pad, self.dilation, self.groups)
        if self.bias is not None:
            self.ops.add(y, self.bias.data[:, None, None], out=y)

    def backward(self, phase: Phase) -> None:
        source, gy, how = self.sources[0], self.features[0].output_grad, (self.dilation, self.groups)
        x, gw, accumulates = as_images(source.data), self.weight.grad.reshape(self.shape), self.weight.accumulates
        self.ops.conv2d_grad_weight(gy, x, gw, None, self.stride, self.pad, accumulates, *how)
        if self.bias is not None:
            self.ops.global_avg_pool(gy, out=self.means.data)
            self.ops.multiply(self.means.data, float(gy[0, 0].size), out=self.means.data)
            self.ops.linear_grad_bias(self.means.data, self.bias.grad, accumulate=self.bias.accumulates)
        if source.grad is not None:
            w = self.weight.data.reshape(self.shape)
            self.ops.conv2d(gy, w, None, as_images(source.grad), self.stride, self.pad, False, *how)


class UpsampleConf(Conf):
    """``upsample_conf``."""

    factor: Size = 2
    """How many times as high and as wide images become."""
    mode: Annotated[Literal["NEAREST", "BILINEAR"], choice()] = "NEAREST"
    """Repeat each pixel, or draw lines between the centres of pixels; before the first and after the last one values
    stay the same."""


@LAYERS.register()
class Upsample(Layer):
    """y (N, C, factor H, factor W) = images x (N, C, H, W), ``factor`` times as high and wide: ``mode``.

    NEAREST repeats each pixel. BILINEAR takes for pixel i of y the place (i + 1/2) / factor - 1/2 of x, and its value
    by a line between the two nearest pixels, down and to the right.
    """

    block = UpsampleConf
    traits = Traits(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        block = self.conf.block(UpsampleConf)
        self.window, self.takes_lines = (block.factor, block.factor), block.mode == "BILINEAR" and block.factor > 1
        n_rows, n_channels, height, width = image_shape(self)
        self.add_output((n_rows, n_channels, height * block.factor, width * block.factor), overwritable=True)
        if self.takes_lines:
            # a transposed convolution of the images with their edges repeated once
            size = 2 * block.factor - block.factor % 2
            self.pad = ((block.factor + size) // 2,) * 2
            line = 1 - np.abs(np.arange(size) - (size - 1) / 2) / block.factor
            self.weights = self.buffer("weights", (n_channels, 1, size, size), make=partial(self._kernels, line))
            self.edged = self.buffer("edged", (n_rows, n_channels, height + 2, width + 2), self.context.dtype)

    def _kernels(self, line: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        memory = self.ops.empty(shape, dtype)
        self.ops.copy(np.broadcast_to(np.outer(line, line), shape).astype(dtype), out=memory)
        return memory

    def _phases(self, y: Array) -> Iterator[Array]:
        """Yield the pixels of y that repeat one pixel of x each, by their place in it."""
        for i, j in np.ndindex(*self.window):
            yield y[:, :, i :: self.window[0], j :: self.window[1]]

    def forward(self, phase: Phase) -> None:
        x, y = as_images(self.sources[0].data), self.features[0].data
        if not self.takes_lines:
            for pixels in self._phases(y):
                self.ops.copy(x, out=pixels)
            return
        edged = self.edged.data
        self.ops.copy(x, out=edged[:, :, 1:-1, 1:-1])
        for edge, inside in EDGES:
            self.ops.copy(edged[inside], out=edged[edge])
        self.ops.conv2d_grad_input(edged, self.weights.data, y, self.window, self.pad, UNDILATED, x.shape[1])

    def backward(self, phase: Phase) -> None:
        source = self.sources[0]
        if source.grad is None:
            return
        gy, gx = self.features[0].output_grad, as_images(source.grad)
        if not self.takes_lines:
            self.ops.avg_pool(gy, gx, self.window, self.window, PAD, True)
            self.ops.multiply(gx, float(self.window[0] * self.window[1]), out=gx)
            return
        edged = self.edged.data
        self.ops.conv2d(gy, self.weights.data, None, edged, self.window, self.pad, False, UNDILATED, gx.shape[1])
        for edge, inside in reversed(EDGES):
            self.ops.add(edged[inside], edged[edge], out=edged[inside])
        self.ops.copy(edged[:, :, 1:-1, 1:-1], out=gx)


_ALL, _INSIDE = slice(None), slice(1, -1)
EDGES = [
    ((_ALL, _ALL, slice(1), _INSIDE), (_ALL, _ALL, slice(1, 2), _INSIDE)),
    ((_ALL, _ALL, slice(-1, None), _INSIDE), (_ALL, _ALL, slice(-2, -1), _INSIDE)),
    # columns last: they have the corners
    ((_ALL, _ALL, _ALL, slice(1)), (_ALL, _ALL, _ALL, slice(1, 2))),
    ((_ALL, _ALL, _ALL, slice(-1, None)), (_ALL, _ALL, _ALL, slice(-2, -1))),
]
"""The edges of images that have one pixel more on each side, and the pixels beside each edge, which it repeats."""


@LAYERS.register("Pooling", "CPooling", "CudnnPool")
class Pooling(Windowed):
    """y (N, C, OH, OW) = the largest value of each window of x (N, C, H, W), or their mean: ``pool`` MAX or AVG.

    Padding never is the largest; of equal values the first, by rows, gets the gradient, or all do (``ties``). A mean
    is the sum of the window's pixels over kernel_y kernel_x, or over the number of its pixels that are in the image
    where ``count_include_pad`` is false, as it is for CudnnPool by itself.

    Notes
    -----
    SINGA's kPooling takes no notice of ``pad`` and gives the gradient to all of equal values, as its job files do here
    (``ties: all``); its kCPooling mixes up the axes.
    """

    block = PoolingConf
    traits = Windowed.traits.replace(capturable=True)

    def setup(self) -> None:
        block = self.conf.block(PoolingConf)
        n_rows, n_channels, *sizes = image_shape(self)
        places = self.set_window(block, "pooling_conf", (sizes[0], sizes[1]))
        for axis in range(2):
            if self.pad[axis] >= self.kernel[axis]:
                message = f"expected less than the kernel, which is {self.kernel[axis]}, got {self.pad[axis]}."
                raise ConfigError(Problem(("pooling_conf", block.key("pad", axis)), message))
        self.takes_mean, self.all_ties = block.pool == "AVG", block.ties == "all"
        if self.all_ties and self.context.dtype != self.context.param_dtype:
            raise ConfigError(Problem(("pooling_conf", "ties"), "all is not for precision bf16; expected first."))
        counts = block.count_include_pad
        self.count_pad = self.conf.type != "CudnnPool" if counts is None else counts
        self.y = self.add_output((n_rows, n_channels, *places), overwritable=not self.all_ties)
        self.where: Buffer | None = None
        if not self.takes_mean and not self.all_ties:
            self.where = self.buffer("where", self.y.shape, self.ops.place_dtype(self.kernel), when="backward")

    def attach(self) -> None:
        # a mean of a ReLU computes its gradient too: one pass less over it
        if self.takes_mean and (below := self.sources[0].relu_of):
            below.is_masked = True

    def forward(self, phase: Phase) -> None:
        x, y = as_images(self.sources[0].data), self.features[0].data
        if self.takes_mean:
            self.ops.avg_pool(x, y, self.kernel, self.stride, self.pad, self.count_pad)
        else:
            where = None if self.where is None else self.where.data_if_needed
            self.ops.max_pool(x, y, where, self.kernel, self.stride, self.pad)

    def backward(self, phase: Phase) -> None:
        source = self.sources[0]
        if source.grad is None:
            return
        gy, gx = self.features[0].output_grad, as_images(source.grad)
        if self.takes_mean and source.relu_of is not None:
            relu = as_images(source.data)
            self.ops.avg_pool_relu_grad(relu, gy, gx, self.kernel, self.stride, self.pad, self.count_pad)
        elif self.takes_mean:
            self.ops.avg_pool_grad(gy, gx, self.kernel, self.stride, self.pad, self.count_pad)
        elif self.all_ties:
            x, y = as_images(source.data), self.features[0].data
            self.ops.max_pool_grad_ties(x, y, gy, gx, self.kernel, self.stride, self.pad)
        elif self.where is not None:
            self.ops.max_pool_grad(gy, self.where.data, gx, self.kernel, self.stride, self.pad)


class GlobalPoolingConf(Conf):
    """``globalpooling_conf``."""

    pool: Annotated[Literal["MAX", "AVG"], choice()] = "AVG"
    """Take the mean of all pixels, or the largest value."""


@LAYERS.register()
class GlobalPooling(Layer):
    """y (N, C) = the mean of each channel of x (N, C, H, W) over its pixels, or its largest value: ``pool`` AVG or MAX.

    Of equal largest values the first, by rows, gets the gradient. The mean is that of Lin et al. (2014).
    """

    block = GlobalPoolingConf
    traits = Traits(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        self.takes_mean = self.conf.block(GlobalPoolingConf).pool == "AVG"
        n_rows, n_channels, height, width = image_shape(self)
        self.size = (height, width)
        self.add_output((n_rows, n_channels), overwritable=True)
        self.where: Buffer | None = None
        if not self.takes_mean:
            shape = (n_rows, n_channels, 1, 1)
            self.where = self.buffer("where", shape, self.ops.place_dtype(self.size), when="backward")

    def forward(self, phase: Phase) -> None:
        x, y = as_images(self.sources[0].data), self.features[0].data
        if self.takes_mean:
            self.ops.global_avg_pool(x, out=y)
        else:
            where = None if self.where is None else self.where.data_if_needed
            self.ops.max_pool(x, y[:, :, None, None], where, self.size, STRIDE, PAD)

    def backward(self, phase: Phase) -> None:
        source = self.sources[0]
        if source.grad is None:
            return
        gy, gx = self.features[0].output_grad, as_images(source.grad)
        if self.where is None:
            self.ops.global_avg_pool_grad(gy, out=gx)
        else:
            self.ops.max_pool_grad(gy[:, :, None, None], self.where.data, gx, self.size, STRIDE, PAD)


class AdaptivePoolingConf(Conf):
    """``adaptivepooling_conf``."""

    height: Size
    """Height of the output."""
    width: Size
    """Width of the output."""
    pool: Annotated[Literal["MAX", "AVG"], choice()] = "AVG"
    """Take the mean of the pixels of a window, or the largest value."""


@LAYERS.register()
class AdaptivePooling(Layer):
    """y (N, C, OH, OW) = the mean of each of OH OW windows of x (N, C, H, W), or its largest value: ``pool``.

    Window i reaches down from row floor(i H / OH) to before row ceil((i + 1) H / OH), and to the right likewise, so
    that images of any size give ``height`` OH and ``width`` OW. Neighbours share a row where OH does not divide H.
    """

    block = AdaptivePoolingConf
    traits = Traits(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        block = self.conf.block(AdaptivePoolingConf)
        n_rows, n_channels, *sizes = image_shape(self)
        wanted, self.takes_mean = (block.height, block.width), block.pool == "AVG"
        for size, n, key in zip(sizes, wanted, ("height", "width"), strict=True):
            if n > size:
                message = f"expected at most {size}, the {key} of an image, got {n}."
                raise ConfigError(Problem(("adaptivepooling_conf", key), message))
        self.add_output((n_rows, n_channels, *wanted), overwritable=True)
        # (pixels of x, windows of y, kernel): all windows at once where they have one size and share no pixels
        self.cells: list[tuple[Any, Any, tuple[int, int]]] = []
        if not any(size % n for size, n in zip(sizes, wanted, strict=True)):
            self.cells = [(..., ..., (sizes[0] // wanted[0], sizes[1] // wanted[1]))]
        else:
            for at in np.ndindex(*wanted):
                cuts = [slice(i * s // n, -(-(i + 1) * s // n)) for i, s, n in zip(at, sizes, wanted, strict=True)]
                places = [slice(i, i + 1) for i in at]
                kernel = (cuts[0].stop - cuts[0].start, cuts[1].stop - cuts[1].start)
                self.cells.append(((..., *cuts), (..., *places), kernel))
        self.where: list[Buffer] = []
        for i, (_, _, kernel) in enumerate(self.cells if not self.takes_mean else ()):
            shape = (n_rows, n_channels, *(wanted if len(self.cells) == 1 else (1, 1)))
            self.where.append(self.buffer(f"where{i}", shape, self.ops.place_dtype(kernel), when="backward"))

    def forward(self, phase: Phase) -> None:
        x, y = as_images(self.sources[0].data), self.features[0].data
        for i, (pixels, windows, kernel) in enumerate(self.cells):
            if self.takes_mean:
                self.ops.avg_pool(x[pixels], y[windows], kernel, kernel, PAD, True)
            else:
                self.ops.max_pool(x[pixels], y[windows], self.where[i].data_if_needed, kernel, kernel, PAD)

    def backward(self, phase: Phase) -> None:
        source = self.sources[0]
        if source.grad is None:
            return
        gy, gx = self.features[0].output_grad, as_images(source.grad)
        if len(self.cells) > 1:
            self.ops.clear(gx)
        for i, (pixels, windows, kernel) in enumerate(self.cells):
            cell, g = gx[pixels], gy[windows]
            part = cell if len(self.cells) == 1 else self.ops.scratch("cell", cell.shape, cell.dtype)
            if self.takes_mean:
                self.ops.avg_pool_grad(g, part, kernel, kernel, PAD, True)
            else:
                self.ops.max_pool_grad(g, self.where[i].data, part, kernel, kernel, PAD)
            if part is not cell:
                self.ops.add(cell, part, out=cell)


# Layers for images: ImagePreprocess crops, mirrors and scales a batch.


class RGBImageConf(Conf):
    """``rgbimage_conf``: crop, mirror and scale images (SINGA's RGBImageProto)."""

    scale: NonNegative = 1.0
    """Multiplies each pixel."""
    cropsize: Count = 0
    """Height and width to cut out, anywhere in training, else from the centre; 0 keeps the whole image."""
    mirror: bool = False
    """Mirror half of the training images."""
    pad: Count = 0
    """Rows and columns of zeros on each side of an image, from which it is then cut. They are not normalised."""
    meanfile: str = ""
    """Store whose first record is subtracted; read by the deprecated RGBImage layer only."""


@LAYERS.register()
class ImagePreprocess(Layer):
    """y = ``scale`` x, of images (N, C, H, W) cut to ``cropsize``: (N, C, cropsize, cropsize), or whole if that is 0.

    In training each image is cropped at a random place, and with ``mirror`` one of two is mirrored left to right;
    otherwise the centre is cropped. Place and mirroring are a function of seed, layer, epoch and record: the same for
    any number of workers and after a resume. Labels are passed on.

    With ``pad`` images get so many zeros on each side before they are cut: with a ``cropsize`` of their own size they
    are moved by up to ``pad`` pixels in training, and not at all otherwise.

    Notes
    -----
    SINGA crops the top left corner in tests, and never mirrors images that it does not crop. It needs H = W.
    """

    block = RGBImageConf
    traits = Traits(consumes=(("raw", "labels", "ids"),), needs_split=False)

    def setup(self) -> None:
        block, shape = self.conf.block(RGBImageConf), self.sources[0].shape
        self.scale, self.mirror, self.pad = block.scale, block.mirror, block.pad
        check_axes(self, "images (channels, height, width)", 4)
        if self.sources[0].requires_grad:
            name = self.conf.srclayers[0]
            message = f"{name!r} may learn, but {self.conf.type} has no gradient. Put it behind an input layer."
            raise ConfigError(Problem(("srclayers",), message))
        height, width = (size + 2 * self.pad for size in shape[2:])
        if block.cropsize > min(height, width):
            padded = " with their padding" if self.pad else ""
            message = f"expected at most {min(height, width)}, as images are {height} x {width}{padded}, "
            message += f"got {block.cropsize}."
            raise ConfigError(Problem(("rgbimage_conf", "cropsize"), message))
        if block.meanfile:
            message = f"{self.conf.type} subtracts nothing. Give mean_file in store_conf of the input layer."
            raise ConfigError(Problem(("rgbimage_conf", "meanfile"), message))
        size = (block.cropsize, block.cropsize) if block.cropsize else (height, width)
        # how far the cut may move down and to the right
        self.room = np.array([height - size[0], width - size[1]])
        self.add_output((*shape[:2], *size), requires_grad=False)
        if self.pad:
            # memory of features is zeros at first, and the border stays so
            self.padded = self.buffer("padded", (*shape[:2], height, width))

    def forward(self, phase: Phase) -> None:
        source, feature = self.sources[0], self.features[0]
        feature.records = source.records
        raw = source.raw or Raw(source.data)
        if self.pad:
            raw = self.with_zeros(raw)
        top, left, mirrored = self.places(phase)
        self.ops.crop_mirror_normalize(raw.values, top, left, mirrored, raw.mean, raw.std, self.scale, out=feature.data)

    def with_zeros(self, raw: Raw) -> Raw:
        """Return normalised images with zeros around them."""
        n_rows, _, height, width = self.sources[0].shape
        images = self.padded.data[:, :, self.pad : self.pad + height, self.pad : self.pad + width]
        nowhere = np.zeros(n_rows, np.int64)
        self.ops.crop_mirror_normalize(
            raw.values, nowhere, nowhere, nowhere.astype(bool), raw.mean, raw.std, 1.0, out=images
        )
        return Raw(self.padded.data)

    def places(self, phase: Phase) -> tuple[Array, Array, Array]:
        """Return row and column at which each image is cut, and whether it is mirrored: three arrays (N,)."""
        n_rows = self.features[0].shape[0]
        if not phase & Phase.TRAIN:
            top, left = np.repeat(self.room[:, None] // 2, n_rows, axis=1)
            return top, left, np.zeros(n_rows, bool)
        source, context = self.sources[0], self.context
        ids, epochs = source.records.ids, source.records.epochs
        if ids is None or epochs is None:
            # records without numbers: a row of a step stands for one
            ids = self.first_row(n_rows) + np.arange(n_rows)
            epochs = np.full(n_rows, context.step)
        words = self.ops.random_words((context.seed, self.conf_name), ids, epochs)
        top, left = words[:2] * (self.room[:, None] + 1) >> 32
        return top, left, (words[2] >> 31 == 1) & self.mirror
