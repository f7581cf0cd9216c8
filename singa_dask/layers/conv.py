"""Convolution layers, forward and transposed; after SINGA's src/neuralnet/neuron_layer/convolution.cc.

`singa_dask.layers.window` documents the shapes of images and windows.
"""

from __future__ import annotations

from singa_dask.conf import Phase
from singa_dask.conf.kinds import Count
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS
from singa_dask.layers.param import ZEROS, glorot
from singa_dask.layers.traits import Connection, Speed, Traits
from singa_dask.layers.window import FilterConf, Windowed, as_images, image_shape
from singa_dask.ops.contract import ConvWindow


class ConvolutionConf(FilterConf):
    """``convolution_conf`` (SINGA's ConvolutionProto)."""

    workspace_byte_limit: Count = 512
    """Maximum workspace of cuDNN, in MB."""


@LAYERS.register("Convolution", "CConvolution", "CudnnConv")
class Convolution(Windowed):
    """y[n, f, i, j] = b[f] + sum_{c, k, l} W[f, c, k, l] x[n, c, i s + k d - pad, j s + l d - pad].

    Here s is ``stride`` and d is ``dilation``. x has the shape (N, C, H, W) and counts as 0 outside the image. y has
    the shape (N, F, OH, OW). The params are W (F, C kernel_y kernel_x), with columns in the order c, k, l, and b (F,).
    The kernel is not flipped. With ``bias_term: false`` there is no b.

    With ``groups`` G, filters and channels are divided into G groups. A filter reads only the channels of its group,
    and W has C / G channels. With G = C the convolution is depthwise.

    Notes
    -----
    SINGA's kConvolution uses the horizontal kernel, stride and padding for both axes. This layer uses the sizes of both
    axes, whichever of their names a job uses.
    """

    options_class = ConvolutionConf
    traits = Windowed.traits.replace(params=("weight", "bias"))
    # backward writes to the output's gradient only with a fused ReLU, and then no other feature shares the array
    speed = Windowed.speed.replace(
        capturable=True,
        accumulates=True,
        reads_gradients=True,
        feature_parallel=Connection.ONE_TO_ALL,
        fuses=("relu",),
    )

    def setup(self) -> None:
        options = self.options
        n_rows, n_channels, *sizes = image_shape(self)
        places = self.set_window(options, "convolution_conf", (sizes[0], sizes[1]))
        check_groups("convolution_conf", options, n_channels)
        span = self.add_output((n_rows, options.num_filters, *places), overwritable=True).span
        size = n_channels // options.groups
        first, last = (edge * options.groups / options.num_filters for edge in span[:2])
        if options.groups > 1 and not (first.is_integer() and last.is_integer()):
            count = self.site.feature_shard.count
            message = f"{options.groups} groups of filters cannot be shared by {count} workers. Use 0 or -1."
            raise ConfigError(Problem(("partition_dim",), message))
        self.groups = int(last - first) if options.groups > 1 else 1
        self.window = ConvWindow(self.stride, self.pad, self.dilation, self.groups)
        # input channels that the filters of this instance read
        self.channels = slice(int(first) * size, int(last) * size) if options.groups > 1 else slice(0, n_channels)
        self.shape = (span.size, size, *self.kernel)
        area = self.kernel[0] * self.kernel[1]
        self.weight = self.add_param((span.size, size * area), initial=lambda whole: glorot(whole[1], whole[0] * area))
        self.bias = self.add_param((span.size,), initial=ZEROS) if options.bias_term else None

    def forward(self, phase: Phase) -> None:
        x, w = as_images(self.sources[0].data)[:, self.channels], self.weight.data.reshape(self.shape)
        b, y = None if self.bias is None else self.bias.data, self.features[0].data
        self.ops.conv2d(x, w, b, out=y, window=self.window, relu=self.fused.relu)

    def backward(self, phase: Phase) -> None:
        source, gy = self.sources[0], self.features[0].output_grad
        if self.fused.masks_output:
            self.ops.relu_grad(self.features[0].data, gy, out=gy)
        gw, gb = self.weight.grad.reshape(self.shape), None if self.bias is None else self.bias.grad
        x = as_images(source.data)[:, self.channels]
        self.ops.conv2d_grad_weight(x, gy, out=gw, grad_bias=gb, window=self.window, accumulate=phase.accumulates)
        if source.grad is not None:
            w, gx = self.weight.data.reshape(self.shape), as_images(source.grad)
            for unseen in (gx[:, : self.channels.start], gx[:, self.channels.stop :]):
                if unseen.size:
                    self.ops.clear(unseen)
            self.ops.conv2d_grad_input(gy, w, out=gx[:, self.channels], window=self.window)


