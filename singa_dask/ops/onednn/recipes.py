"""How each kernel becomes a call of oneDNN: a recipe gets the arrays and parameters of the kernel, and makes the call.

Primitives see images as N, H, W, C whatever their layout, as that is plain and the fastest here, and weights in the
layout that they want and the type of the images. What a caller has otherwise is copied on the way by `call`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from singa_dask.ops.contract import Array, DType, Pair
from singa_dask.ops.onednn.call import Call, Operand, channels_last_strides, layout
from singa_dask.ops.onednn.library import Alg, Arg, Engine, Prop, Unsupported, integers

__all__ = ["RECIPES", "lrn_workspace"]


# oneDNN counts the values between two taps of a kernel.
NO_DILATION = integers((0, 0))
# Flags of a batch normalisation.
GIVEN_STATISTICS, SCALE_AND_SHIFT = 1, 6
# Of other sizes oneDNN 3.2 gives wrong gradients unless channels come in multiples; of size 1 it ends the process.
LRN_SIZES, LRN_CHANNELS = (3, 5), 16


def described(engine: Engine, x: Array) -> int:
    """Describe an array as primitives are to see it: images as N, H, W, C, others as they are."""
    return engine.md(x.shape, x.dtype, channels_last_strides(x) if x.ndim == 4 else layout(x))


def fast(engine: Engine, name: str, *args: Any) -> int:
    """Describe a primitive.

    Raises
    ------
    Unsupported
        oneDNN has none, or only its reference, which numpy beats.
    """
    description = engine.describe(name, *args)
    implementation = engine.implementation(description)
    if implementation.startswith("ref"):
        raise Unsupported(f"dnnl_{name}: only {implementation}")
    return description


# -- convolution -------------------------------------------------------------------------------------


def convolution(
    engine: Engine, x: Array, w: Array, b: Array | None, y: Array, stride: Pair, pad: Pair
) -> tuple[int, list[Any]]:
    """Describe a convolution forward, and return what describing its gradients takes too."""
    weights, bias = engine.md(w.shape, x.dtype), None if b is None else described(engine, b)
    around = [integers(stride), NO_DILATION, integers(pad), integers(pad)]
    args = [described(engine, x), weights, bias, described(engine, y), *around]
    name, attributes = "convolution_forward", engine.attributes()
    return fast(engine, name, Prop.TRAINING, Alg.CONVOLUTION, *args, attributes), [*args, attributes]


def conv2d(engine: Engine, x: Array, w: Array, b: Array | None, out: Array, stride: Pair, pad: Pair) -> Call:
    """Make the call of `Images.conv2d`."""
    description, _ = convolution(engine, x, w, b, out, stride, pad)
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


# -- pooling -------------------------------------------------------------------------------------------


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


# -- normalisation -------------------------------------------------------------------------------------


def normalisation(
    engine: Engine, x: Array, training: bool, size: int, alpha: float, beta: float, knorm: float
) -> tuple[int, list[Any]]:
    """Describe a normalisation over channels, and return what describing its gradient takes too."""
    if size not in LRN_SIZES and (size == 1 or x.shape[1] % LRN_CHANNELS):
        raise Unsupported(f"local_size {size} of {x.shape[1]} channels")
    prop = Prop.TRAINING if training else Prop.INFERENCE
    how, attributes = [size, alpha, beta, knorm], engine.attributes()
    args = (Alg.LRN_ACROSS, described(engine, x), described(engine, x), *how, attributes)
    return fast(engine, "lrn_forward", prop, *args), [*how, attributes]


def lrn_workspace(engine: Engine, shape: Sequence[int], dtype: DType, *how: Any) -> Array:
    """Return bytes for what `lrn` leaves to `lrn_grad`.

    Raises
    ------
    Unsupported
        These are numpy's.
    """
    x = np.broadcast_to(np.zeros((), dtype), shape)
    description = normalisation_gradient(engine, x, *how)
    return np.empty(engine.size(engine.wanted(description, Arg.WORKSPACE)), np.uint8)


def normalisation_gradient(engine: Engine, x: Array, *how: Any) -> int:
    """Describe the gradient of a normalisation over channels."""
    forward, (*sizes, attributes) = normalisation(engine, x, True, *how)
    mds = 3 * [described(engine, x)]
    return fast(engine, "lrn_backward", Alg.LRN_ACROSS, *mds, *sizes, forward, attributes)


def lrn(engine: Engine, x: Array, out: Array, work: Array | None, *how: Any) -> Call:
    """Make the call of `Normalisation.lrn`."""
    description, _ = normalisation(engine, x, work is not None, *how)
    left = None if work is None else workspace(work, True)
    return Call(engine, description, [Operand(Arg.SRC, x), Operand(Arg.DST, out, True), left])


def lrn_grad(engine: Engine, x: Array, gy: Array, out: Array, work: Array, *how: Any) -> Call:
    """Make the call of `Normalisation.lrn_grad`."""
    description = normalisation_gradient(engine, x, *how)
    reads = [Operand(Arg.SRC, x), Operand(Arg.DIFF_DST, gy)]
    return Call(engine, description, [*reads, Operand(Arg.DIFF_SRC, out, True), workspace(work, False)])


def workspace(work: Array, written: bool) -> Operand:
    """Return what `lrn` leaves to `lrn_grad` as an operand.

    Raises
    ------
    Unsupported
        It is numpy's.
    """
    if work.dtype != np.uint8:
        raise Unsupported("memory that is numpy's")
    return Operand(Arg.WORKSPACE, work, written, opaque=True)


def pixels(x: Array) -> Array:
    """Return rows (N, C) as images of one pixel, images as they are."""
    return x if x.ndim == 4 else x[:, :, None, None]


def batch_norm(
    engine: Engine,
    x: Array,
    scale: Array,
    shift: Array,
    mean: Array,
    var: Array,
    out: Array,
    eps: float,
    training: bool,
) -> Call:
    """Make the call of `Normalisation.batch_norm`."""
    x, out = pixels(x), pixels(out)
    prop, flags = (Prop.TRAINING, SCALE_AND_SHIFT) if training else (Prop.INFERENCE, SCALE_AND_SHIFT | GIVEN_STATISTICS)
    args = (described(engine, x), described(engine, out), eps, flags, engine.attributes())
    description = fast(engine, "batch_normalization_forward", prop, *args)
    places = [(Arg.SRC, x), (Arg.SCALE, scale), (Arg.SHIFT, shift)]
    statistics = [Operand(Arg.MEAN, mean, training), Operand(Arg.VARIANCE, var, training)]
    return Call(engine, description, [*(Operand(*place) for place in places), *statistics, Operand(Arg.DST, out, True)])


def batch_norm_grad(
    engine: Engine,
    x: Array,
    gy: Array,
    scale: Array,
    mean: Array,
    var: Array,
    out: Array,
    grad_scale: Array,
    grad_shift: Array,
    eps: float,
) -> Call:
    """Make the call of `Normalisation.batch_norm_grad`."""
    x, gy, out = pixels(x), pixels(gy), pixels(out)
    source, gradient, target = (described(engine, array) for array in (x, gy, out))
    how = (eps, SCALE_AND_SHIFT)
    forward = engine.describe("batch_normalization_forward", Prop.TRAINING, source, source, *how, engine.attributes())
    args = (Prop.BACKWARD, target, gradient, source, *how, forward, engine.attributes())
    description = fast(engine, "batch_normalization_backward", *args)
    read = [(Arg.SRC, x), (Arg.DIFF_DST, gy), (Arg.SCALE, scale), (Arg.MEAN, mean), (Arg.VARIANCE, var)]
    written = [(Arg.DIFF_SRC, out), (Arg.DIFF_SCALE, grad_scale), (Arg.DIFF_SHIFT, grad_shift)]
    operands = [Operand(*place) for place in read] + [Operand(*place, True) for place in written]
    return Call(engine, description, operands)


# -- inner product ---------------------------------------------------------------------------------------


def product(engine: Engine, left: Array, right: Array, out: Array, bias: Array | None = None, add: bool = False) -> int:
    """Describe ``out = left right + bias``, added to ``out`` where ``add``."""
    # What has to be converted is put in the layout that the primitive wants at the same time.
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


def copy(engine: Engine, x: Array, out: Array) -> Call:
    """Make the call of `Memory.copy`."""
    source, target = (engine.md(array.shape, array.dtype, layout(array)) for array in (x, out))
    return Call(engine, engine.describe_reorder(source, target), [Operand(Arg.SRC, x), Operand(Arg.DST, out, True)])


# -- activations ---------------------------------------------------------------------------------------


def flat(*arrays: Array) -> list[Array]:
    """Return arrays that lie alike and without gaps as rows of values, others as they are."""
    first = layout(arrays[0])
    dense = sum((size - 1) * step for size, step in zip(arrays[0].shape, first, strict=True)) + arrays[0].itemsize
    if dense != arrays[0].nbytes or any(layout(array) != first or min(first) <= 0 for array in arrays):
        return list(arrays)
    return [as_strided(array, (array.size,), (array.itemsize,)) for array in arrays]


def relu(engine: Engine, x: Array, out: Array, negative_slope: float) -> Call:
    """Make the call of `Elementwise.relu`."""
    x, out = flat(x, out)
    args = (Alg.RELU, described(engine, x), described(engine, out), negative_slope, 0.0, engine.attributes())
    description = fast(engine, "eltwise_forward", Prop.TRAINING, *args)
    return Call(engine, description, [Operand(Arg.SRC, x), Operand(Arg.DST, out, True)])


def relu_grad(engine: Engine, y: Array, gy: Array, out: Array, negative_slope: float) -> Call:
    """Make the call of `Elementwise.relu_grad`."""
    y, gy, out = flat(y, gy, out)
    output, how = described(engine, y), (negative_slope, 0.0)
    alg, attributes = Alg.RELU_FROM_OUTPUT, engine.attributes()
    forward = engine.describe("eltwise_forward", Prop.TRAINING, alg, output, output, *how, attributes)
    mds = (described(engine, out), described(engine, gy), output)
    description = fast(engine, "eltwise_backward", alg, *mds, *how, forward, attributes)
    return Call(engine, description, [Operand(Arg.DST, y), Operand(Arg.DIFF_DST, gy), Operand(Arg.DIFF_SRC, out, True)])


RECIPES: dict[str, Any] = {
    recipe.__name__: recipe
    for recipe in (
        avg_pool,
        avg_pool_grad,
        batch_norm,
        batch_norm_grad,
        conv2d,
        conv2d_grad_input,
        conv2d_grad_weight,
        copy,
        linear,
        linear_grad_input,
        linear_grad_weight,
        lrn,
        lrn_grad,
        max_pool,
        max_pool_grad,
        relu,
        relu_grad,
    )
}
