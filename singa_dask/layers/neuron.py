"""Neuron layers without a spatial structure: inner product, activations, softmax, dropout.

Formulas after SINGA's src/neuralnet/neuron_layer/. Gradients of activations come from outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from singa_dask.conf import ActivationConf, DropoutConf, InnerProductConf, LayerConf, Phase, ReLUConf, SoftmaxConf
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Connection, Feature, Layer, matrix

__all__ = ["Activation", "Dropout", "InnerProduct", "ReLU", "STanh", "Sigmoid", "Softmax", "Tanh"]


@LAYERS.register()
class InnerProduct(Layer):
    """y = x W^T + b: x (N, ...) taken as (N, D), W (H, D), b (H,), y (N, H).

    ``transpose`` makes it y = x W + b with W (D, H). ``bias_term: false`` leaves b out, which SINGA ignores.
    """

    param_names = ("weight", "bias")
    connection = Connection.ONE_TO_ALL

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        block = conf.block(InnerProductConf)
        self.transpose = block.transpose
        rows, n_in, n_out = sources[0].shape[0], sources[0].size, block.num_output
        self.feature((rows, n_out), reusable=True)
        self.weight = self.param(0, (n_in, n_out) if self.transpose else (n_out, n_in))
        self.bias = self.param(1, (n_out,)) if block.bias_term else None
        if self.bias is None and len(conf.param) > 1:
            raise ConfigError(Problem(("param", 1), "there is no bias to describe: bias_term is false."))

    def compute_feature(self, phase: Phase) -> None:
        bias = None if self.bias is None else self.bias.data
        x = matrix(self.sources[0].data)
        self.ops.linear(x, self.weight.data, bias, out=self.features[0].data, transpose=self.transpose)

    def compute_gradient(self, phase: Phase) -> None:
        source, gy = self.sources[0], self.features[0].grad
        more = bool(phase & Phase.AGGREGATE_GRADIENT)
        self.ops.linear_grad_weight(
            matrix(source.data), gy, out=self.weight.grad, transpose=self.transpose, accumulate=more
        )
        if self.bias is not None:
            self.ops.linear_grad_bias(gy, out=self.bias.grad, accumulate=more)
        if source.grad is not None:
            self.ops.linear_grad_input(gy, self.weight.data, out=matrix(source.grad), transpose=self.transpose)


@LAYERS.register()
class Activation(Layer):
    """y = f(x), value by value; f is ``activation_conf.type``: RELU, SIGMOID, TANH or STANH.

    With ``share_src_blobs`` it computes in the memory of its source wherever the source has no further use
    for its output, else in its own: the numbers are the same. (SINGA loses the incoming gradient there.)
    """

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

    def kernels(self, conf: LayerConf, ops: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        slope = conf.block(ReLUConf).negative_slope
        if slope > 1:
            raise ConfigError(Problem(("relu_conf", "negative_slope"), f"expected at most 1, got {slope:g}."))
        return partial(ops.relu, negative_slope=slope), partial(ops.relu_grad, negative_slope=slope)


@LAYERS.register()
class Sigmoid(Activation):
    """y = 1 / (1 + exp(-x))."""

    def kernels(self, conf: LayerConf, ops: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        return ops.sigmoid, ops.sigmoid_grad


@LAYERS.register()
class Tanh(Activation):
    """y = tanh(x)."""

    def kernels(self, conf: LayerConf, ops: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        return ops.tanh, ops.tanh_grad


@LAYERS.register()
class STanh(Activation):
    """y = 1.7159047 tanh(0.66666667 x)."""

    def kernels(self, conf: LayerConf, ops: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        return ops.stanh, ops.stanh_grad


@LAYERS.register()
class Softmax(Layer):
    """y = softmax of each row: x (N, ...) taken as (N, D), y (N, D). SINGA has no gradient for it on a CPU."""

    connection = Connection.ONE_TO_ALL

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        groups = conf.block(SoftmaxConf).num_softmax_per_instance
        if groups != 1:
            message = f"expected 1, one softmax a record, got {groups}."
            raise ConfigError(Problem(("softmax_conf", "num_softmax_per_instance"), message))
        self.feature((sources[0].shape[0], sources[0].size))

    def compute_feature(self, phase: Phase) -> None:
        self.ops.softmax(matrix(self.sources[0].data), out=self.features[0].data)

    def compute_gradient(self, phase: Phase) -> None:
        feature, source = self.features[0], self.sources[0]
        if source.grad is not None:
            self.ops.softmax_grad(feature.data, feature.grad, out=matrix(source.grad))


@LAYERS.register()
class Dropout(Layer):
    """In training y = x mask, mask = [u < 1 - p] / (1 - p), u uniform in [0, 1); otherwise y = x.

    The mask is a function of seed, layer, step and the row in the group's batch.
    """

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        self.keep = 1 - conf.block(DropoutConf).dropout_ratio
        self.mask: Any = None
        self.feature(sources[0].shape, reusable=True)

    def allocate(self) -> None:
        super().allocate()
        if self.context.phase & Phase.TRAIN:
            self.mask = self.ops.empty(self.features[0].shape, self.features[0].dtype)

    def compute_feature(self, phase: Phase) -> None:
        x, y = self.sources[0].data, self.features[0].data
        if not phase & Phase.TRAIN:
            self.ops.copy(x, out=y)
            return
        self.ops.dropout_mask(self.random_key(), self.keep, out=self.mask, first_row=self.first_row(len(x)))
        self.ops.multiply(x, self.mask, out=y)

    def compute_gradient(self, phase: Phase) -> None:
        if self.sources[0].grad is not None:
            self.ops.multiply(self.features[0].grad, self.mask, out=self.sources[0].grad)
