"""Layers that read numbers, of characters or words: one-hot rows, an embedding, labels."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from singa_dask.conf import InitConf, LayerConf, Phase
from singa_dask.conf.model import Conf, Count, Size
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers.base import LAYERS, Layer, check_axes
from singa_dask.layers.feature import ZEROS, Connection, Param, RecordIds, Traits, glorot
from singa_dask.ops.contract import Array


class OneHotConf(Conf):
    """``onehot_conf`` (SINGA's OnehotProto)."""

    vocab_size: Count = 0
    """Length of a one-hot row."""


class EmbeddingConf(Conf):
    """``embedding_conf`` (SINGA's EmbeddingProto)."""

    vocab_size: Count = 0
    """Rows of the table."""
    feature_dim: Size = 100
    """Values of a row."""


INITIAL = InitConf(type="Uniform", low=-0.05, high=0.05)


class Numbers(Layer):
    """What layers that read numbers share.

    A time step reads its own column of a source that is not unrolled and has several columns; a single one is shared.
    """

    traits = Traits(time_foldable=True, time_from_columns=True, capturable=True, reads_on_host=True)
    ahead: ClassVar[int] = 0

    def setup(self) -> None:
        source, last = self.sources[0], self.site.first_step + self.site.n_steps + self.ahead
        several = source.size > 1 or self.ahead > 0
        self.own_columns = several and source.n_steps == 1
        if several and not self.own_columns:
            message = f"expected one number a row, in a source of {source.n_steps} time steps, got {source.size}."
            raise ConfigError(Problem(("srclayers", 0), message))
        if several and source.size < last:
            message = f"expected {last} columns or more, {self.site.n_steps} time steps from {self.site.first_step} on"
            message += f", with labels, got {source.size}." if self.ahead else f", got {source.size}."
            raise ConfigError(Problem(("srclayers", 0), message))
        self.n_numbers = source.shape[0] * self.site.n_steps // source.n_steps

    def numbers(self) -> Array:
        """Return the numbers of all rows, those of the first time step first: (rows,) int64."""
        data = self.ops.to_host(self.rows())
        if self.sources[0].n_steps > 1:
            return data.reshape(-1).astype(np.int64)
        first = self.site.first_step + self.ahead
        columns = data[:, first : first + self.site.n_steps] if self.own_columns else data
        return np.broadcast_to(columns.T, (self.site.n_steps, len(data))).astype(np.int64).reshape(-1)

    def check(self, numbers: Array, least: int, n: int) -> None:
        """Refuse numbers that are not in [``least``, ``n``).

        Raises
        ------
        DataError
            One is not.
        """
        if numbers.min() < least or numbers.max() >= n:
            wrong = numbers[(numbers < least) | (numbers >= n)][0]
            raise DataError(
                f"layer {self.name}: {wrong} is out of range. Numbers from {self.conf.srclayers[0]!r} must be "
                f"{least} to {n - 1}, as vocab_size is {n}."
            )


def _vocab_size(block: OneHotConf | EmbeddingConf, conf: LayerConf, key: str) -> int:
    """Return the size of the vocabulary, which the job has to say."""
    if not block.vocab_size:
        raise ConfigError(Problem((key, "vocab_size"), f"{conf.type} needs it: how many numbers there are."))
    return block.vocab_size


@LAYERS.register()
class OneHot(Numbers):
    """One-hot rows: zeros with a one in the column that the source gives, (rows, vocab_size).

    If no layer reads the rows, only the columns are passed on.
    """

    block = OneHotConf
    traits = Numbers.traits.replace(needs_split=False)

    def setup(self) -> None:
        super().setup()
        self.n_values = _vocab_size(self.conf.block(OneHotConf), self.conf, "onehot_conf")
        self.add_output((self.n_numbers, self.n_values), requires_grad=False, own_data="consumed")

    def prepare(self, phase: Phase) -> None:
        feature, numbers = self.features[0], self.numbers()
        self.check(numbers, 0, self.n_values)
        feature.one_hot_index = self.ops.row_index(numbers, self.n_values, feature.one_hot_index)

    def forward(self, phase: Phase) -> None:
        feature = self.features[0]
        if feature.has_data and feature.one_hot_index is not None:
            self.ops.one_hot(feature.one_hot_index, out=feature.data)


@LAYERS.register()
class Embedding(Numbers):
    """Rows of a table (vocab_size, feature_dim), selected by the source: (rows, feature_dim).

    -1 is padding, a row of zeros, as SINGA documents it. The gradient of a row of the table is the sum over all rows of
    the output that were taken from it. (SINGA's loses some.)
    """

    block = EmbeddingConf
    traits = Numbers.traits.replace(
        params=("table",), accumulates=True, reads_gradients=True, feature_parallel=Connection.ONE_TO_ALL
    )

    def setup(self) -> None:
        super().setup()
        block = self.conf.block(EmbeddingConf)
        n_values, span = _vocab_size(block, self.conf, "embedding_conf"), self.feature_span(block.feature_dim)
        self.add_output((self.n_numbers, span.size), overwritable=True, span=span)
        self.table = self.add_param((n_values, span.size), initial=lambda whole: INITIAL, axis=1)

    def attach(self) -> None:
        self.index = self.ops.row_index(np.zeros(self.n_numbers, np.int64), self.table.shape[0])

    def prepare(self, phase: Phase) -> None:
        numbers, n_rows = self.numbers(), self.table.shape[0]
        self.check(numbers, -1, n_rows)
        self.index = self.ops.row_index(numbers, n_rows, self.index)

    def forward(self, phase: Phase) -> None:
        self.ops.take_rows(self.table.data, self.index, out=self.features[0].data)

    def backward(self, phase: Phase) -> None:
        self.ops.add_rows(
            self.features[0].output_grad, self.index, out=self.table.grad, accumulate=self.table.accumulates
        )
        grad = self.sources[0].grad
        if grad is not None:
            grad[...] = 0


@LAYERS.register()
class RNNLabel(Numbers):
    """Labels of the time steps: the number that the source has for the next step."""

    traits = Numbers.traits.replace(needs_split=False)
    ahead = 1

    def setup(self) -> None:
        super().setup()
        self.add_output((self.n_numbers, 1), requires_grad=False)

    def prepare(self, phase: Phase) -> None:
        feature = self.features[0]
        labels = self.ops.labels(self.numbers().astype(np.int32), feature.labels)
        feature.records = RecordIds(labels)
        if "data" in feature.consumed_as:
            self.ops.copy(labels[:, None], out=feature.data)

    def forward(self, phase: Phase) -> None:
        pass


INITIAL_PLACES = InitConf(type="Gaussian", std=0.02)


class PositionalEmbeddingConf(Conf):
    """``positionalembedding_conf``."""

    max_length: Size
    """Positions that have a row: the most time steps of a sequence."""
    carry_state: bool = False
    """Go on counting where the batch before has stopped, if it is of the same stream; not in training."""


@LAYERS.register()
class PositionalEmbedding(Layer):
    """y = x + table[t], where x (T N, D) are rows of T time steps, and t is the time step of a row.

    The table is a param (max_length, D), at first normal with standard deviation 0.02.

    Notes
    -----
    The learnt positions that Vaswani et al. (2017) mention, as in GPT.
    """

    block = PositionalEmbeddingConf
    traits = Traits(
        params=("table",),
        time_foldable=True,
        capturable=True,
        accumulates=True,
        reads_gradients=True,
        feature_parallel=Connection.ONE_TO_ONE,
    )

    def setup(self) -> None:
        block, site, shape = self.conf.block(PositionalEmbeddingConf), self.site, self.sources[0].shape
        check_axes(self, "rows", 2)
        n_steps = site.first_step + site.n_steps
        if n_steps > block.max_length:
            message = f"expected at least {n_steps}, the time steps, got {block.max_length}."
            raise ConfigError(Problem(("positionalembedding_conf", "max_length"), message))
        if block.carry_state and self.context.phase & Phase.TRAIN:
            message = "positions are carried from batch to batch only where nothing is trained. Say false."
            raise ConfigError(Problem(("positionalembedding_conf", "carry_state"), message))
        self.max_length, self.carries = block.max_length, block.carry_state
        output = self.add_output(shape, overwritable=True)
        if type(self) is PositionalEmbedding:
            self.sources[0].share_grad(output)
        self.table = self.add_param((block.max_length, shape[1]), initial=lambda whole: INITIAL_PLACES, axis=1)

    def attach(self) -> None:
        self.index = self.positions_from(self.site.first_step)

    def positions_from(self, first: int, before: Array | None = None) -> Array:
        """Return the position of each row, from that of the first one; ``before`` is memory for reuse."""
        positions = np.arange(first, first + self.site.n_steps)
        n_rows = self.features[0].shape[0] // self.site.n_steps
        return self.ops.row_index(np.repeat(positions, n_rows), self.max_length, before)

    def prepare(self, phase: Phase) -> None:
        if not self.carries:
            return
        position = 0 if self.state is None or self.context.stream_start else int(self.state[0])
        if position + self.site.n_steps > self.max_length:
            raise DataError(
                f"layer {self.name}: there is no position {position}. Expected at most {self.max_length} time steps, "
                "as positionalembedding_conf.max_length says."
            )
        self.index = self.positions_from(position, self.index)
        self.state = (np.array(position + self.site.n_steps),)

    def forward(self, phase: Phase) -> None:
        x, y = self.sources[0].data, self.features[0].data
        self.ops.take_rows(self.table.data, self.index, out=y)
        self.ops.add(x, y, out=y)

    def backward(self, phase: Phase) -> None:
        source, gy = self.sources[0], self.features[0].output_grad
        self.ops.add_rows(gy, self.index, out=self.table.grad, accumulate=self.table.accumulates)
        if source.grad is not None and source.grad is not gy:
            self.ops.copy(gy, out=source.grad)


# MultiHeadAttention: each time step reads the others.


class MultiHeadAttentionConf(Conf):
    """``multiheadattention_conf``."""

    num_heads: Size
    """Heads, each with its part of the features; divides their number."""
    causal: bool = False
    """Whether a time step reads itself and earlier ones only."""
    bias_term: bool = True
    """Whether biases are added to queries, keys, values and output."""
    carry_state: bool = False
    """Also read the time steps of the batches before, as far as they are of the same stream; causal, not in training.
    """


@LAYERS.register()
class MultiHeadAttention(Layer):
    """y = concat_h(softmax(Q_h K_h^T / sqrt(d)) V_h) W_o^T + b_o, with [Q K V] = x W_i^T + b_i and d = D / num_heads.

    x and y (T N, D) are rows of T time steps, those of the first step first; a sequence reads itself. Params:
    qkv_weight W_i (3 D, D), the rows of queries, keys, values; output_weight W_o (D, D); qkv_bias (3 D,);
    output_bias (D,). With ``causal`` a query reads the keys of its own and earlier time steps.

    Notes
    -----
    After Vaswani et al. (2017), "Attention is all you need". With ``carry_state`` keys and values are kept, so that a
    net that writes computes one time step at a time.
    """

    block = MultiHeadAttentionConf
    traits = Traits(
        params=("qkv_weight", "output_weight", "qkv_bias", "output_bias"),
        time_foldable=True,
        capturable=True,
        accumulates=True,
        reads_gradients=True,
    )

    def setup(self) -> None:
        block, shape = self.conf.block(MultiHeadAttentionConf), self.sources[0].shape
        self.n_heads, self.causal, self.carries = block.num_heads, block.causal, block.carry_state
        self._check(shape)
        n_rows, width = shape
        self.n_steps, self.scale = self.site.n_steps, 1 / math.sqrt(width // self.n_heads)
        self.add_output(shape, overwritable=True)
        self.qkv_weight = self.add_param((3 * width, width), initial=lambda whole: glorot(width, width))
        self.output_weight = self.add_param((width, width), initial=lambda whole: glorot(*whole))
        self.qkv_bias = self.add_bias(3 * width, block.bias_term, ZEROS)
        self.output_bias = self.add_bias(width, block.bias_term, ZEROS)
        # heads follow each other at one distance, so that a GPU computes the products of all in one call
        self.weight_by_head = self.buffer("weight by head", self.qkv_weight.shape, self.context.dtype)
        self.bias_by_head = self.buffer("bias by head", self.qkv_weight.shape[:1]) if block.bias_term else None
        self.is_ordered = False
        self.qkv = self.buffer("qkv", (n_rows, 3 * width), self.context.dtype)
        self.attended = self.buffer("attended", shape, self.context.dtype)
        self.room: tuple[Array, ...] | None = None
        # in rows, as memory of four axes would be laid out as that of images
        self.weights = self.buffer("weights", (n_rows * self.n_heads, self.n_steps), self.context.dtype)

    def _check(self, shape: tuple[int, ...]) -> None:
        """Refuse what cannot be computed."""
        site, key = self.site, "multiheadattention_conf"
        check_axes(self, "rows", 2)
        if shape[1] % self.n_heads:
            message = f"expected a number that divides the {shape[1]} features, got {self.n_heads}."
            raise ConfigError(Problem((key, "num_heads"), message))
        if self.carries and not self.causal:
            raise ConfigError(Problem((key, "carry_state"), "later batches are read by none before. Say causal: true."))
        if self.carries and self.context.phase & Phase.TRAIN:
            message = "time steps are carried from batch to batch only where nothing is trained. Say false."
            raise ConfigError(Problem((key, "carry_state"), message))
        if site.name.startswith(f"{site.first_step}#"):
            message = (
                "the layer needs all time steps at once, but here they are computed one by one. It must not be in a "
                "cycle, and must read the same time steps of a source that has as many: unroll_conn_type OneToOne, "
                "no shift."
            )
            raise ConfigError(Problem(("srclayers",), message))
        if site.n_steps == 1 and not self.carries:
            message = "there is one time step, which has no other one to read. Say unroll_len."
            raise ConfigError(Problem(("unroll_len",), message))

    def heads(self, rows: Array) -> list[Array]:
        """Return views (N, H, T, d) of rows (T N, H k d), one for each of the k parts of the columns of a head."""
        n_rows, width = self.features[0].shape
        shape = (self.n_steps, n_rows // self.n_steps, self.n_heads, -1, width // self.n_heads)
        return list(rows.reshape(shape).transpose(3, 1, 2, 0, 4))

    def order_params(self) -> None:
        """Order the rows of the params of queries, keys and values by head: (3, H, d) -> (H, 3, d)."""
        if self.is_ordered and self.context.frozen:
            return
        for param, ordered in ((self.qkv_weight, self.weight_by_head), (self.qkv_bias, self.bias_by_head)):
            if param is not None and ordered is not None:
                shape, own = (3, self.n_heads, -1, *param.shape[1:]), ordered.data
                self.ops.copy(param.data.reshape(shape).swapaxes(0, 1), out=own.reshape(self.n_heads, 3, *shape[2:]))
        self.is_ordered = True

    def give_grad(self, by_head: Array, param: Param) -> None:
        """Set the gradient of a param of queries, keys and values, or add to it; its rows are by head."""
        shape = (3, self.n_heads, -1, *param.shape[1:])
        grad, out = by_head.reshape(self.n_heads, 3, *shape[2:]).swapaxes(0, 1), param.grad.reshape(shape)
        if param.accumulates:
            self.ops.add(out, grad, out=out)
        else:
            self.ops.copy(grad, out=out)

    def forward(self, phase: Phase) -> None:
        ops, y = self.ops, self.features[0].data
        self.order_params()
        qkv_bias, output_bias = (None if bias is None else bias.data for bias in (self.bias_by_head, self.output_bias))
        ops.linear(self.sources[0].data, self.weight_by_head.data, qkv_bias, out=self.qkv.data)
        queries, keys, values = self.heads(self.qkv.data)
        weights, first = self.weights.data, 0
        if self.carries:
            keys, values = self.remembered(keys, values)
            first = keys.shape[2] - self.n_steps
            weights = ops.scratch("attention weights", (len(weights), keys.shape[2]), weights.dtype)
        weights = weights.reshape(*queries.shape[:3], -1)
        ops.batch_matmul(queries, keys, out=weights, transpose_b=True, scale=self.scale)
        ops.masked_softmax(weights, out=weights, causal=self.causal, first=first)
        ops.batch_matmul(weights, values, out=self.heads(self.attended.data)[0])
        ops.linear(self.attended.data, self.output_weight.data, output_bias, out=y)

    def remembered(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Keep keys and values; return all that have been kept since the stream of records has started."""
        before = None if self.context.stream_start else self.state
        n_before = 0 if before is None else before[0].shape[2]
        n_steps = n_before + self.n_steps
        if self.room is None or self.room[0].shape[2] < n_steps:
            n, h, _, d = keys.shape
            self.room = tuple(self.ops.empty((n, h, 2 * n_steps, d), keys.dtype) for _ in range(2))
            for old, new in zip(before or (), self.room, strict=False):
                self.ops.copy(old, out=new[:, :, :n_before])
        for new, kept in zip((keys, values), self.room, strict=True):
            self.ops.copy(new, out=kept[:, :, n_before:n_steps])
        all_keys, all_values = (kept[:, :, :n_steps] for kept in self.room)
        self.state = (all_keys, all_values)
        return all_keys, all_values

    def backward(self, phase: Phase) -> None:
        ops, source, gy, weight = self.ops, self.sources[0], self.features[0].output_grad, self.output_weight
        ops.linear_grad_weight(self.attended.data, gy, out=weight.grad, accumulate=weight.accumulates)
        if self.output_bias is not None:
            ops.linear_grad_bias(gy, out=self.output_bias.grad, accumulate=self.output_bias.accumulates)
        g_attended = ops.scratch("attended grad", gy.shape, self.qkv.dtype)
        ops.linear_grad_input(gy, weight.data, out=g_attended)
        g_qkv = ops.scratch("qkv grad", self.qkv.shape, self.qkv.dtype)
        self.through_heads(self.heads(g_attended)[0], self.heads(g_qkv))
        g_weight = ops.scratch("qkv weight grad", self.qkv_weight.shape, self.qkv_weight.dtype)
        ops.linear_grad_weight(source.data, g_qkv, out=g_weight)
        self.give_grad(g_weight, self.qkv_weight)
        if self.qkv_bias is not None:
            g_bias = ops.scratch("qkv bias grad", self.qkv_bias.shape, self.qkv_bias.dtype)
            ops.linear_grad_bias(g_qkv, out=g_bias)
            self.give_grad(g_bias, self.qkv_bias)
        if source.grad is not None:
            ops.linear_grad_input(g_qkv, self.weight_by_head.data, out=source.grad)

    def through_heads(self, g_attended: Array, out: list[Array]) -> None:
        """Compute the gradients of queries, keys and values from that of what the heads give, all (N, H, T, d)."""
        ops, rows = self.ops, self.weights.data
        queries, keys, values = self.heads(self.qkv.data)
        g_rows = ops.scratch("attention weights", rows.shape, rows.dtype)
        weights, g_weights = (matrix.reshape(*queries.shape[:3], -1) for matrix in (rows, g_rows))
        ops.batch_matmul(weights, g_attended, out=out[2], transpose_a=True)
        ops.batch_matmul(g_attended, values, out=g_weights, transpose_b=True)
        ops.softmax_grad(rows, g_rows, out=g_rows)
        ops.batch_matmul(g_weights, keys, out=out[0], scale=self.scale)
        ops.batch_matmul(g_weights, queries, out=out[1], transpose_a=True, scale=self.scale)
