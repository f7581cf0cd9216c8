"""MultiHeadAttention: each time step reads the others."""

from __future__ import annotations

import math

from singa_dask.conf import Phase
from singa_dask.conf.model import Conf, Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer, check_axes
from singa_dask.layers.feature import ZEROS, Param, Traits, glorot
from singa_dask.ops.contract import Array


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
