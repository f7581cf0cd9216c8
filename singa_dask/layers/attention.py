"""MultiHeadAttention: each time step attends to the other time steps, or to another sequence."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Field, Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer, check_axes
from singa_dask.layers.buffer import Buffer
from singa_dask.layers.feature import Feature
from singa_dask.layers.neuron import linear_gradients
from singa_dask.layers.param import ZEROS, glorot
from singa_dask.layers.time_steps import HIDDEN, check_all_steps, split_mask
from singa_dask.layers.traits import Speed, Traits
from singa_dask.ops.contract import Array


class MultiHeadAttentionConf(Conf):
    """``multiheadattention_conf``."""

    num_heads: Size
    """Number of heads. It must divide the number of features."""
    causal: bool = False
    """Whether each time step attends only to itself and to earlier time steps."""
    bias_term: bool = True
    """Whether biases are added to queries, keys, values and output."""
    rotary_base: float | None = Field(default=None, gt=1)
    """Base of rotary position embeddings (RoPE), usually 10000. At time step t, features i and i + d / 2 of the d
    features of a head are rotated by the angle t rotary_base^(-2 i / d). By default, queries and keys are not
    rotated."""
    carry_state: bool = False
    """Whether to attend also to the time steps of earlier batches of the same stream. Requires ``causal: true``. Not
    supported in training."""
    dropout_ratio: float = Field(default=0.0, ge=0, lt=1)
    """Probability that an attention weight is dropped in training. The other weights are divided by 1 -
    ``dropout_ratio``."""


class _Projection(NamedTuple):
    """A product that computes queries, keys or values: a source times some ``rows`` of the params."""

    source: Feature
    rows: slice
    product: Buffer


@LAYERS.register()
class MultiHeadAttention(Layer):
    """y = concat_h(softmax(Q_h K_h^T / sqrt(d)) V_h) W_o^T + b_o, with [Q K V] = x W_i^T + b_i and d = D / num_heads.

    With one source, each sequence attends to itself. x and y have the shape (T N, D): N rows for each of T time steps,
    beginning with the first time step. With ``causal``, a query attends only to the keys of its own time step and of
    earlier time steps.

    The params are qkv_weight W_i (3 D, D), output_weight W_o (D, D), qkv_bias b_i (3 D,) and output_bias b_o (D,). W_i
    and b_i have D rows for queries, then D rows for keys, then D rows for values.

    For cross-attention, add a second source (S N, D) with S time steps. Keys and values are then computed from this
    source. If the last source is a PaddingMask, the attention weights of padding are 0. If all keys of a query are
    padding, the output for this query is b_o.

    Notes
    -----
    The layer follows Vaswani et al. (2017), "Attention is all you need", and ``rotary_base`` follows Su et al. (2021),
    "RoFormer". With ``carry_state``, the layer keeps the keys and values of earlier batches. A net can then generate
    text one time step at a time.
    """

    options_class = MultiHeadAttentionConf
    traits = Traits(
        n_sources=(1, 3),
        params=("qkv_weight", "output_weight", "qkv_bias", "output_bias"),
        steps="memory",
        takes_mask=True,
    )
    speed = Speed(time_foldable=True, capturable=True, accumulates=True, reads_gradients=True, fuses=("add",))

    def setup(self) -> None:
        options, shape = self.options, self.sources[0].shape
        self.n_heads, self.causal, self.carries = options.num_heads, options.causal, options.carry_state
        self.rotary_base, self.n_steps = options.rotary_base, self.site.n_steps
        (x, *others), self.mask = split_mask(self, 2, masked=-1)
        self.memory = others[0] if others else None
        self.n_keys = self.n_steps if self.memory is None else self.memory.n_steps
        self._check(shape)
        n_rows, width = shape
        self.n_sequences, self.scale = n_rows // self.n_steps, 1 / math.sqrt(width // self.n_heads)
        self.add_output(shape, overwritable=True)
        initial = glorot(width, width)
        self.qkv_weight = self.add_param((3 * width, width), initial=initial)
        self.output_weight = self.add_param((width, width), initial=initial)
        self.qkv_bias = self.add_param((3 * width,), initial=ZEROS) if options.bias_term else None
        self.output_bias = self.add_param((width,), initial=ZEROS) if options.bias_term else None
        if self.memory is None:
            self.projections = [self._projection("qkv", x, slice(0, 3 * width))]
        else:
            queries = self._projection("q", x, slice(0, width))
            self.projections = [queries, self._projection("kv", self.memory, slice(width, 3 * width))]
        dtype = self.context.dtype
        self.attended = self.buffer("attended", shape, dtype)
        self.room: tuple[Array, ...] | None = None
        # allocate the weights as rows, because a buffer with four axes is laid out like images
        self.weights = self.buffer("weights", (n_rows * self.n_heads, self.n_keys), dtype)
        self.keep, self.drops = 1 - options.dropout_ratio, options.dropout_ratio > 0
        if self.drops:
            shape_of_mask = (self.n_sequences, self.weights.shape[0] // self.n_sequences * self.n_keys)
            self.dropout_mask = self.buffer("dropout mask", shape_of_mask, when="training")
        if self.mask is not None:
            # for padding, `seen` (a factor of the weights) is 0, and `offsets` (added to the scores) is HIDDEN
            self.seen, self.offsets = (
                self.buffer(name, (self.n_sequences, self.n_keys), dtype) for name in ("seen", "offsets")
            )
        if self.rotary_base is not None:
            shape = (self.n_steps, width // self.n_heads // 2)
            self.cos, self.sin = (self.buffer(name, shape, dtype) for name in ("cos", "sin"))

    def _projection(self, name: str, source: Feature, rows: slice) -> _Projection:
        shape = (source.shape[0], rows.stop - rows.start)
        return _Projection(source, rows, self.buffer(name, shape, self.context.dtype))

    def _check(self, shape: tuple[int, ...]) -> None:
        """Raise ConfigError for unsupported options and sources."""
        site, key = self.site, "multiheadattention_conf"
        check_axes(self, "rows", 2)
        if shape[1] % self.n_heads:
            message = f"expected a number that divides the {shape[1]} features, got {self.n_heads}."
            raise ConfigError(Problem((key, "num_heads"), message))
        if self.carries and not self.causal:
            message = "carry_state needs causal: true, as later batches are not known."
            raise ConfigError(Problem((key, "carry_state"), message))
        if self.carries and self.context.phase & Phase.TRAIN:
            message = "time steps are not carried from batch to batch in training. Set carry_state: false."
            raise ConfigError(Problem((key, "carry_state"), message))
        if self.carries and (self.memory is not None or self.mask is not None):
            message = "time steps are carried from batch to batch only if there is one source. Set carry_state: false."
            raise ConfigError(Problem((key, "carry_state"), message))
        if self.rotary_base is not None and (self.memory is not None or shape[1] // self.n_heads % 2):
            message = "distances between two sequences cannot be encoded. Leave rotary_base out."
            if self.memory is None:
                message = f"expected an even number of features in each head, got {shape[1] // self.n_heads}."
            raise ConfigError(Problem((key, "rotary_base"), message))
        check_all_steps(self)
        if self.n_keys == 1 and not self.carries:
            message = "there is only one time step. Set unroll_len."
            raise ConfigError(Problem(("unroll_len",) if self.memory is None else ("srclayers", 1), message))
        wanted = (shape[0] // site.n_steps * self.n_keys, shape[1])
        if self.memory is not None and self.memory.shape != wanted:
            message = f"the source of keys and values has shape {self.memory.shape}, expected {wanted}, as the queries."
            raise ConfigError(Problem(("srclayers", 1), message))

    def heads(self, *arrays: Array) -> list[Array]:
        """Divide the columns of arrays (T N, k H d) into k arrays of H heads each.

        Returns
        -------
        list of ndarray
            For each array, k views (N, H, T, d).
        """
        views, width = list[Array](), self.features[0].shape[1]
        for rows in arrays:
            by_head = rows.reshape(-1, self.n_sequences, rows.shape[1] // width, self.n_heads, width // self.n_heads)
            views += list(by_head.transpose(2, 1, 3, 0, 4))
        return views

    def prepare(self, phase: Phase) -> None:
        if self.mask is not None:
            valid = self.mask.data.reshape(self.n_keys, -1).T
            self.ops.copy(valid.astype(np.float32), out=self.seen.data)
            self.ops.copy(np.where(valid, 0, np.float32(HIDDEN)), out=self.offsets.data)
        if self.rotary_base is not None and self.carries:
            before = None if self.context.stream_start else self.state
            self.set_angles(self.rotary_base, 0 if before is None else before[0].shape[2])

    def attach(self) -> None:
        if self.rotary_base is not None:
            self.set_angles(self.rotary_base, 0)

    def set_angles(self, base: float, first: int) -> None:
        """Set the rotation angles of the time steps; ``first`` is the position of the first time step."""
        powers = base ** -np.linspace(0, 1, self.cos.shape[1], endpoint=False)
        angles = np.arange(first, first + self.n_steps)[:, None] * powers
        self.ops.copy(np.cos(angles), out=self.cos.data)
        self.ops.copy(np.sin(angles), out=self.sin.data)

    def rotate(self, heads: Array, back: bool = False) -> None:
        """Rotate queries or keys (N, H, T, d) in place by the angles of their time steps.

        With ``back``, undo this rotation.
        """
        ops, width = self.ops, self.cos.shape[1]
        one, other = heads[..., :width], heads[..., width:]
        parts = [ops.scratch(f"rotated {k}", (one.size,), one.dtype).reshape(one.shape) for k in range(2)]
        ops.multiply(one, self.sin.data, out=parts[0])
        ops.multiply(other, self.sin.data, out=parts[1])
        plus, minus = (ops.subtract, ops.add) if back else (ops.add, ops.subtract)
        for half, part, combine in ((other, parts[0], plus), (one, parts[1], minus)):
            ops.multiply(half, self.cos.data, out=half)
            combine(half, part, out=half)

    def forward(self, phase: Phase) -> None:
        ops, y, added = self.ops, self.features[0].data, self.fused.add
        bias = None if self.qkv_bias is None else self.qkv_bias.data
        for source, rows, product in self.projections:
            ops.linear(source.data, self.qkv_weight.data[rows], None if bias is None else bias[rows], out=product.data)
        queries, keys, values = self.heads(*(product.data for *_, product in self.projections))
        if self.rotary_base is not None:
            self.rotate(queries)
            self.rotate(keys)
        weights, first = self.weights.data, 0
        if self.carries:
            keys, values = self.remembered(keys, values)
            first = keys.shape[2] - self.n_steps
            weights = ops.scratch("attention weights", (len(weights), keys.shape[2]), weights.dtype)
        weights = weights.reshape(*queries.shape[:3], -1)
        ops.batch_matmul(queries, keys, out=weights, transpose_b=True, scale=self.scale)
        if self.mask is not None:
            ops.add(weights, self.offsets.data[:, None, None], out=weights)
        ops.masked_softmax(weights, out=weights, causal=self.causal, first=first)
        if self.mask is not None:
            # if all keys of a sequence are padding, their weights are equal, and this product sets them to 0
            ops.multiply(weights, self.seen.data[:, None, None], out=weights)
        if self.drops and phase & Phase.TRAIN:
            ops.dropout_mask(
                self.random_key(), self.keep, out=self.dropout_mask.data, first_row=self.first_row(self.n_sequences)
            )
            weights = self.without_dropped(weights)
        ops.batch_matmul(weights, values, out=self.heads(self.attended.data)[0])
        output_bias = None if self.output_bias is None else self.output_bias.data
        if added is None:
            ops.linear(self.attended.data, self.output_weight.data, output_bias, out=y)
        else:
            ops.linear_add(self.attended.data, self.output_weight.data, output_bias, added.data, out=y)

    def without_dropped(self, weights: Array) -> Array:
        """Return weights (N, H, T, S) multiplied by the dropout mask. The result is valid until the next call."""
        out = self.ops.scratch("weights without dropped", self.weights.shape, self.weights.dtype).reshape(weights.shape)
        self.ops.multiply(weights, self.dropout_mask.data.reshape(weights.shape), out=out)
        return out

    def remembered(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Append keys and values to the state; return all keys and values since the start of the stream."""
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
        ops, gy, weight = self.ops, self.features[0].output_grad, self.output_weight
        bias_grad = None if self.output_bias is None else self.output_bias.grad
        linear_gradients(ops, self.attended.data, gy, weight.grad, bias_grad, accumulate=phase.accumulates)
        g_attended = ops.scratch("attended grad", gy.shape, self.attended.dtype)
        ops.linear_grad_input(gy, weight.data, out=g_attended)
        grads = [
            ops.scratch(f"projection grad {k}", product.shape, product.dtype)
            for k, (*_, product) in enumerate(self.projections)
        ]
        self.through_heads(self.heads(g_attended)[0], self.heads(*grads))
        weight, bias_grad = self.qkv_weight, None if self.qkv_bias is None else self.qkv_bias.grad
        for (source, rows, _), grad in zip(self.projections, grads, strict=True):
            g_bias = None if bias_grad is None else bias_grad[rows]
            linear_gradients(ops, source.data, grad, weight.grad[rows], g_bias, accumulate=phase.accumulates)
            if source.grad is not None:
                ops.linear_grad_input(grad, weight.data[rows], out=source.grad)

    def through_heads(self, g_attended: Array, out: list[Array]) -> None:
        """Compute the gradients of queries, keys and values from the gradients of the heads' outputs.

        All arrays are (N, H, T, d).
        """
        ops, rows = self.ops, self.weights.data
        queries, keys, values = self.heads(*(product.data for *_, product in self.projections))
        g_rows = ops.scratch("attention weights", rows.shape, rows.dtype)
        weights, g_weights = (matrix.reshape(*queries.shape[:3], -1) for matrix in (rows, g_rows))
        kept = self.without_dropped(weights) if self.drops else weights
        ops.batch_matmul(kept, g_attended, out=out[2], transpose_a=True)
        ops.batch_matmul(g_attended, values, out=g_weights, transpose_b=True)
        if self.drops:
            ops.multiply(g_weights, self.dropout_mask.data.reshape(g_weights.shape), out=g_weights)
        ops.softmax_grad(rows, g_rows, out=g_rows)
        ops.batch_matmul(g_weights, keys, out=out[0], scale=self.scale)
        ops.batch_matmul(g_weights, queries, out=out[1], transpose_a=True, scale=self.scale)
        if self.rotary_base is not None:
            self.rotate(out[0], back=True)
            self.rotate(out[1], back=True)
