"""Recipes of `Images`: convolution and pooling."""

from __future__ import annotations

from typing import Any

from singa_dask.ops.contract import Array, Pair
from singa_dask.ops.onednn.call import Call, Operand, described, fast
from singa_dask.ops.onednn.library import Alg, Arg, Engine, Prop, integers

__all__ = [
    "avg_pool",
    "avg_pool_grad",
    "conv2d",
    "conv2d_grad_input",
    "conv2d_grad_weight",
    "max_pool",
    "max_pool_grad",
]

# oneDNN counts the values between two taps of a kernel.
NO_DILATION = integers((0, 0))


def convolution(
    engine: Engine, x: Array, w: Array, b: Array | None, y: Array, stride: Pair, pad: Pair, relu: bool = False
) -> tuple[int, list[Any]]:
    """Describe a convolution forward, and return what describing its gradients takes too."""
    weights, bias = engine.md(w.shape, x.dtype), None if b is None else described(engine, b)
    around = [integers(stride), NO_DILATION, integers(pad), integers(pad)]
    args = [described(engine, x), weights, bias, described(engine, y), *around]
    name, attributes = "convolution_forward", engine.attributes(relu=relu)
    return fast(engine, name, Prop.TRAINING, Alg.CONVOLUTION, *args, attributes), [*args, attributes]


def conv2d(
    engine: Engine, x: Array, w: Array, b: Array | None, out: Array, stride: Pair, pad: Pair, relu: bool
) -> Call:
    """Make the call of `Images.conv2d`."""
    description, _ = convolution(engine, x, w, b, out, stride, pad, relu)
    reads = [Operand(Arg.SRC, x), Operand(Arg.WEIGHTS, w), b if b is None else Operand(Arg.BIAS, b)]
    return Call(engine, description, [*reads, Operand(Arg.DST, out, True)])


def conv2d_grad_input(engine: Engine, gy: Array, w: Array, out: Array, stride: Pair, pad: Pair) -> Call:
    """Make the call of `Images.conv2d_grad_input`."""
    forward, (gx, weights, _, g, *around, attributes) = convolution(engine, out, w, None, gy, stride, pad)
    args = (Alg.CONVOLUTION, gx, weights, g, *around, forward, attributes)
    description = fast(engine, "convolution_backward_data", *args)
    return Call(
        engine, description, [Operand(Arg.DIFF_DST, gy), Operand(Arg.WEIGHTS, w), Operand(Arg.DIFF_SRC, out, True)]
    )


def conv2d_grad_weight(
    engine: Engine, x: Array, gy: Array, out: Array, bias: Array | None, stride: Pair, pad: Pair, accumulate: bool
) -> Call:
    """Make the call of `Images.conv2d_grad_weight`."""
    forward, (source, _, *args, attributes) = convolution(engine, x, out, bias, gy, stride, pad)
    mds = (source, engine.md(out.shape, out.dtype))
    description = fast(engine, "convolution_backward_weights", Alg.CONVOLUTION, *mds, *args, forward, attributes)
    reads = [Operand(Arg.SRC, x), Operand(Arg.DIFF_DST, gy)]
    writes = [(Arg.DIFF_WEIGHTS, out), (Arg.DIFF_BIAS, bias)]
    written = [None if array is None else Operand(place, array, True, accumulate) for place, array in writes]
    return Call(engine, description, [*reads, *written])


def pooling(
    engine: Engine, alg: Alg, x: Array, y: Array, kernel: Pair, stride: Pair, pad: Pair, training: bool
) -> tuple[int, list[Any]]:
    """Describe a pooling forward, and return what describing its gradient takes too."""
    around = [integers(stride), integers(kernel), NO_DILATION, integers(pad), integers(pad)]
    args = [described(engine, x), described(engine, y), *around]
    attributes = engine.attributes()
    prop = Prop.TRAINING if training else Prop.INFERENCE
    return fast(engine, "pooling_forward", prop, alg, *args, attributes), [*args, attributes]


def max_pool(engine: Engine, x: Array, out: Array, where: Array | None, kernel: Pair, stride: Pair, pad: Pair) -> Call:
    """Make the call of `Images.max_pool`; where the largest value was is the primitive's workspace."""
    description, _ = pooling(engine, Alg.POOL_MAX, x, out, kernel, stride, pad, where is not None)
    places = None if where is None else Operand(Arg.WORKSPACE, where, True)
    return Call(engine, description, [Operand(Arg.SRC, x), Operand(Arg.DST, out, True), places])


def max_pool_grad(engine: Engine, gy: Array, where: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair) -> Call:
    """Make the call of `Images.max_pool_grad`."""
    forward, (*args, attributes) = pooling(engine, Alg.POOL_MAX, out, gy, kernel, stride, pad, True)
    description = fast(engine, "pooling_backward", Alg.POOL_MAX, *args, forward, attributes)
    reads = [Operand(Arg.DIFF_DST, gy), Operand(Arg.WORKSPACE, where)]
    return Call(engine, description, [*reads, Operand(Arg.DIFF_SRC, out, True)])


def avg_pool(engine: Engine, x: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> Call:
    """Make the call of `Images.avg_pool`."""
    description, _ = pooling(engine, averaging(count_pad), x, out, kernel, stride, pad, True)
    return Call(engine, description, [Operand(Arg.SRC, x), Operand(Arg.DST, out, True)])


def avg_pool_grad(
    engine: Engine, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool
) -> Call:
    """Make the call of `Images.avg_pool_grad`."""
    alg = averaging(count_pad)
    forward, (*args, attributes) = pooling(engine, alg, out, gy, kernel, stride, pad, True)
    description = fast(engine, "pooling_backward", alg, *args, forward, attributes)
    return Call(engine, description, [Operand(Arg.DIFF_DST, gy), Operand(Arg.DIFF_SRC, out, True)])


def averaging(count_pad: bool) -> Alg:
    """Return the algorithm that divides by the right number."""
    return Alg.POOL_AVG_INCLUDE if count_pad else Alg.POOL_AVG_EXCLUDE
