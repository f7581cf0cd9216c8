"""Recipes of `Softmax`."""

from __future__ import annotations

from singa_dask.ops.contract import Array
from singa_dask.ops.onednn.call import Call, Operand, layout
from singa_dask.ops.onednn.library import Alg, Arg, Engine, Prop
from singa_dask.ops.onednn.recipes.describe import fast

__all__ = ["softmax_rows"]


def softmax_rows(engine: Engine, x: Array, out: Array) -> Call:
    """Make the call of the softmax of the last axis, for `Softmax.masked_softmax`."""
    source, target = (engine.md(array.shape, array.dtype, layout(array)) for array in (x, out))
    args = (Alg.SOFTMAX, source, target, x.ndim - 1, engine.attributes())
    description = fast(engine, "softmax_forward", Prop.INFERENCE, *args)
    return Call(engine, description, [Operand(Arg.SRC, x), Operand(Arg.DST, out, True)])