def check_groups(name: str, block: FilterConf, n_channels: int) -> None:
    """Raise ConfigError if channels or filters cannot be divided into the groups of a block."""
    for n, what in ((n_channels, "channels that it reads"), (block.num_filters, "filters")):
        if n % block.groups:
            message = f"expected a divisor of the number of {what}, {n}, got {block.groups}."
            raise ConfigError(Problem((name, "groups"), message))


class ConvTransposeConf(FilterConf):
    """``convtranspose_conf``."""

    output_pad: Count = 0
    """Number of rows to add at the bottom of the output, and of columns to add at the right. It must be less than the
    stride or the dilation."""


@LAYERS.register("ConvTranspose", "Deconvolution")
class ConvTranspose(Windowed):
    """y[n, f, i s + k d - pad, j s + l d - pad] += W[c, f, k, l] x[n, c, i, j], from y = b.

    Here s is ``stride`` and d is ``dilation``. x has the shape (N, C, H, W) and y (N, F, OH, OW), with OH = (H - 1) s +
    d (kernel - 1) + 1 - 2 pad + output_pad and OW likewise. The params are W (C, F kernel_y kernel_x), with columns in
    the order f, k, l, and b (F,). Without b the layer computes the gradient of a `Convolution` with respect to its
    input. With ``groups`` G, channels and filters are divided into G groups, and W has F / G filters.

    Notes
    -----
    The layer follows Zeiler et al. (2010). With ``kernel: 2`` and ``stride: 2``, it doubles height and width.
    """

    options_class = ConvTransposeConf
    traits = Traits(params=("weight", "bias"))
    speed = Speed(time_foldable=True, capturable=True, accumulates=True, reads_gradients=True)

    def setup(self) -> None:
        options = self.options
        n_rows, n_channels, *sizes = image_shape(self)
        self.take_window(options)
        check_groups("convtranspose_conf", options, n_channels)
        self.groups, self.output_pad = options.groups, options.output_pad
        self.window = ConvWindow(self.stride, self.pad, self.dilation, self.groups)
        places = []
        for axis, size in enumerate(sizes):
            if self.output_pad and self.output_pad >= max(self.stride[axis], self.dilation[axis]):
                message = f"expected a number below the stride or the dilation, {self.stride[axis]} and "
                message += f"{self.dilation[axis]}, got {self.output_pad}."
                raise ConfigError(Problem(("convtranspose_conf", "output_pad"), message))
            places.append((size - 1) * self.stride[axis] + self.reach[axis] - 2 * self.pad[axis] + self.output_pad)
            if places[axis] < 1:
                message = f"the output would be empty with a pad of {self.pad[axis]}. Set a smaller one."
                raise ConfigError(Problem(("convtranspose_conf", options.key("pad", axis)), message))
        self.add_output((n_rows, options.num_filters, *places))
        n_filters, area = options.num_filters // self.groups, self.kernel[0] * self.kernel[1]
        self.shape = (n_channels, n_filters, *self.kernel)
        self.weight = self.add_param(
            (n_channels, n_filters * area), initial=lambda whole: glorot(n_channels * area // self.groups, whole[1])
        )
        self.bias = self.add_param((options.num_filters,), initial=ZEROS) if options.bias_term else None
        # the gradient of the bias needs the mean of the output's gradient over the pixels of each image
        self.means = self.buffer("means", (n_rows, options.num_filters), self.context.dtype, when="backward")

    def forward(self, phase: Phase) -> None:
        x, w, y = as_images(self.sources[0].data), self.weight.data.reshape(self.shape), self.features[0].data
        self.ops.conv2d_grad_input(x, w, out=y, window=self.window)
        if self.bias is not None:
            self.ops.add(y, self.bias.data[:, None, None], out=y)

    def backward(self, phase: Phase) -> None:
        source, gy = self.sources[0], self.features[0].output_grad
        x, gw, adds = as_images(source.data), self.weight.grad.reshape(self.shape), phase.accumulates
        self.ops.conv2d_grad_weight(gy, x, out=gw, grad_bias=None, window=self.window, accumulate=adds)
        if self.bias is not None:
            self.ops.global_avg_pool(gy, out=self.means.data)
            self.ops.multiply(self.means.data, float(gy[0, 0].size), out=self.means.data)
            self.ops.linear_grad_bias(self.means.data, out=self.bias.grad, accumulate=adds)
        if source.grad is not None:
            w = self.weight.data.reshape(self.shape)
            self.ops.conv2d(gy, w, None, out=as_images(source.grad), window=self.window)
