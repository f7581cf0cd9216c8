"""Neuron layers without a spatial structure: inner product, activations, softmax, dropout.

Formulas after SINGA's src/neuralnet/neuron_layer/. Gradients of activations come from outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from singa_dask.conf import (
    ActivationConf,
    Conf,
    DropoutConf,
    InitConf,
    InnerProductConf,
    LayerConf,
    Phase,
    ReLUConf,
    SoftmaxConf,
)
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Connection, Feature, Layer
from singa_dask.layers.initial import ZEROS, glorot

__all__ = ["Activation", "Dropout", "InnerProduct", "ReLU", "STanh", "Sigmoid", "Softmax", "Tanh"]


@LAYERS.register()
class InnerProduct(Layer):
    """y = x W^T + b: x (N, ...) taken as (N, D), images in the order C, H, W; W (H, D), b (H,), y (N, H).

    ``transpose`` makes it y = x W + b with W (D, H). ``bias_term: false`` leaves b out, which SINGA ignores.
    """

    block = InnerProductConf
    param_names = ("weight", "bias")
    connection = Connection.ONE_TO_ALL
    over_time = True
    by_feature = True
    repeats = True
    accumulates = True

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        block = conf.block(InnerProductConf)
        self.transpose = block.transpose
        columns = self.cut(block.num_output)
        rows, n_in, n_out = sources[0].shape[0], sources[0].size, columns.size
        self.feature((rows, n_out), reusable=True, columns=columns)
        shape = (n_in, n_out) if self.transpose else (n_out, n_in)
        self.weight = self.param(0, shape, axis=1 if self.transpose else 0)
        self.bias = self.bias_param(1, n_out, block.bias_term)

    def initial(self, index: int) -> InitConf:
        return ZEROS if index else glorot(*self.weight.whole_shape)

    def compute_feature(self, phase: Phase) -> None:
        bias = None if self.bias is None else self.bias.data
        self.x = self.rows()
        self.ops.linear(self.x, self.weight.data, bias, out=self.features[0].data, transpose=self.transpose)

    def compute_gradient(self, phase: Phase) -> None:
        source, gy = self.sources[0], self.features[0].grad
        more = bool(phase & Phase.AGGREGATE_GRADIENT)
        self.ops.linear_grad_weight(self.x, gy, out=self.weight.grad, transpose=self.transpose, accumulate=more)
        if self.bias is not None:
            self.ops.linear_grad_bias(gy, out=self.bias.grad, accumulate=more)
        if source.grad is not None:
            with self.grad_rows() as gx:
                self.ops.linear_grad_input(gy, self.weight.data, out=gx, transpose=self.transpose)


@LAYERS.register("Activation", "CudnnActivation")
class Activation(Layer):
    """y = f(x), value by value; f is ``activation_conf.type``: RELU, SIGMOID, TANH or STANH.

    With ``share_src_blobs`` it computes in the memory of its source wherever the source has no further use
    for its output, else in its own: the numbers are the same. (SINGA loses the incoming gradient there.)
    """

    block: ClassVar[type[Conf] | None] = ActivationConf
    over_time = True
    by_feature = True
    repeats = True

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        self.forward, self.backward = self.kernels(conf, ops)
        self.in_place = conf.share_src_blobs and sources[0].reusable
        self.feature(sources[0].shape)

    def kernels(self, conf: LayerConf, ops: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        """Return f(x, out) and its gradient(y, gy, out)."""
        known = {
            "RELU": (ops.relu, ops.relu_grad),
            "SIGMOID": (ops.sigmoid, ops.sigmoid_grad),
            "TANH": (ops.tanh, ops.tanh_grad),
            "STANH": (ops.stanh, ops.stanh_grad),
        }
        return known[conf.block(ActivationConf).type]

    def allocate(self) -> None:
        if not self.in_place:
            super().allocate()
            return
        source, feature = self.sources[0], self.features[0]
        feature.data, feature.grad = source.data, source.grad

    def compute_feature(self, phase: Phase) -> None:
        self.forward(self.sources[0].data, out=self.features[0].data)

    def compute_gradient(self, phase: Phase) -> None:
        feature, source = self.features[0], self.sources[0]
        if source.grad is not None:
            self.backward(feature.data, feature.grad, out=source.grad)


@LAYERS.register()
class ReLU(Activation):
    """y = x where positive, else ``relu_conf.negative_slope`` x (SINGA ignores the slope)."""

    block = ReLUConf
    repeats = True

    def kernels(self, conf: LayerConf, ops: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        slope = conf.block(ReLUConf).negative_slope
        if slope > 1:
            raise ConfigError(Problem(("relu_conf", "negative_slope"), f"expected at most 1, got {slope:g}."))
        return partial(ops.relu, negative_slope=slope), partial(ops.relu_grad, negative_slope=slope)


@LAYERS.register()
class Sigmoid(Activation):
    """y = 1 / (1 + exp(-x))."""

    block = None
    repeats = True

    def kernels(self, conf: LayerConf, ops: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        return ops.sigmoid, ops.sigmoid_grad


@LAYERS.register()
class Tanh(Activation):
    """y = tanh(x)."""

    block = None
    repeats = True

    def kernels(self, conf: LayerConf, ops: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        return ops.tanh, ops.tanh_grad


@LAYERS.register()
class STanh(Activation):
    """y = 1.7159047 tanh(0.66666667 x)."""

    block = None
    repeats = True

    def kernels(self, conf: LayerConf, ops: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        return ops.stanh, ops.stanh_grad


@LAYERS.register("Softmax", "CudnnSoftmax")
class Softmax(Layer):
    """y = exp(x) / sum exp(x), of each record x (N, ...) taken as a row: y (N, D).

    ``num_softmax_per_instance`` n cuts each row in n equal parts, each with a softmax of its own. Of images
    (N, C, H, W) n is 1, or H W: then the softmax is over the channels at each pixel, and y is (N, C, H, W).

    Notes
    -----
    SINGA has no gradient for it on a CPU, and ignores the number.
    """

    block = SoftmaxConf
    connection = Connection.ONE_TO_ALL
    over_time = True
    repeats = True

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        shape, size, n = sources[0].shape, sources[0].size, conf.block(SoftmaxConf).num_softmax_per_instance
        self.by_pixel = len(shape) == 4 and n == shape[2] * shape[3] and n > 1
        if len(shape) == 4 and n > 1 and not self.by_pixel:
            message = f"expected 1, or {shape[2] * shape[3]} for one over the channels of each pixel, got {n}."
            raise ConfigError(Problem(("softmax_conf", "num_softmax_per_instance"), message))
        if size % n:
            message = f"expected a number that divides the {size} values of a record, got {n}."
            raise ConfigError(Problem(("softmax_conf", "num_softmax_per_instance"), message))
        self.width = size // n
        self.feature(shape if self.by_pixel else (shape[0], size), dtype=self.context.param_dtype)

    def compute_feature(self, phase: Phase) -> None:
        x, y = self.parts(self.sources[0].data), self.parts(self.features[0].data)
        x = self.packed(x, "data").reshape(-1, self.width)
        with self.packed_out(y, "y") as p:
            self.ops.softmax(x, out=p.reshape(-1, self.width))

    def compute_gradient(self, phase: Phase) -> None:
        feature, source = self.features[0], self.sources[0]
        if source.grad is None:
            return
        p, gy = (
            self.packed(self.parts(x), key).reshape(-1, self.width)
            for x, key in ((feature.data, "y"), (feature.grad, "gy"))
        )
        with self.packed_out(self.parts(source.grad), "grad") as gx:
            self.ops.softmax_grad(p, gy, out=gx.reshape(-1, self.width))

    def parts(self, x: Any) -> Any:
        """Return a view in whose order of axes each softmax is one stretch."""
        return x.transpose(0, 2, 3, 1) if self.by_pixel else x


@LAYERS.register()
class Dropout(Layer):
    """In training y = x mask, mask = [u < 1 - p] / (1 - p), u uniform in [0, 1); otherwise y = x.

    The mask is a function of seed, layer, step, time step and the row in the group's batch.
    """

    block = DropoutConf
    over_time = True
    by_feature = True
    repeats = True

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        self.keep = 1 - conf.block(DropoutConf).dropout_ratio
        self.mask: Any = None
        self.feature(sources[0].shape, reusable=True)

    def allocate(self) -> None:
        super().allocate()
        if self.context.phase & Phase.TRAIN:
            self.mask = self.ops.features(self.features[0].shape, self.context.param_dtype)

    def compute_feature(self, phase: Phase) -> None:
        x, y = self.sources[0].data, self.features[0].data
        if not phase & Phase.TRAIN:
            self.ops.copy(x, out=y)
            return
        n_rows = len(x) // self.n_steps
        for i in range(self.n_steps):
            mask = self.mask[i * n_rows : (i + 1) * n_rows]
            step = (self.first_step + i,) if self.first_step + i else ()
            self.draw(self.random_key(*step), mask)
        self.ops.multiply(x, self.mask, out=y)

    def draw(self, key: tuple[int | str, ...], mask: Any) -> None:
        """Draw the mask of a time step; of a part of the features that part of what is drawn for all of them."""
        columns, first_row = self.features[0].columns, self.first_row(len(mask))
        if columns is None:
            self.ops.dropout_mask(key, self.keep, out=mask, first_row=first_row)
            return
        whole = self.ops.scratch("whole mask", (len(mask), columns.total, *mask.shape[2:]), mask.dtype)
        self.ops.dropout_mask(key, self.keep, out=whole, first_row=first_row)
        self.ops.copy(whole[:, columns.start : columns.stop], out=mask)

    def compute_gradient(self, phase: Phase) -> None:
        if self.sources[0].grad is not None:
            self.ops.multiply(self.features[0].grad, self.mask, out=self.sources[0].grad)
