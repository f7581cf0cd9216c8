"""Recipes of `Normalisation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.ops.contract import Array, DType
from singa_dask.ops.onednn.call import Call, Operand, described, fast
from singa_dask.ops.onednn.library import Alg, Arg, Engine, Prop, Unsupported

__all__ = ["batch_norm", "batch_norm_grad", "layer_norm", "layer_norm_grad", "lrn", "lrn_grad", "lrn_workspace"]

# Flags of a normalisation.
GIVEN_STATISTICS, SCALE_AND_SHIFT = 1, 6
# Of other sizes oneDNN 3.2 gives wrong gradients unless channels come in multiples; of size 1 it ends the process.
LRN_SIZES, LRN_CHANNELS = (3, 5), 16


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


def layer_norm(
    engine: Engine, x: Array, scale: Array, shift: Array, mean: Array, var: Array, out: Array, eps: float
) -> Call:
    """Make the call of `Normalisation.layer_norm`."""
    mds = (described(engine, x), described(engine, out), described(engine, mean))
    args = (*mds, eps, SCALE_AND_SHIFT, engine.attributes())
    description = fast(engine, "layer_normalization_forward", Prop.TRAINING, *args)
    reads = [Operand(Arg.SRC, x), Operand(Arg.SCALE, scale), Operand(Arg.SHIFT, shift)]
    writes = [(Arg.MEAN, mean), (Arg.VARIANCE, var), (Arg.DST, out)]
    return Call(engine, description, [*reads, *(Operand(*place, True) for place in writes)])


def layer_norm_grad(
    engine: Engine,
    x: Array,
    gy: Array,
    scale: Array,
    shift: Array,
    mean: Array,
    var: Array,
    out: Array,
    grad_scale: Array,
    grad_shift: Array,
    eps: float,
    accumulate: bool,
) -> Call:
    """Make the call of `Normalisation.layer_norm_grad`; oneDNN 3.2 asks for ``shift``, which it does not read."""
    source, moments, how = described(engine, x), described(engine, mean), (eps, SCALE_AND_SHIFT)
    alike = (source, source, moments, *how, engine.attributes())
    forward = engine.describe("layer_normalization_forward", Prop.TRAINING, *alike)
    args = (described(engine, out), described(engine, gy), source, moments, *how, forward, engine.attributes())
    description = fast(engine, "layer_normalization_backward", Prop.BACKWARD, *args)
    read = [(Arg.SRC, x), (Arg.DIFF_DST, gy), (Arg.SCALE, scale), (Arg.SHIFT, shift)]
    read += [(Arg.MEAN, mean), (Arg.VARIANCE, var)]
    written = [(Arg.DIFF_SCALE, grad_scale), (Arg.DIFF_SHIFT, grad_shift)]
    added = [Operand(*place, True, accumulate) for place in written]
    return Call(engine, description, [*(Operand(*place) for place in read), Operand(Arg.DIFF_SRC, out, True), *added])
