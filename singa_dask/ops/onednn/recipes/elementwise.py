"""Recipes of `Elementwise`, and of copies."""

from __future__ import annotations

from singa_dask.ops.contract import Array
from singa_dask.ops.onednn.call import Call, Operand, layout
from singa_dask.ops.onednn.library import Alg, Arg, Engine, Prop
from singa_dask.ops.onednn.recipes.describe import described, fast, flat

__all__ = ["copy", "gelu", "gelu_grad", "relu", "relu_grad", "silu", "silu_grad"]


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
