"""Pooling layers: the largest value, or the mean, of each window of an image."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Size, choice
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.buffer import Buffer
from singa_dask.layers.traits import Connection, Speed
from singa_dask.layers.window import PAD, STRIDE, WindowConf, Windowed, as_images, image_shape


class PoolingConf(WindowConf):
    """``pooling_conf`` (SINGA's PoolingProto)."""

    pool: Annotated[Literal["MAX", "AVG"], choice()] = "MAX"
    """Whether to compute the largest value of each window, or the mean."""
    ties: Literal["first", "all"] = "first"
    """Which value gets the gradient if several values of a window are the largest: the first one, or all of them as in
    SINGA's kPooling."""
    count_include_pad: bool | None = None
    """Whether padding counts in a mean. The default is true, except for CudnnPool."""
    stride_x: Size = 2
    """Step of the window to the right."""
    stride_y: Size = 2
    """Step of the window down."""


@LAYERS.register("Pooling", "CPooling", "CudnnPool")
class Pooling(Windowed):
    """y (N, C, OH, OW) = the largest value of each window of x (N, C, H, W), or their mean: ``pool`` MAX or AVG.

    Padding is never the largest value. Among equal largest values, the first in row-major order gets the gradient.
    With ``ties: all``, each of them gets the gradient. The mean is the sum of the window's pixels divided by kernel_y
    kernel_x. If ``count_include_pad`` is false, which is the default of CudnnPool, the sum is divided by the number of
    pixels inside the image.

    Notes
    -----
    SINGA's kPooling ignores ``pad`` and gives the gradient to all equal values, as ``ties: all`` does. SINGA's
    kCPooling confuses the axes.
    """

    options_class = PoolingConf
    speed = Windowed.speed.replace(capturable=True, fuses=("relu_grad",))

    def setup(self) -> None:
        options = self.options
        n_rows, n_channels, *sizes = image_shape(self)
        places = self.set_window(options, "pooling_conf", (sizes[0], sizes[1]))
        for axis in range(2):
            if self.pad[axis] >= self.kernel[axis]:
                message = f"expected less than the kernel, which is {self.kernel[axis]}, got {self.pad[axis]}."
                raise ConfigError(Problem(("pooling_conf", options.key("pad", axis)), message))
        self.takes_mean, self.all_ties = options.pool == "AVG", options.ties == "all"
        if self.all_ties and self.context.dtype != self.context.param_dtype:
            raise ConfigError(
                Problem(("pooling_conf", "ties"), "precision bf16 does not support ties: all. Set ties: first.")
            )
        counts = options.count_include_pad
        self.count_pad = self.conf.type != "CudnnPool" if counts is None else counts
        self.y = self.add_output((n_rows, n_channels, *places), overwritable=not self.all_ties)
        self.where: Buffer | None = None
        if not self.takes_mean:
            self.speed = self.speed.replace(fuses=())
        if not self.takes_mean and not self.all_ties:
            self.where = self.buffer("where", self.y.shape, self.ops.place_dtype(self.kernel), when="backward")

    def forward(self, phase: Phase) -> None:
        x, y = as_images(self.sources[0].data), self.features[0].data
        if self.takes_mean:
            self.ops.avg_pool(x, out=y, kernel=self.kernel, stride=self.stride, pad=self.pad, count_pad=self.count_pad)
        else:
            where = None if self.where is None else self.where.data_if_needed
            self.ops.max_pool(x, out=y, where=where, kernel=self.kernel, stride=self.stride, pad=self.pad)

    def backward(self, phase: Phase) -> None:
        source = self.sources[0]
        if source.grad is None:
            return
        gy, gx = self.features[0].output_grad, as_images(source.grad)
        if self.fused.relu_grad:
            relu = as_images(source.data)
            self.ops.avg_pool_relu_grad(
                relu, gy, out=gx, kernel=self.kernel, stride=self.stride, pad=self.pad, count_pad=self.count_pad
            )
        elif self.takes_mean:
            self.ops.avg_pool_grad(
                gy, out=gx, kernel=self.kernel, stride=self.stride, pad=self.pad, count_pad=self.count_pad
            )
        elif self.all_ties:
            x, y = as_images(source.data), self.features[0].data
            self.ops.max_pool_grad_ties(x, y, gy, out=gx, kernel=self.kernel, stride=self.stride, pad=self.pad)
        elif self.where is not None:
            self.ops.max_pool_grad(gy, self.where.data, out=gx, kernel=self.kernel, stride=self.stride, pad=self.pad)


class GlobalPoolingConf(Conf):
    """``globalpooling_conf``."""

    pool: Annotated[Literal["MAX", "AVG"], choice()] = "AVG"
    """Whether to compute the mean of all pixels, or the largest value."""


@LAYERS.register()
class GlobalPooling(Layer):
    """y (N, C) = the mean or the largest value of each channel of x (N, C, H, W): ``pool`` AVG or MAX.

    Among equal largest values, the first in row-major order gets the gradient. The layer follows Lin et al.
    (2014).
    """

    options_class = GlobalPoolingConf
    speed = Speed(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        self.takes_mean = self.options.pool == "AVG"
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
            self.ops.max_pool(x, out=y[:, :, None, None], where=where, kernel=self.size, stride=STRIDE, pad=PAD)

    def backward(self, phase: Phase) -> None:
        source = self.sources[0]
        if source.grad is None:
            return
        gy, gx = self.features[0].output_grad, as_images(source.grad)
        if self.where is None:
            self.ops.global_avg_pool_grad(gy, out=gx)
        else:
            self.ops.max_pool_grad(
                gy[:, :, None, None], self.where.data, out=gx, kernel=self.size, stride=STRIDE, pad=PAD
            )


class AdaptivePoolingConf(Conf):
    """``adaptivepooling_conf``."""

    height: Size
    """Height of the output."""
    width: Size
    """Width of the output."""
    pool: Annotated[Literal["MAX", "AVG"], choice()] = "AVG"
    """Whether to compute the mean of each window, or the largest value."""


@LAYERS.register()
class AdaptivePooling(Layer):
    """Pool images of any size to OH rows and OW columns: x (N, C, H, W) becomes y (N, C, OH, OW).

    ``height`` sets OH, ``width`` sets OW. Each value of y is the mean or the largest value of a window of x: ``pool``
    AVG or MAX. Window i has the rows from floor(i H / OH) to ceil((i + 1) H / OH) - 1, and likewise the columns. If OH
    does not divide H, some neighbouring windows have a row in common.
    """

    options_class = AdaptivePoolingConf
    speed = Speed(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        n_rows, n_channels, *sizes = image_shape(self)
        wanted, self.takes_mean = (self.options.height, self.options.width), self.options.pool == "AVG"
        for size, n, key in zip(sizes, wanted, ("height", "width"), strict=True):
            if n > size:
                message = f"expected at most {size}, the {key} of an image, got {n}."
                raise ConfigError(Problem(("adaptivepooling_conf", key), message))
        self.add_output((n_rows, n_channels, *wanted), overwritable=True)
        # (pixels of x, windows of y, kernel); one entry covers all windows if they have equal sizes and share no pixels
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
                self.ops.avg_pool(x[pixels], out=y[windows], kernel=kernel, stride=kernel, pad=PAD, count_pad=True)
            else:
                self.ops.max_pool(
                    x[pixels], out=y[windows], where=self.where[i].data_if_needed, kernel=kernel, stride=kernel, pad=PAD
                )

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
                self.ops.avg_pool_grad(g, out=part, kernel=kernel, stride=kernel, pad=PAD, count_pad=True)
            else:
                self.ops.max_pool_grad(g, self.where[i].data, out=part, kernel=kernel, stride=kernel, pad=PAD)
            if part is not cell:
                self.ops.add(cell, part, out=cell)
