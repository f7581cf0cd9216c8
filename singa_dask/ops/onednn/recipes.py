"""Recipes: each prepares the oneDNN call of one kernel, given the kernel's arrays and parameters.

Primitives read images in the order N, H, W, C, which is the fastest. They choose the layout of weights themselves, and
read weights in the dtype of the images. `call` copies arrays that have another layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from singa_dask.arrays import Array, DType
from singa_dask.ops.contract import ConvWindow, Pair
from singa_dask.ops.formulas import Formula
from singa_dask.ops.onednn.call import Call, Operand, described, fast, flat, layout, read, write
from singa_dask.ops.onednn.chains import FormulaCall
from singa_dask.ops.onednn.library import Alg, Arg, Engine, Prop, Unsupported, integers

# Kernels that are a single oneDNN call, with the same arguments as their recipe.
KERNELS = (
    *("conv2d", "conv2d_grad_input", "conv2d_grad_weight"),
    *("max_pool", "max_pool_grad", "avg_pool", "avg_pool_grad"),
    *("lrn", "lrn_grad", "layer_norm", "layer_norm_grad"),
    *("linear", "linear_grad_input", "linear_grad_weight", "batch_matmul"),
    *("add_relu", "relu", "relu_grad", "gelu", "gelu_grad", "silu", "silu_grad", "sigmoid"),
    *("elementwise", "elementwise_grad"),
)

# -- images ----------------------------------------------------------------------------------------------------

# AVERAGE is indexed by ``count_pad``, and GELU by ``approximate``.
AVERAGE, GELU = (Alg.POOL_AVG_EXCLUDE, Alg.POOL_AVG_INCLUDE), (Alg.GELU_ERF, Alg.GELU_TANH)


def convolution(
    engine: Engine, x: Array, w: Array, b: Array | None, y: Array, window: ConvWindow, relu: bool = False
) -> tuple[int, list[Any]]:
    """Describe a convolution; return also the arguments that its gradients need."""
    weights, bias = engine.md(w.shape, x.dtype), None if b is None else described(engine, b)
    # oneDNN's dilation is the number of pixels between two taps
    gaps = (window.dilation[0] - 1, window.dilation[1] - 1)
    around = [integers(window.stride), integers(gaps), integers(window.pad), integers(window.pad)]
    args = [described(engine, x), weights, bias, described(engine, y), *around]
    name, attributes = "convolution_forward", engine.attributes(relu=relu)
    return fast(engine, name, Prop.TRAINING, Alg.CONVOLUTION, *args, attributes), [*args, attributes]


def grouped(w: Array, groups: int) -> Array:
    """Return weights (F, C / groups, kh, kw) with another first axis for the groups, if there are several."""
    return w.reshape(groups, -1, *w.shape[1:]) if groups > 1 else w


def conv2d(engine: Engine, x: Array, w: Array, b: Array | None, out: Array, window: ConvWindow, relu: bool) -> Call:
    """Make the call of `conv2d`."""
    w = grouped(w, window.groups)
    description, _ = convolution(engine, x, w, b, out, window, relu)
    reads = (read(Arg.SRC, x), read(Arg.WEIGHTS, w), read(Arg.BIAS, b))
    return Call(engine, description, *reads, write(Arg.DST, out))


def conv2d_grad_input(engine: Engine, gy: Array, w: Array, out: Array, window: ConvWindow) -> Call:
    """Make the call of `conv2d_grad_input`."""
    w = grouped(w, window.groups)
    forward, (gx, weights, _, g, *around, attributes) = convolution(engine, out, w, None, gy, window)
    args = (Alg.CONVOLUTION, gx, weights, g, *around, forward, attributes)
    description = fast(engine, "convolution_backward_data", *args)
    return Call(engine, description, read(Arg.DIFF_DST, gy), read(Arg.WEIGHTS, w), write(Arg.DIFF_SRC, out))


def conv2d_grad_weight(
    engine: Engine, x: Array, gy: Array, out: Array, grad_bias: Array | None, window: ConvWindow, accumulate: bool
) -> Call:
    """Make the call of `conv2d_grad_weight`."""
    out = grouped(out, window.groups)
    forward, (source, _, *args, attributes) = convolution(engine, x, out, grad_bias, gy, window)
    mds = (source, engine.md(out.shape, out.dtype))
    description = fast(engine, "convolution_backward_weights", Alg.CONVOLUTION, *mds, *args, forward, attributes)
    written = (write(Arg.DIFF_WEIGHTS, out, accumulate), write(Arg.DIFF_BIAS, grad_bias, accumulate))
    return Call(engine, description, read(Arg.SRC, x), read(Arg.DIFF_DST, gy), *written)


def pooling(
    engine: Engine, alg: Alg, x: Array, y: Array, kernel: Pair, stride: Pair, pad: Pair, *, training: bool = True
) -> tuple[int, list[Any]]:
    """Describe a pooling; return also the arguments that its gradient needs."""
    around = [integers(stride), integers(kernel), integers((0, 0)), integers(pad), integers(pad)]
    args = [described(engine, x), described(engine, y), *around, engine.attributes()]
    return fast(engine, "pooling_forward", Prop.TRAINING if training else Prop.INFERENCE, alg, *args), args


def pooling_gradient(engine: Engine, alg: Alg, gy: Array, out: Array, *how: Pair) -> int:
    """Describe the gradient of a pooling."""
    forward, (*args, attributes) = pooling(engine, alg, out, gy, *how)
    return fast(engine, "pooling_backward", alg, *args, forward, attributes)


def max_pool(engine: Engine, x: Array, out: Array, where: Array | None, *how: Pair) -> Call:
    """Make the call of `max_pool`; ``where`` is the primitive's workspace."""
    description, _ = pooling(engine, Alg.POOL_MAX, x, out, *how, training=where is not None)
    return Call(engine, description, read(Arg.SRC, x), write(Arg.DST, out), write(Arg.WORKSPACE, where))


