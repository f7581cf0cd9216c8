"""Layers that move a window over images: convolution and pooling; after SINGA's src/neuralnet/neuron_layer/.

Images are (N, C, H, W), or (N, H, W) with one channel. A window has ``kernel``, ``stride`` and ``pad``, one number for
both axes or one for each (``kernel_x`` for widths, ``kernel_y`` for heights); it takes
floor((H + 2 pad - kernel) / stride) + 1 places down, and so to the right.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.model import Conf, Count, NonNegative, Size, choice
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Buffer, Layer, check_axes
from singa_dask.layers.feature import ZEROS, Connection, Raw, Traits, glorot
from singa_dask.ops.contract import Array


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

    def sizes(self, of: Literal["kernel", "pad", "stride"]) -> tuple[int, int]:
        """Return (height, width) of the window, (rows, columns) of padding, or the step (down, to the right)."""
        return getattr(self, self.key(of, 0)), getattr(self, self.key(of, 1))

    def key(self, of: Literal["kernel", "pad", "stride"], axis: int) -> str:
        """Return the key that rules over an axis, 0 for height, 1 for width."""
        return of if getattr(self, of) is not None else f"{of}_{'yx'[axis]}"


class ConvolutionConf(WindowConf):
    """``convolution_conf`` (SINGA's ConvolutionProto)."""

    num_filters: Size
    """Channels of the output."""
    bias_term: bool = True
    """Whether each filter has a bias."""
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

    def set_window(self, block: ConvolutionConf | PoolingConf, name: str, sizes: tuple[int, int]) -> tuple[int, int]:
        """Take the window of a block; return how many places it takes on images of (height, width).

        Raises
        ------
        ConfigError
            It is larger than an image with its padding.
        """
        self.kernel, self.stride, self.pad = block.sizes("kernel"), block.sizes("stride"), block.sizes("pad")
        for axis, (size, what) in enumerate(zip(sizes, ("height", "width"), strict=True)):
            room = size + 2 * self.pad[axis]
            if self.kernel[axis] > room:
                padded = " with its padding" if self.pad[axis] else ""
                message = f"expected at most {room}, the {what} of an image{padded}, got {self.kernel[axis]}."
                raise ConfigError(Problem((name, block.key("kernel", axis)), message))
        down, right = (
            (size + 2 * pad - kernel) // stride + 1
            for size, kernel, stride, pad in zip(sizes, self.kernel, self.stride, self.pad, strict=True)
        )
        return down, right


@LAYERS.register("Convolution", "CConvolution", "CudnnConv")
class Convolution(Windowed):
    """y[n, f, i, j] = b[f] + sum_{c, k, l} W[f, c, k, l] x[n, c, i stride + k - pad, j stride + l - pad].

    x (N, C, H, W) is 0 outside; y (N, F, OH, OW); W (F, C kernel_y kernel_x) with columns in the order c, k, l; b (F,).
    The kernel is not flipped. ``bias_term: false`` leaves b out.

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
        span = self.feature_span(block.num_filters)
        output = self.add_output((n_rows, span.size, *places), overwritable=True, span=span)
        output.can_relu = type(self) is Convolution
        self.shape = (span.size, n_channels, *self.kernel)
        area = self.kernel[0] * self.kernel[1]
        self.weight = self.add_param(
            (span.size, n_channels * area), initial=lambda whole: glorot(whole[1], whole[0] * area)
        )
        self.bias = self.add_bias(span.size, block.bias_term, ZEROS)

    def forward(self, phase: Phase) -> None:
        x, w = as_images(self.sources[0].data), self.weight.data.reshape(self.shape)
        b = None if self.bias is None else self.bias.data
        self.ops.conv2d(x, w, b, self.features[0].data, self.stride, self.pad, relu=self.features[0].relu)

    def backward(self, phase: Phase) -> None:
        source, feature = self.sources[0], self.features[0]
        gy = feature.masked_grad(self.ops)
        gw, gb = self.weight.grad.reshape(self.shape), None if self.bias is None else self.bias.grad
        self.ops.conv2d_grad_weight(
            as_images(source.data), gy, gw, gb, self.stride, self.pad, accumulate=self.weight.accumulates
        )
        if source.grad is not None:
            w = self.weight.data.reshape(self.shape)
            self.ops.conv2d_grad_input(gy, w, as_images(source.grad), self.stride, self.pad)


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
        if self.takes_mean:
            self.ops.avg_pool_grad(gy, gx, self.kernel, self.stride, self.pad, self.count_pad)
        elif self.all_ties:
            x, y = as_images(source.data), self.features[0].data
            self.ops.max_pool_grad_ties(x, y, gy, gx, self.kernel, self.stride, self.pad)
        elif self.where is not None:
            self.ops.max_pool_grad(gy, self.where.data, gx, self.kernel, self.stride, self.pad)


STRIDE, PAD = (1, 1), (0, 0)


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
