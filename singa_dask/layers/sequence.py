"""Layers of sequences: padding, pooling over time, a class token."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import choice
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer, check_axes
from singa_dask.layers.buffer import Buffer
from singa_dask.layers.numbers import Numbers
from singa_dask.layers.param import NORMAL
from singa_dask.layers.time_steps import HIDDEN, check_all_steps, split_mask, time_steps
from singa_dask.layers.traits import Speed, Traits
from singa_dask.layers.window import PAD, STRIDE
from singa_dask.ops.contract import Array


class PaddingMaskConf(Conf):
    """``paddingmask_conf``."""

    padding: int = -1
    """The number that stands for padding."""
    lengths: bool = False
    """Whether the source has the length of each sequence, instead of the numbers at its time steps."""


@LAYERS.register()
class PaddingMask(Numbers):
    """Mark the time steps that are not padding: (rows, 1) bool.

    A value is true if the number of the source differs from ``padding``. With ``lengths``, the source has the length of
    each sequence, (N, 1), and a value is true if its time step is within this length. MultiHeadAttention, TimePooling,
    GRU, LSTM and RNN ignore padding if they read the mask as an additional source.
    """

    options_class = PaddingMaskConf
    speed = Numbers.speed

    def setup(self) -> None:
        super().setup()
        self.padding, self.takes_lengths = self.options.padding, self.options.lengths
        if self.takes_lengths:
            check_all_steps(self)
            if self.own_columns or self.sources[0].n_steps > 1:
                message = f"expected one length of a sequence in each row, got shape {self.sources[0].shape}."
                raise ConfigError(Problem(("srclayers", 0), message))
        self.add_output((self.n_numbers, 1), requires_grad=False, dtype=bool)

    def prepare(self, phase: Phase) -> None:
        numbers, n_steps = self.numbers(), self.site.n_steps
        valid = numbers != self.padding
        if self.takes_lengths:
            if numbers.min() < 0 or numbers.max() > n_steps:
                wrong = numbers[(numbers < 0) | (numbers > n_steps)][0]
                raise self.data_error(
                    f"length {wrong} from {self.conf.srclayers[0]!r} is out of range. Expected 0 to "
                    f"{n_steps}, the time steps.",
                )
            valid = np.repeat(np.arange(n_steps), len(numbers) // n_steps) < numbers
        self.features[0].data[...] = valid[:, None]

    def forward(self, phase: Phase) -> None:
        pass


class TimePoolingConf(Conf):
    """``timepooling_conf``."""

    pool: Annotated[Literal["AVG", "MAX", "FIRST", "LAST"], choice()] = "AVG"
    """What to compute: the mean of the time steps, the largest value of each feature, the first time step, or the last
    one."""


@LAYERS.register()
class TimePooling(Layer):
    """Pool the time steps of each sequence to one record: x (T N, D) becomes y (N, D).

    ``pool`` selects the mean of the time steps, their largest values, the first or the last time step. Set
    ``unroll_len: 1`` for this layer. If the second source is a PaddingMask, padding is ignored, and the output for a
    sequence of padding only is zeros. If several values are the largest, the first one gets the gradient.
    """

    options_class = TimePoolingConf
    traits = Traits(n_sources=(1, 2), steps="all", takes_mask=True)
    speed = Speed(time_foldable=True, capturable=True, reads_gradients=True)

    def setup(self) -> None:
        self.pool, self.n_steps = self.options.pool, time_steps(self)
        _, self.mask = split_mask(self, 1)
        n_rows, width, dtype = self.sources[0].shape[0] // self.n_steps, self.sources[0].shape[1], self.context.dtype
        self.add_output((n_rows, width))
        # factors of the time steps; for MAX, their offsets
        self.weights = self.buffer("weights", (n_rows, self.n_steps), dtype)
        self.where: Buffer | None = None
        if self.pool == "MAX":
            self.kernel = (self.n_steps, 1)
            self.images = self.buffer("images", (n_rows, width, *self.kernel), dtype)
            self.where = self.buffer("where", (n_rows, width, 1, 1), self.ops.place_dtype(self.kernel), when="backward")
            self.has_steps = self.buffer("has steps", (n_rows,), dtype)

    def attach(self) -> None:
        if self.mask is None:
            self.weigh(np.ones(self.weights.shape, bool))

    def prepare(self, phase: Phase) -> None:
        if self.mask is not None:
            self.weigh(self.mask.data.reshape(self.n_steps, -1).T)

    def weigh(self, valid: Array) -> None:
        """Set the weights of time steps; ``valid`` (N, T) is false for padding."""
        if self.pool == "MAX":
            weights = np.where(valid, 0, np.float64(HIDDEN))
            self.ops.copy(np.any(valid, axis=1).astype(np.float32), out=self.has_steps.data)
        elif self.pool == "AVG":
            weights = valid / np.maximum(np.sum(valid, axis=1, keepdims=True), 1)
        else:
            ranks = np.cumsum(valid, axis=1)
            weights = valid & (ranks == (1 if self.pool == "FIRST" else ranks[:, -1:]))
        self.ops.copy(weights.astype(np.float64), out=self.weights.data)

    def by_sequence(self, rows: Array) -> Array:
        """Return a view (N, T, D) of rows (T N, D)."""
        return rows.reshape(self.n_steps, -1, rows.shape[1]).swapaxes(0, 1)

    def forward(self, phase: Phase) -> None:
        ops, y = self.ops, self.features[0].data
        x, weights = self.by_sequence(self.sources[0].data), self.weights.data
        if self.pool != "MAX":
            ops.batch_matmul(x.swapaxes(1, 2), weights[:, :, None], out=y[:, :, None])
            return
        images = self.images.data
        ops.copy(x.swapaxes(1, 2)[..., None], out=images)
        if self.mask is not None:
            ops.add(images, weights[:, None, :, None], out=images)
        where = None if self.where is None else self.where.data_if_needed
        ops.max_pool(images, out=y[:, :, None, None], where=where, kernel=self.kernel, stride=STRIDE, pad=PAD)
        if self.mask is not None:
            ops.scale_rows(y, self.has_steps.data, out=y)

    def backward(self, phase: Phase) -> None:
        ops, gy, source = self.ops, self.features[0].output_grad, self.sources[0]
        if source.grad is None:
            return
        gx = self.by_sequence(source.grad)
        if self.where is None:
            ops.batch_matmul(self.weights.data[:, :, None], gy[:, None], out=gx)
            return
        g, images = (ops.scratch(name, shape, gy.dtype) for name, shape in (("g", gy.shape), ("gx", self.images.shape)))
        ops.scale_rows(gy, self.has_steps.data, out=g)
        ops.max_pool_grad(g[:, :, None, None], self.where.data, out=images, kernel=self.kernel, stride=STRIDE, pad=PAD)
        ops.copy(images[..., 0].swapaxes(1, 2), out=gx)


@LAYERS.register()
class ClassToken(Layer):
    """Add a learned row at the start of each sequence: x (T N, D) becomes y ((T + 1) N, D).

    The row is the same for all sequences: the param token (D,), whose initial values are normal with standard
    deviation 0.02. Set ``unroll_len: T + 1`` for this layer and for the layers that read it. To select the row at the
    end of the net, use a TimePooling with ``pool: FIRST``.

    ClassToken does not work with a PaddingMask. With padding, add a number for the token at the start of each record
    instead, so that an Embedding learns the row of this number.

    Notes
    -----
    The layer follows Devlin et al. (2019), "BERT", and Dosovitskiy et al. (2021), "An image is worth 16x16 words".
    """

    traits = Traits(params=("token",), steps="all")
    speed = Speed(time_foldable=True, capturable=True, accumulates=True, reads_gradients=True)

    def setup(self) -> None:
        check_axes(self, "rows", 2)
        x, n_steps = self.sources[0], self.site.n_steps
        if n_steps != x.n_steps + 1:
            message = f"expected {x.n_steps + 1}, one more than {self.conf.srclayers[0]!r} has, got {n_steps}."
            raise ConfigError(Problem(("unroll_len",), message))
        self.n_rows = x.shape[0] // x.n_steps
        self.add_output((x.shape[0] + self.n_rows, x.shape[1]), overwritable=True)
        self.token = self.add_param(x.shape[1:], initial=NORMAL)
        self.index = self.ops.row_index(np.zeros(self.n_rows, np.int64), 1)

    def forward(self, phase: Phase) -> None:
        y = self.features[0].data
        self.ops.take_rows(self.token.data[None], self.index, out=y[: self.n_rows])
        self.ops.copy(self.sources[0].data, out=y[self.n_rows :])

    def backward(self, phase: Phase) -> None:
        gy, source = self.features[0].output_grad, self.sources[0]
        self.ops.linear_grad_bias(gy[: self.n_rows], out=self.token.grad, accumulate=phase.accumulates)
        if source.grad is not None:
            self.ops.copy(gy[self.n_rows :], out=source.grad)
