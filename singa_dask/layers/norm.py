"""Layers that normalise over channels, groups of channels, the batch or rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Field, Size
from singa_dask.conf.mistakes import Finding
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer, check_axes
from singa_dask.layers.traits import Connection, Speed, Traits
from singa_dask.layers.window import as_images, image_shape
from singa_dask.ops.contract import Array, Running


class LRNConf(Conf):
    """``lrn_conf``: local response normalisation (SINGA's LRNProto)."""

    local_size: Size = 5
    """Number of channels in the window; an odd number."""
    alpha: float = 1.0
    """Factor of the sum of squares; it is divided by local_size."""
    beta: float = 0.75
    """Exponent."""
    knorm: float = 1.0
    """Constant that is added to the scaled sum of squares."""

    def rules(self) -> Iterator[Finding]:
        """Check that the window has a centre."""
        if self.local_size % 2 == 0:
            yield ("local_size",), f"expected an odd number, got {self.local_size}."


class BMConf(Conf):
    """``bm_conf``: batch normalisation (SINGA's BMProto, which has no keys)."""

    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Decay rate of the running mean and variance."""
    epsilon: float = Field(default=1e-5, gt=0)
    """Added to the variance."""


@LAYERS.register("LRN", "CudnnLRN")
class LRN(Layer):
    """y = x / S^beta, with S[c] = knorm + alpha / local_size times the sum of x^2 over local_size channels around c.

    x and y have the shape (N, C, H, W). At the first and last channels the sum has fewer terms, but alpha is still
    divided by local_size. The gradient is gy / S^beta - 2 beta alpha / local_size x T, where T[c] is the sum of gy x /
    S^(beta + 1) over the same channels.
    """

    options_class = LRNConf
    speed = Speed(time_foldable=True, capturable=True)

    def setup(self) -> None:
        self.shape = image_shape(self)
        options = self.options
        self.how: dict[str, Any] = {
            "size": options.local_size,
            "alpha": options.alpha,
            "beta": options.beta,
            "knorm": options.knorm,
        }
        self.add_output(self.sources[0].shape, overwritable=True)
        self.work = self.buffer(
            "work",
            self.shape,
            self.sources[0].dtype,
            when="backward",
            make=lambda shape, dtype: self.ops.lrn_memory(shape, dtype, **self.how),
        )

    def forward(self, phase: Phase) -> None:
        x, y = as_images(self.sources[0].data), as_images(self.features[0].data)
        self.ops.lrn(x, out=y, work=self.work.data_if_needed, **self.how)

    def backward(self, phase: Phase) -> None:
        source, feature = self.sources[0], self.features[0]
        if source.grad is not None:
            x, gy, gx = as_images(source.data), as_images(feature.output_grad), as_images(source.grad)
            self.ops.lrn_grad(x, gy, out=gx, work=self.work.data, **self.how)


@LAYERS.register("BatchNorm", "BM", "CudnnBM")
class BatchNorm(Layer):
    """y = scale (x - m) / sqrt(v + epsilon) + shift for each channel of x (N, C, H, W), or each column of x (N, C).

    In training m and v are the mean and the variance of the worker's batch, over all rows and pixels. In tests m and v
    are running averages. Each training step updates them: ``mean = momentum mean + (1 - momentum) m``, and the variance
    likewise. Images (N, H, W) have one channel.

    The params are scale, shift, mean and variance. Each has the shape (C,), and the initial values are 1, 0, 0 and 1.
    The updater does not change mean and variance; they are averaged over the workers of a group.

    Notes
    -----
    The layer follows Ioffe and Szegedy (2015). Unlike theirs, the running variance is the average of the biased
    variances v: squared differences are divided by their number n, not by n - 1. Gradients are computed as in
    LayerNorm, with means over each channel. SINGA's BM has no effect on a CPU. SINGA's CudnnBM keeps only the
    statistics of the last batch, and its updater changes these statistics.
    """

    options_class = BMConf
    traits = Traits(params=("scale", "shift", "mean", "variance"))
    speed = Speed(capturable=True, reads_gradients=True, feature_parallel=Connection.ONE_TO_ONE, fuses=("relu",))

    def setup(self) -> None:
        shape = self.sources[0].shape
        check_axes(self, "images or rows", 2, 3, 4)
        self.epsilon, self.momentum = self.options.epsilon, self.options.momentum
        self.rows_of_values = len(shape) == 2
        size = (shape[1] if len(shape) != 3 else 1,)
        self.add_output(shape, overwritable=True)
        self.scale, self.shift = self.add_param(size, value=1), self.add_param(size, value=0)
        self.running_mean = self.add_param(size, value=0, running_statistic=True)
        self.running_variance = self.add_param(size, value=1, running_statistic=True)
        self.batch_mean, self.batch_variance = (self.buffer(name, size, zeros=True) for name in ("mean", "variance"))
        self.work = self.buffer("work", (-(-math.prod(shape) // 8),), np.uint8, when="backward")

    def forward(self, phase: Phase) -> None:
        x, y = self.channels(self.sources[0].data), self.channels(self.features[0].data)
        training = bool(phase & Phase.TRAIN)
        mean, variance = (
            (self.batch_mean, self.batch_variance) if training else (self.running_mean, self.running_variance)
        )
        self.ops.batch_norm(
            x, self.scale.data, self.shift.data, mean.data, variance.data, out=y, epsilon=self.epsilon,
            training=training, relu=self.fused.relu, work=self.work.data_if_needed,
        )  # fmt: skip

    def backward(self, phase: Phase) -> None:
        source, feature = self.sources[0], self.features[0]
        gy, y = self.channels(feature.output_grad), self.channels(feature.data) if self.fused.masks_output else None
        gx = None if source.grad is None else self.channels(source.grad)
        mean, variance = self.running_mean, self.running_variance
        running = Running(mean.data, variance.data, mean.grad, variance.grad, 1 - self.momentum)
        self.ops.batch_norm_grad(
            self.channels(source.data), gy, self.scale.data, self.batch_mean.data, self.batch_variance.data, out=gx,
            grad_scale=self.scale.grad, grad_shift=self.shift.grad, epsilon=self.epsilon, running=running, y=y,
            work=self.work.data,
        )  # fmt: skip

    @property
    def has_one_value(self) -> bool:
        """Whether a batch has only one value per channel, which is always normalised to zero."""
        return math.prod(self.sources[0].shape) == self.batch_mean.shape[0]

    def channels(self, x: Array) -> Array:
        """Return rows (N, C) unchanged, other values as images."""
        return x if self.rows_of_values else as_images(x)


class GroupNormConf(Conf):
    """``groupnorm_conf``: group normalisation."""

    num_groups: Size = 32
    """Number of groups of neighbouring channels. It must divide the number of channels."""
    epsilon: float = Field(default=1e-5, gt=0)
    """Added to the variance."""


@LAYERS.register()
class GroupNorm(Layer):
    """y = scale (x - m) / sqrt(v + epsilon) + shift, with mean m and variance v of each group of channels of an image.

    x and y have the shape (N, C, H, W). The params, each (C,), are scale and shift, with initial values 1 and 0.

    Notes
    -----
    The layer and the default of 32 groups follow Wu and He (2018). With a single group, the layer is layer
    normalisation of images. With one group for each channel, it is instance normalisation. Gradients are computed as in
    LayerNorm, with means over each group.
    """

    options_class = GroupNormConf
    traits = Traits(params=("scale", "shift"))
    speed = Speed(time_foldable=True, capturable=True, accumulates=True)

    def setup(self) -> None:
        options = self.options
        n_rows, n_channels, *_ = image_shape(self)
        if n_channels % options.num_groups:
            message = f"expected a number that divides the {n_channels} channels, got {options.num_groups}."
            raise ConfigError(Problem(("groupnorm_conf", "num_groups"), message))
        self.epsilon = options.epsilon
        self.add_output(self.sources[0].shape, overwritable=True)
        self.scale, self.shift = (self.add_param((n_channels,), value=value) for value in (1, 0))
        self.mean, self.variance = (self.buffer(name, (n_rows, options.num_groups)) for name in ("mean", "variance"))

    def forward(self, phase: Phase) -> None:
        x, y = as_images(self.sources[0].data), as_images(self.features[0].data)
        self.ops.group_norm(
            x, self.scale.data, self.shift.data, self.mean.data, self.variance.data, out=y, epsilon=self.epsilon
        )  # fmt: skip

    def backward(self, phase: Phase) -> None:
        source, gy = self.sources[0], as_images(self.features[0].output_grad)
        gx = None if source.grad is None else as_images(source.grad)
        self.ops.group_norm_grad(
            as_images(source.data), gy, self.scale.data, self.mean.data, self.variance.data, out=gx,
            grad_scale=self.scale.grad, grad_shift=self.shift.grad, epsilon=self.epsilon,
            accumulate=phase.accumulates,
        )  # fmt: skip


class RMSNormConf(Conf):
    """``rmsnorm_conf``."""

    epsilon: float = Field(default=1e-6, gt=0)
    """Added to the mean of the squares."""


@LAYERS.register()
class RMSNorm(Layer):
    """y = scale x / sqrt(m + epsilon), with the mean m of the squares of each row of x (N, D).

    The param is scale (D,), with initial value 1.

    Notes
    -----
    The layer follows Zhang and Sennrich (2019), "Root mean square layer normalization".
    """

    options_class = RMSNormConf
    traits = Traits(params=("scale",))
    speed = Speed(time_foldable=True, capturable=True, accumulates=True, reads_gradients=True)

    def setup(self) -> None:
        shape = self.sources[0].shape
        check_axes(self, "rows. Use GroupNorm for images", 2)
        self.epsilon = self.options.epsilon
        self.add_output(shape, overwritable=True)
        self.scale = self.add_param(shape[1:], value=1)
        self.widths = self.buffer("widths", shape[:1], self.context.dtype)

    def row_means(self, x: Array, y: Array, out: Array) -> None:
        """Write the mean of x y over each row to ``out`` (N,); x and y have the shape (N, D)."""
        self.ops.batch_matmul(x[:, None], y[:, :, None], out=out[:, None, None], scale=1 / x.shape[1])

    def forward(self, phase: Phase) -> None:
        x, y, widths = self.sources[0].data, self.features[0].data, self.widths.data
        self.row_means(x, x, out=widths)
        self.ops.inverse_root(widths, self.epsilon, out=widths)
        self.ops.scale_rows(x, widths, out=y)
        self.ops.multiply(y, self.scale.data, out=y)

    def backward(self, phase: Phase) -> None:
        ops, x, gx, gy = self.ops, self.sources[0].data, self.sources[0].grad, self.features[0].output_grad
        normal, product = (ops.scratch(name, x.shape, x.dtype) for name in ("normal rows", "product of rows"))
        ops.scale_rows(x, self.widths.data, out=normal)
        ops.multiply(gy, normal, out=product)
        ops.linear_grad_bias(product, out=self.scale.grad, accumulate=phase.accumulates)
        if gx is not None:
            means = ops.scratch("means of rows", self.widths.shape, x.dtype)
            ops.multiply(gy, self.scale.data, out=product)
            self.row_means(product, normal, out=means)
            ops.scale_rows(normal, means, out=normal)
            ops.subtract(product, normal, out=gx)
            ops.scale_rows(gx, self.widths.data, out=gx)


class LayerNormConf(Conf):
    """``layernorm_conf``: layer normalisation."""

    epsilon: float = Field(default=1e-5, gt=0)
    """Added to the variance."""


@LAYERS.register()
class LayerNorm(Layer):
    """y = scale (x - m) / sqrt(v + epsilon) + shift, with mean m and variance v of each row of x (N, D).

    The params, each (D,), are scale and shift, with initial values 1 and 0.

    Notes
    -----
    The layer follows Ba et al. (2016), who call the params gain and bias. The variance is the mean of squared
    differences: they are divided by D, not by D - 1. With s = sqrt(v + epsilon), n = (x - m) / s and g = scale * gy,
    the gradients in NumPy are ``(gy * n).sum(0)`` for scale, ``gy.sum(0)`` for shift, and ``(g - g.mean(1) - n * (g *
    n).mean(1)) / s`` for x, where s and the means are columns.
    """

    options_class = LayerNormConf
    traits = Traits(params=("scale", "shift"))
    speed = Speed(time_foldable=True, capturable=True, accumulates=True, reads_gradients=True, fuses=("add_grad",))

    def setup(self) -> None:
        shape = self.sources[0].shape
        check_axes(self, "rows. Use GroupNorm for images", 2)
        self.epsilon = self.options.epsilon
        self.add_output(shape, overwritable=True)
        self.scale, self.shift = (self.add_param(shape[1:], value=value) for value in (1, 0))
        self.mean, self.variance = (self.buffer(name, shape[:1]) for name in ("mean", "variance"))

    def forward(self, phase: Phase) -> None:
        x, y = self.sources[0].data, self.features[0].data
        self.ops.layer_norm(
            x, self.scale.data, self.shift.data, self.mean.data, self.variance.data, out=y, epsilon=self.epsilon
        )  # fmt: skip

    def backward(self, phase: Phase) -> None:
        source, gy = self.sources[0], self.features[0].output_grad
        added, kernel = self.fused.add_grad, self.ops.layer_norm_grad
        if added is not None:
            kernel = partial(self.ops.layer_norm_grad_add, added.output_grad)
        kernel(
            source.data, gy, self.scale.data, self.mean.data, self.variance.data, out=source.grad,
            grad_scale=self.scale.grad, grad_shift=self.shift.grad, epsilon=self.epsilon,
            accumulate=phase.accumulates,
        )  # fmt: skip
