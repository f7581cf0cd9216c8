"""Recipes of `Elementwise`, `Softmax` and `Linear`, and of copies."""

from __future__ import annotations

from singa_dask.ops.contract import Array
from singa_dask.ops.onednn.call import Call, Operand, described, fast, flat, layout
from singa_dask.ops.onednn.library import Alg, Arg, Engine, Prop

__all__ = [
    "batch_matmul",
    "copy",
    "gelu",
    "gelu_grad",
    "linear",
    "linear_grad_input",
    "linear_grad_weight",
    "relu",
    "relu_grad",
    "silu",
    "silu_grad",
    "softmax_rows",
]


def copy(engine: Engine, x: Array, out: Array) -> Call:
    """Make the call of `Memory.copy`."""
    source, target = (engine.md(array.shape, array.dtype, layout(array)) for array in (x, out))
    return Call(engine, engine.describe_reorder(source, target), [Operand(Arg.SRC, x), Operand(Arg.DST, out, True)])


def relu(engine: Engine, x: Array, out: Array, negative_slope: float) -> Call:
    """Make the call of `Elementwise.relu`."""
    return activation(engine, Alg.RELU, x, out, negative_slope)


def relu_grad(engine: Engine, y: Array, gy: Array, out: Array, negative_slope: float) -> Call:
    """Make the call of `Elementwise.relu_grad`."""
    y, gy, out = flat(y, gy, out)
    output, how = described(engine, y), (negative_slope, 0.0)
    alg, attributes = Alg.RELU_FROM_OUTPUT, engine.attributes()
    forward = engine.describe("eltwise_forward", Prop.TRAINING, alg, output, output, *how, attributes)
    mds = (described(engine, out), described(engine, gy), output)
    description = fast(engine, "eltwise_backward", alg, *mds, *how, forward, attributes)
    return Call(engine, description, [Operand(Arg.DST, y), Operand(Arg.DIFF_DST, gy), Operand(Arg.DIFF_SRC, out, True)])


def gelu(engine: Engine, x: Array, out: Array, approximate: bool) -> Call:
    """Make the call of `Elementwise.gelu`."""
    return activation(engine, Alg.GELU_TANH if approximate else Alg.GELU_ERF, x, out)


def gelu_grad(engine: Engine, x: Array, gy: Array, out: Array, approximate: bool) -> Call:
    """Make the call of `Elementwise.gelu_grad`."""
    return activation_grad(engine, Alg.GELU_TANH if approximate else Alg.GELU_ERF, x, gy, out)


def silu(engine: Engine, x: Array, out: Array) -> Call:
    """Make the call of `Elementwise.silu`."""
    return activation(engine, Alg.SILU, x, out)


def silu_grad(engine: Engine, x: Array, gy: Array, out: Array) -> Call:
    """Make the call of `Elementwise.silu_grad`."""
    return activation_grad(engine, Alg.SILU, x, gy, out)


def activation(engine: Engine, alg: Alg, x: Array, out: Array, slope: float = 1.0) -> Call:
    """Make the call of an activation; oneDNN's swish is x / (1 + exp(-slope x))."""
    x, out = flat(x, out)
    args = (alg, described(engine, x), described(engine, out), slope, 0.0, engine.attributes())
    description = fast(engine, "eltwise_forward", Prop.TRAINING, *args)
    return Call(engine, description, [Operand(Arg.SRC, x), Operand(Arg.DST, out, True)])


def activation_grad(engine: Engine, alg: Alg, x: Array, gy: Array, out: Array) -> Call:
    """Make the call of the gradient of an activation from its input."""
    x, gy, out = flat(x, gy, out)
    source, how, attributes = described(engine, x), (1.0, 0.0), engine.attributes()
    forward = engine.describe("eltwise_forward", Prop.TRAINING, alg, source, source, *how, attributes)
    mds = (described(engine, out), described(engine, gy), source)
    description = fast(engine, "eltwise_backward", alg, *mds, *how, forward, attributes)
    return Call(engine, description, [Operand(Arg.SRC, x), Operand(Arg.DIFF_DST, gy), Operand(Arg.DIFF_SRC, out, True)])


def softmax_rows(engine: Engine, x: Array, out: Array) -> Call:
    """Make the call of the softmax of the last axis, for `Softmax.masked_softmax`."""
    source, target = (engine.md(array.shape, array.dtype, layout(array)) for array in (x, out))
    args = (Alg.SOFTMAX, source, target, x.ndim - 1, engine.attributes())
    description = fast(engine, "softmax_forward", Prop.INFERENCE, *args)
    return Call(engine, description, [Operand(Arg.SRC, x), Operand(Arg.DST, out, True)])


def product(engine: Engine, left: Array, right: Array, out: Array, bias: Array | None = None, add: bool = False) -> int:
    """Describe ``out = left right + bias``, added to ``out`` if ``add``."""
    # a conversion also brings it to the layout that the primitive prefers
    same = left.dtype == right.dtype
    factor = described(engine, right) if same else engine.md(right.shape, left.dtype)
    offset = None if bias is None else described(engine, bias[None])
    mds = (described(engine, left), factor, offset, described(engine, out))
    return fast(engine, "matmul", *mds, engine.attributes(add))


def linear(engine: Engine, x: Array, w: Array, b: Array | None, out: Array, transpose: bool) -> Call:
    """Make the call of `Linear.linear`."""
    right = w if transpose else w.T
    reads = [Operand(Arg.SRC, x), Operand(Arg.WEIGHTS, right), b if b is None else Operand(Arg.BIAS, b[None])]
    return Call(engine, product(engine, x, right, out, b), [*reads, Operand(Arg.DST, out, True)])


def linear_grad_input(engine: Engine, gy: Array, w: Array, out: Array, transpose: bool, accumulate: bool) -> Call:
    """Make the call of `Linear.linear_grad_input`."""
    right = w.T if transpose else w
    reads = [Operand(Arg.SRC, gy), Operand(Arg.WEIGHTS, right)]
    return Call(engine, product(engine, gy, right, out, add=accumulate), [*reads, Operand(Arg.DST, out, True)])


def linear_grad_weight(engine: Engine, x: Array, gy: Array, out: Array, transpose: bool, accumulate: bool) -> Call:
    """Make the call of `Linear.linear_grad_weight`."""
    left, right = (x.T, gy) if transpose else (gy.T, x)
    rows, columns = (Arg.SRC, Arg.WEIGHTS) if transpose else (Arg.WEIGHTS, Arg.SRC)
    reads = [Operand(rows, left if transpose else right), Operand(columns, right if transpose else left)]
    return Call(engine, product(engine, left, right, out, add=accumulate), [*reads, Operand(Arg.DST, out, True)])


def batch_matmul(
    engine: Engine, a: Array, b: Array, out: Array, transpose_a: bool, transpose_b: bool, scale: float
) -> Call:
    """Make the call of `Linear.batch_matmul`."""
    left, right = a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b
    source, target = (engine.md(x.shape, x.dtype, layout(x)) for x in (left, out))
    # copied to the layout that the primitive prefers: twice as fast if b is transposed
    factor = engine.md(right.shape, left.dtype)
    description = fast(engine, "matmul", source, factor, None, target, engine.attributes(scale=scale))
    return Call(engine, description, [Operand(Arg.SRC, left), Operand(Arg.WEIGHTS, right), Operand(Arg.DST, out, True)])
