"""Neuron layers without a spatial structure: InnerProduct, Softmax and Dropout.

Formulas after SINGA's src/neuralnet/neuron_layer/.
"""

from __future__ import annotations

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Field, Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.contiguous import contiguous, contiguous_out
from singa_dask.layers.param import ZEROS, glorot
from singa_dask.layers.traits import Connection, Speed, Traits
from singa_dask.ops.contract import Array, Ops


class InnerProductConf(Conf):
    """``innerproduct_conf`` (SINGA's InnerProductProto)."""

    num_output: Size
    """Number of output features."""
    bias_term: bool = True
    """Whether a bias is added."""
    transpose: bool = False
    """Whether the weights have the shape (inputs, outputs) instead of (outputs, inputs)."""


class SoftmaxConf(Conf):
    """``softmax_conf`` (SINGA's SoftmaxProto)."""

    num_softmax_per_instance: Size = 1
    """Number of equal parts of a row; each part has its own softmax. For images, set 1, or the number of pixels for a
    softmax over the channels of each pixel."""


class DropoutConf(Conf):
    """``dropout_conf`` (SINGA's DropoutProto)."""

    dropout_ratio: float = Field(default=0.5, ge=0, lt=1)
    """Probability that a value is dropped in training."""


def linear_gradients(
    ops: Ops, x: Array, gy: Array, gw: Array, gb: Array | None, transpose: bool = False, accumulate: bool = False
) -> None:
    """Compute the gradients of the params of `Ops.linear`, in one kernel if the device prefers that."""
    if gb is not None and ops.prefers_large_kernels:
        ops.linear_grad_params(x, gy, gw, gb, transpose, accumulate)
        return
    ops.linear_grad_weight(x, gy, out=gw, transpose=transpose, accumulate=accumulate)
    if gb is not None:
        ops.linear_grad_bias(gy, out=gb, accumulate=accumulate)


@LAYERS.register()
class InnerProduct(Layer):
    """y = x W^T + b, where x (N, ...) is read as rows (N, D), W is (H, D), b is (H,) and y is (N, H).

    The values of images are in the order C, H, W. With ``transpose`` y = x W + b, and W is (D, H). With
    ``bias_term: false``, which SINGA ignores, there is no b.
    """

    options_class = InnerProductConf
    traits = Traits(params=("weight", "bias"))
    speed = Speed(
        time_foldable=True,
        capturable=True,
        accumulates=True,
        reads_gradients=True,
        feature_parallel=Connection.ONE_TO_ALL,
        fuses=("add",),
    )

    def setup(self) -> None:
        options = self.options
        self.transpose = options.transpose
        source = self.sources[0]
        y = self.add_output((source.shape[0], options.num_output), overwritable=True)
        n_in, n_out = source.size, y.shape[1]
        shape = (n_in, n_out) if self.transpose else (n_out, n_in)
        self.weight = self.add_param(shape, initial=lambda whole: glorot(*whole), axis=1 if self.transpose else 0)
        self.bias = self.add_param((n_out,), initial=ZEROS) if options.bias_term else None

    def forward(self, phase: Phase) -> None:
        bias = None if self.bias is None else self.bias.data
        self.x = self.rows()
        y, added, matrices = self.features[0].data, self.fused.add, (self.x, self.weight.data, bias)
        if added is None:
            self.ops.linear(*matrices, out=y, transpose=self.transpose)
        else:
            self.ops.linear_add(*matrices, added.data, out=y, transpose=self.transpose)

    def backward(self, phase: Phase) -> None:
        source, gy = self.sources[0], self.features[0].output_grad
        weight, bias_grad = self.weight, None if self.bias is None else self.bias.grad
        linear_gradients(self.ops, self.x, gy, weight.grad, bias_grad, self.transpose, phase.accumulates)
        if source.grad is not None:
            with self.grad_rows() as gx:
                self.ops.linear_grad_input(gy, weight.data, out=gx, transpose=self.transpose)