def max_pool_grad(engine: Engine, gy: Array, where: Array, out: Array, *how: Pair) -> Call:
    """Make the call of `max_pool_grad`."""
    description = pooling_gradient(engine, Alg.POOL_MAX, gy, out, *how)
    return Call(engine, description, read(Arg.DIFF_DST, gy), read(Arg.WORKSPACE, where), write(Arg.DIFF_SRC, out))


def avg_pool(engine: Engine, x: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> Call:
    """Make the call of `avg_pool`."""
    description, _ = pooling(engine, AVERAGE[count_pad], x, out, kernel, stride, pad)
    return Call(engine, description, read(Arg.SRC, x), write(Arg.DST, out))


def avg_pool_grad(
    engine: Engine, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool
) -> Call:
    """Make the call of `avg_pool_grad`."""
    description = pooling_gradient(engine, AVERAGE[count_pad], gy, out, kernel, stride, pad)
    return Call(engine, description, read(Arg.DIFF_DST, gy), write(Arg.DIFF_SRC, out))


# -- normalisation ---------------------------------------------------------------------------------------------

# Flags of a normalisation primitive.
GIVEN_STATISTICS, SCALE_AND_SHIFT, FUSED_RELU = 1, 6, 8
# Supported window sizes. For other sizes, oneDNN 3.2 gives wrong gradients unless the number of channels is a multiple
# of LRN_CHANNELS; size 1 aborts the process.
LRN_SIZES, LRN_CHANNELS = (3, 5), 16


def normalisation(
    engine: Engine, x: Array, training: bool, size: int, alpha: float, beta: float, knorm: float
) -> tuple[int, list[Any]]:
    """Describe a normalisation over channels; return also the arguments that its gradient needs."""
    if size not in LRN_SIZES and (size == 1 or x.shape[1] % LRN_CHANNELS):
        raise Unsupported(f"local_size {size} with {x.shape[1]} channels")
    prop = Prop.TRAINING if training else Prop.INFERENCE
    how, attributes = [size, alpha, beta, knorm], engine.attributes()
    args = (Alg.LRN_ACROSS, described(engine, x), described(engine, x), *how, attributes)
    return fast(engine, "lrn_forward", prop, *args), [*how, attributes]


def normalisation_gradient(engine: Engine, x: Array, *how: Any) -> int:
    """Describe the gradient of a normalisation over channels."""
    forward, (*sizes, attributes) = normalisation(engine, x, True, *how)
    mds = 3 * [described(engine, x)]
    return fast(engine, "lrn_backward", Alg.LRN_ACROSS, *mds, *sizes, forward, attributes)


def lrn_workspace(engine: Engine, shape: Sequence[int], dtype: DType, *how: Any) -> Array:
    """Return the workspace that `lrn` passes to `lrn_grad`.

    Raises `Unsupported` if NumPy computes both.
    """
    x = np.broadcast_to(np.zeros((), dtype), shape)
    description = normalisation_gradient(engine, x, *how)
    return np.empty(engine.size(engine.wanted(description, Arg.WORKSPACE)), np.uint8)


def lrn(engine: Engine, x: Array, out: Array, work: Array | None, *how: Any) -> Call:
    """Make the call of `lrn`."""
    description, _ = normalisation(engine, x, work is not None, *how)
    return Call(engine, description, read(Arg.SRC, x), write(Arg.DST, out), workspace(work, True))


def lrn_grad(engine: Engine, x: Array, gy: Array, out: Array, work: Array, *how: Any) -> Call:
    """Make the call of `lrn_grad`."""
    reads = (read(Arg.SRC, x), read(Arg.DIFF_DST, gy))
    description = normalisation_gradient(engine, x, *how)
    return Call(engine, description, *reads, write(Arg.DIFF_SRC, out), workspace(work, False))


def workspace(work: Array | None, written: bool) -> Operand | None:
    """Return the workspace that a kernel passes to its gradient, as an operand.

    Raises `Unsupported` if NumPy computed the kernel, so that there is no workspace.
    """
    if work is not None and work.dtype != np.uint8:
        raise Unsupported("workspace of NumPy")
    return None if work is None else Operand(Arg.WORKSPACE, work, written, opaque=True)


def pixels(x: Array) -> Array:
    """Return rows (N, C) as images of one pixel, and images unchanged."""
    return x if x.ndim == 4 else x[:, :, None, None]


def batch_norm(
    engine: Engine,
    x: Array,
    scale: Array,
    shift: Array,
    mean: Array,
    variance: Array,
    out: Array,
    work: Array | None,
    epsilon: float,
    training: bool,
) -> Call:
    """Make the call of `batch_norm`. In training, the call includes a ReLU if ``work`` is passed."""
    x, out = pixels(x), pixels(out)
    if training:
        description, _ = normalised(engine, x, out, epsilon, work is not None)
    else:
        args = (described(engine, x), described(engine, out), epsilon, SCALE_AND_SHIFT | GIVEN_STATISTICS)
        description = fast(engine, "batch_normalization_forward", Prop.INFERENCE, *args, engine.attributes())
    reads = (read(Arg.SRC, x), read(Arg.SCALE, scale), read(Arg.SHIFT, shift))
    statistics = (Operand(Arg.MEAN, mean, training), Operand(Arg.VARIANCE, variance, training))
    return Call(engine, description, *reads, *statistics, write(Arg.DST, out), workspace(work, True))


def normalised(engine: Engine, x: Array, y: Array, epsilon: float, relu: bool) -> tuple[int, int]:
    """Describe batch normalisation in training, forward and backward."""
    how = (epsilon, SCALE_AND_SHIFT | FUSED_RELU * relu)
    source, target = described(engine, x), described(engine, y)
    forward = fast(engine, "batch_normalization_forward", Prop.TRAINING, source, target, *how, engine.attributes())
    args = (Prop.BACKWARD, source, target, source, *how, forward, engine.attributes())
    return forward, fast(engine, "batch_normalization_backward", *args)


def batch_norm_grad(
    engine: Engine,
    x: Array,
    gy: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    out: Array,
    grad_scale: Array,
    grad_shift: Array,
    work: Array | None,
    epsilon: float,
) -> Call:
    """Make the call of `batch_norm_grad`."""
    x, gy, out = pixels(x), pixels(gy), pixels(out)
    _, description = normalised(engine, x, gy, epsilon, work is not None)
    reads = (read(Arg.SRC, x), read(Arg.DIFF_DST, gy), read(Arg.SCALE, scale))
    statistics = (read(Arg.MEAN, mean), read(Arg.VARIANCE, variance))
    written = (write(Arg.DIFF_SRC, out), write(Arg.DIFF_SCALE, grad_scale), write(Arg.DIFF_SHIFT, grad_shift))
    return Call(engine, description, *reads, *statistics, *written, workspace(work, False))


def layer_norm(
    engine: Engine, x: Array, scale: Array, shift: Array, mean: Array, variance: Array, out: Array, epsilon: float
) -> Call:
    """Make the call of `layer_norm`."""
    mds = (described(engine, x), described(engine, out), described(engine, mean))
    args = (*mds, epsilon, SCALE_AND_SHIFT, engine.attributes())
    description = fast(engine, "layer_normalization_forward", Prop.TRAINING, *args)
    reads = (read(Arg.SRC, x), read(Arg.SCALE, scale), read(Arg.SHIFT, shift))
    return Call(engine, description, *reads, write(Arg.MEAN, mean), write(Arg.VARIANCE, variance), write(Arg.DST, out))


def layer_norm_grad(
    engine: Engine,
    x: Array,
    gy: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    out: Array | None,
    grad_scale: Array,
    grad_shift: Array,
    epsilon: float,
    accumulate: bool,
) -> Call:
    """Make the call of `layer_norm_grad`; oneDNN 3.2 requires a shift, which it does not read."""
    if out is None:
        raise Unsupported("gradients of parameters alone")
    source, moments, how = described(engine, x), described(engine, mean), (epsilon, SCALE_AND_SHIFT)
    alike = (source, source, moments, *how, engine.attributes())
    forward = engine.describe("layer_normalization_forward", Prop.TRAINING, *alike)
    args = (described(engine, out), described(engine, gy), source, moments, *how, forward, engine.attributes())
    description = fast(engine, "layer_normalization_backward", Prop.BACKWARD, *args)
    reads = (read(Arg.SRC, x), read(Arg.DIFF_DST, gy), read(Arg.SCALE, scale))
    statistics = (read(Arg.MEAN, mean), read(Arg.VARIANCE, variance))
    sums = (write(Arg.DIFF_SCALE, grad_scale, accumulate), write(Arg.DIFF_SHIFT, grad_shift, accumulate))
    return Call(engine, description, *reads, *statistics, write(Arg.DIFF_SRC, out), *sums, unread=[Arg.SHIFT])


# -- activations and copies ------------------------------------------------------------------------------------


def copy(engine: Engine, x: Array, out: Array) -> Call:
    """Make the call of `copy`."""
    source, target = (engine.md(array.shape, array.dtype, layout(array)) for array in (x, out))
    return Call(engine, engine.describe_reorder(source, target), read(Arg.SRC, x), write(Arg.DST, out))


def add_relu(engine: Engine, x: Array, y: Array, out: Array) -> Call:
    """Make the call of `add_relu`."""
    x, y, out = flat(x, y, out)
    mds = (described(engine, array) for array in (x, y, out))
    description = fast(engine, "binary", Alg.ADD, *mds, engine.attributes(relu=True))
    return Call(engine, description, read(Arg.SRC, x), read(Arg.SRC_1, y), write(Arg.DST, out))


def activation(alg: Alg) -> Callable[..., Call]:
    """Return the recipe of an activation; oneDNN's swish is x / (1 + exp(-slope x))."""

    def recipe(engine: Engine, x: Array, out: Array, slope: float = 1.0) -> Call:
        x, out = flat(x, out)
        args = (alg, described(engine, x), described(engine, out), slope, 0.0, engine.attributes())
        description = fast(engine, "eltwise_forward", Prop.TRAINING, *args)
        return Call(engine, description, read(Arg.SRC, x), write(Arg.DST, out))

    return recipe


def activation_grad(alg: Alg, place: Arg = Arg.SRC) -> Callable[..., Call]:
    """Return the recipe of an activation's gradient, from its input or output, as ``place`` says."""

    def recipe(engine: Engine, x: Array, gy: Array, out: Array, slope: float = 1.0) -> Call:
        x, gy, out = flat(x, gy, out)
        source, how, attributes = described(engine, x), (slope, 0.0), engine.attributes()
        forward = engine.describe("eltwise_forward", Prop.TRAINING, alg, source, source, *how, attributes)
        mds = (described(engine, out), described(engine, gy), source)
        description = fast(engine, "eltwise_backward", alg, *mds, *how, forward, attributes)
        return Call(engine, description, read(place, x), read(Arg.DIFF_DST, gy), write(Arg.DIFF_SRC, out))

    return recipe


relu, sigmoid, silu = map(activation, (Alg.RELU, Alg.LOGISTIC, Alg.SILU))
relu_grad, silu_grad = activation_grad(Alg.RELU_FROM_OUTPUT, Arg.DST), activation_grad(Alg.SILU)


def gelu(engine: Engine, x: Array, out: Array, approximate: bool) -> Call:
    """Make the call of `gelu`."""
    return activation(GELU[approximate])(engine, x, out)


def gelu_grad(engine: Engine, x: Array, gy: Array, out: Array, approximate: bool) -> Call:
    """Make the call of `gelu_grad`."""
    return activation_grad(GELU[approximate])(engine, x, gy, out)


def elementwise(engine: Engine, x: Array, out: Array, formula: Formula) -> FormulaCall:
    """Make the call of `elementwise`."""
    return FormulaCall(engine, formula.forward, ("x",), x, out)


def elementwise_grad(engine: Engine, x: Array, gy: Array, out: Array, formula: Formula) -> FormulaCall:
    """Make the call of `elementwise_grad`."""
    return FormulaCall(engine, formula.backward, ("x", "gy"), x, gy, out)


def softmax_rows(engine: Engine, x: Array, out: Array) -> Call:
    """Make the call of the softmax of the last axis, for `masked_softmax`."""
    source, target = (engine.md(array.shape, array.dtype, layout(array)) for array in (x, out))
    args = (Alg.SOFTMAX, source, target, x.ndim - 1, engine.attributes())
    return Call(engine, fast(engine, "softmax_forward", Prop.INFERENCE, *args), read(Arg.SRC, x), write(Arg.DST, out))


# -- matrix products -------------------------------------------------------------------------------------------


def product(engine: Engine, left: Array, right: Array, out: Array, bias: Array | None = None, add: bool = False) -> int:
    """Describe ``out = left right + bias``, added to ``out`` if ``add``."""
    # if the dtypes differ, the conversion can also change the layout to what the primitive prefers
    same = left.dtype == right.dtype
    factor = described(engine, right) if same else engine.md(right.shape, left.dtype)
    offset = None if bias is None else described(engine, bias)
    mds = (described(engine, left), factor, offset, described(engine, out))
    return fast(engine, "matmul", *mds, engine.attributes(add))


def linear(engine: Engine, x: Array, w: Array, b: Array | None, out: Array, transpose: bool) -> Call:
    """Make the call of `linear`."""
    right, bias = w if transpose else w.T, None if b is None else b[None]
    reads = (read(Arg.SRC, x), read(Arg.WEIGHTS, right), read(Arg.BIAS, bias))
    return Call(engine, product(engine, x, right, out, bias), *reads, write(Arg.DST, out))


def linear_grad_input(engine: Engine, gy: Array, w: Array, out: Array, transpose: bool, accumulate: bool) -> Call:
    """Make the call of `linear_grad_input`."""
    right = w.T if transpose else w
    description = product(engine, gy, right, out, add=accumulate)
    return Call(engine, description, read(Arg.SRC, gy), read(Arg.WEIGHTS, right), write(Arg.DST, out))


def linear_grad_weight(engine: Engine, x: Array, gy: Array, out: Array, transpose: bool, accumulate: bool) -> Call:
    """Make the call of `linear_grad_weight`."""
    if transpose:
        description = product(engine, x.T, gy, out, add=accumulate)
        return Call(engine, description, read(Arg.SRC, x.T), read(Arg.WEIGHTS, gy), write(Arg.DST, out))
    description = product(engine, gy.T, x, out, add=accumulate)
    return Call(engine, description, read(Arg.WEIGHTS, x), read(Arg.SRC, gy.T), write(Arg.DST, out))


def batch_matmul(
    engine: Engine, a: Array, b: Array, out: Array, transpose_a: bool, transpose_b: bool, scale: float
) -> Call:
    """Make the call of `batch_matmul`."""
    left, right = a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b
    if is_row := left.shape[-2] == 1:
        # swap the operands, because oneDNN fails to run some primitives for batches of a single row
        left, right, out = (x.swapaxes(-1, -2) for x in (right, left, out))
    source, target = (engine.md(x.shape, x.dtype, layout(x)) for x in (left, out))
    # use the layout that the primitive prefers, which is twice as fast if b is transposed
    factor = engine.md(right.shape, left.dtype)
    description = fast(engine, "matmul", source, factor, None, target, engine.attributes(scale=scale))
    reads = (read(Arg.SRC, left), read(Arg.WEIGHTS, right))
    return Call(engine, description, *(reads[::-1] if is_row else reads), write(Arg.DST, out))
