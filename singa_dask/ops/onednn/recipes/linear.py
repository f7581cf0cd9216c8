"""Recipes of `Linear`: matrix products."""

from __future__ import annotations

from singa_dask.ops.contract import Array
from singa_dask.ops.onednn.call import Call, Operand, layout
from singa_dask.ops.onednn.library import Arg, Engine
from singa_dask.ops.onednn.recipes.describe import described, fast

__all__ = ["batch_matmul", "linear", "linear_grad_input", "linear_grad_weight"]


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