@LAYERS.register("Softmax", "CudnnSoftmax")
class Softmax(Layer):
    """y = exp(x) / sum exp(x), for each record of x (N, ...) read as a row: y (N, D).

    With ``num_softmax_per_instance`` n, each row is divided into n equal parts, and each part has its own softmax. For
    images (N, C, H, W) n is 1, or H W for a softmax over the channels of each pixel; y is then (N, C, H, W). The
    gradient is y (gy - sum(gy y)).

    Notes
    -----
    SINGA's Softmax has no gradient on a CPU, and ignores ``num_softmax_per_instance``.
    """

    options_class = SoftmaxConf
    traits = Traits(predicts="classes")
    speed = Speed(time_foldable=True, capturable=True)

    def setup(self) -> None:
        n = self.options.num_softmax_per_instance
        shape, size = self.sources[0].shape, self.sources[0].size
        self.by_pixel = len(shape) == 4 and n == shape[2] * shape[3] and n > 1
        if len(shape) == 4 and n > 1 and not self.by_pixel:
            message = f"expected 1, or {shape[2] * shape[3]} for one over the channels of each pixel, got {n}."
            raise ConfigError(Problem(("softmax_conf", "num_softmax_per_instance"), message))
        if size % n:
            message = f"expected a number that divides the {size} values of a record, got {n}."
            raise ConfigError(Problem(("softmax_conf", "num_softmax_per_instance"), message))
        self.width = size // n
        self.add_output(shape if self.by_pixel else (shape[0], size), dtype=self.context.param_dtype)

    def forward(self, phase: Phase) -> None:
        x, y = self.parts(self.sources[0].data), self.parts(self.features[0].data)
        x = contiguous(self.ops, x, "x").reshape(-1, self.width)
        with contiguous_out(self.ops, y, "y") as p:
            self.ops.softmax(x, out=p.reshape(-1, self.width))

    def backward(self, phase: Phase) -> None:
        feature, source = self.features[0], self.sources[0]
        if source.grad is None:
            return
        p, gy = (
            contiguous(self.ops, self.parts(x), key).reshape(-1, self.width)
            for x, key in ((feature.data, "y"), (feature.output_grad, "gy"))
        )
        with contiguous_out(self.ops, self.parts(source.grad), "gx") as gx:
            self.ops.softmax_grad(p, gy, out=gx.reshape(-1, self.width))

    def parts(self, x: Array) -> Array:
        """Return a view with the values of each softmax next to each other."""
        return x.transpose(0, 2, 3, 1) if self.by_pixel else x


@LAYERS.register()
class Dropout(Layer):
    """In training y = x mask, mask = [u < 1 - p] / (1 - p), u uniform in [0, 1); otherwise y = x.

    The mask depends only on the seed, the layer, the step, the time step and the row in the group's batch. The mask of
    a record is therefore the same for any number of workers.
    """

    options_class = DropoutConf
    speed = Speed(time_foldable=True, capturable=True, reads_gradients=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        self.keep = 1 - self.options.dropout_ratio
        # if nothing is dropped, the output shares the memory of the source, which other layers may read
        self.drops = bool(self.context.phase & Phase.TRAIN)
        self.y = self.add_output(self.sources[0].shape, overwritable=self.drops, own_data=self.drops)
        self.mask = self.buffer("mask", self.y.shape, when="training")

    def forward(self, phase: Phase) -> None:
        x = self.sources[0].data
        if not self.drops:
            self.y.data = x
            return
        if not phase & Phase.TRAIN:
            self.ops.copy(x, out=self.y.data)
            return
        n_rows = len(x) // self.site.n_steps
        for i in range(self.site.n_steps):
            mask = self.mask.data[i * n_rows : (i + 1) * n_rows]
            step = (self.site.first_step + i,) if self.site.first_step + i else ()
            self.draw(self.random_key(*step), mask)
        self.ops.multiply(x, self.mask.data, out=self.y.data)

    def draw(self, key: tuple[int | str, ...], mask: Array) -> None:
        """Draw the mask of a time step.

        If the layer is partitioned by features, the result is this instance's part of the whole mask.
        """
        span, first_row = self.features[0].span, self.first_row(len(mask))
        if span.size == span.total:
            self.ops.dropout_mask(key, self.keep, out=mask, first_row=first_row)
            return
        whole = self.ops.scratch("whole mask", (len(mask), span.total, *mask.shape[2:]), mask.dtype)
        self.ops.dropout_mask(key, self.keep, out=whole, first_row=first_row)
        self.ops.copy(whole[:, span.start : span.stop], out=mask)

    def backward(self, phase: Phase) -> None:
        grad = self.sources[0].grad
        if grad is not None:
            self.ops.multiply(self.features[0].output_grad, self.mask.data, out=grad)
