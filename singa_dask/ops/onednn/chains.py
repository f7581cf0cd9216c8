"""Formulas by oneDNN: chains of steps, each one primitive and one pass over pieces that stay in cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops.formulas import Step
from singa_dask.ops.onednn.call import Call, flat, layout, read, write
from singa_dask.ops.onednn.library import Alg, Arg, Engine, Unsupported

# Number of values per piece.
PIECE_VALUES = 1 << 20
INFINITY = float("inf")
# Name of a function of one value -> its oneDNN operations (algorithm, alpha, beta). tanh uses LOGISTIC, because
# oneDNN's own tanh is several times slower. The logarithm is missing, because oneDNN's has errors of 3e-6.
OF_ONE: dict[str, list[tuple[Any, ...]]] = {
    "negative": [(Alg.LINEAR, -1.0, 0.0)],
    "square": [(Alg.SQUARE, 0.0, 0.0)],
    "exp": [(Alg.EXP, 0.0, 0.0)],
    "sqrt": [(Alg.SQRT, 0.0, 0.0)],
    "abs": [(Alg.ABS, 0.0, 0.0)],
    "tanh": [(Alg.LINEAR, 2.0, 0.0), (Alg.LOGISTIC, 0.0, 0.0), (Alg.LINEAR, 2.0, -1.0)],
    "sigmoid": [(Alg.LOGISTIC, 0.0, 0.0)],
}
OF_TWO = {name: Alg[name.upper()] for name in ("add", "subtract", "multiply", "divide", "max", "min")}


class Chain(NamedTuple):
    """Consecutive steps that one primitive computes.

    Attributes
    ----------
    first : str
        The array that the first step reads.
    operations : list of tuple
        (algorithm, alpha, beta), or (algorithm, name of another array).
    """

    first: str
    operations: list[tuple[Any, ...]]


def chains_of(steps: Sequence[Step]) -> dict[str, Chain]:
    """Return chains that compute all steps, in order, by the name of the array that a chain writes.

    A result is stored in an array if two steps read it, or if the chain that reads it already begins with another
    result.
    """
    n_reads = Counter(name for _, args in steps for name in args)
    chains: dict[str, Chain] = {}
    for i, (function, args) in enumerate(steps):
        names = [each for each in args if isinstance(each, str)]
        value = next((name for name in names if name in chains and n_reads[name] == 1), names[0])
        is_end = value in chains and n_reads[value] == 1
        chain = chains.pop(value) if is_end else Chain(value, [])
        chain.operations.extend(_operations(function, args, args.index(value)))
        chains[f"v{i}"] = chain
    return chains


def _operations(function: str, args: tuple[str | float, ...], place: int) -> list[tuple[Any, ...]]:
    """Return the operations of a step on its operand number ``place``. Other operands are named."""
    if len(args) == 1:
        if function not in OF_ONE:
            raise Unsupported(f"{function} in a formula")
        return OF_ONE[function]
    other = args[1 - place]
    if isinstance(other, str):
        if place == 0 or function not in ("subtract", "divide"):
            return [(OF_TWO[function], other)]
        turned, function = ((Alg.LINEAR, -1.0, 0.0), "add") if function == "subtract" else (_power(1.0), "multiply")
        return [turned, (OF_TWO[function], other)]
    return [
        {
            "add": (Alg.LINEAR, 1.0, other),
            "subtract": (Alg.LINEAR, -1.0, other) if place else (Alg.LINEAR, 1.0, -other),
            "multiply": (Alg.LINEAR, other, 0.0),
            "divide": _power(other) if place else (Alg.LINEAR, 1 / other if other else INFINITY, 0.0),
            "max": (Alg.CLIP, other, INFINITY),
            "min": (Alg.CLIP, -INFINITY, other),
        }[function]
    ]


def _power(factor: float) -> tuple[Any, ...]:
    return Alg.POWER, factor, -1.0


class FormulaCall:
    """The steps of a formula, prepared for arrays of one size.

    Parameters
    ----------
    engine : Engine
    steps : sequence of Step
    names : sequence of str
        Name of each array of a call, as it is used in the steps.
    *arrays : ndarray
        Example arrays, float32, with the size and layout of the arrays of later calls. A call writes to its last
        array.

    Raises
    ------
    Unsupported
        Layouts differ, arrays have gaps, or oneDNN has no kernel for a step.
    """

    def __init__(self, engine: Engine, steps: Sequence[Step], names: Sequence[str], *arrays: Array) -> None:
        self.written = [False] * len(names) + [True]
        for each in flat(*arrays):
            if each.dtype != np.float32 or each.strides != (each.itemsize,):
                raise Unsupported(f"{each.dtype.name} {each.shape}, with strides {each.strides}")
        self._names, size = [*names, f"v{len(steps) - 1}"], arrays[0].size
        self._chains = chains_of(steps)
        self._scratch = {name: np.empty(min(size, PIECE_VALUES), np.float32) for name in list(self._chains)[:-1]}
        sizes = {min(size, PIECE_VALUES), size % PIECE_VALUES} - {0}
        self._calls = {n: self._prepared(engine, n) for n in sizes}

    def _prepared(self, engine: Engine, size: int) -> list[tuple[Call, list[str]]]:
        """Return the calls for pieces of a size, with the names of their arrays."""
        like = np.empty(size, np.float32)
        md, calls = engine.md(like.shape, like.dtype, layout(like)), []
        for name, (first, operations) in self._chains.items():
            # the first operation is a primitive of two arrays; the second operation may have one number to add
            head, *after = operations
            second = like
            if head[:2] == (Alg.LINEAR, 1.0):
                second, head = np.full(1, head[2], np.float32), (Alg.ADD, str(head[2]))
                self._scratch[head[1]] = second
            elif len(head) == 3:
                head, after = (Alg.MAX, first), operations
            more = [(each[0], md) if len(each) == 2 else each for each in after]
            second_md = engine.md(second.shape, second.dtype, layout(second))
            description = engine.describe("binary", head[0], md, second_md, md, engine.attributes(more=more))
            places = {i: each[1] for i, each in enumerate(after) if len(each) == 2}
            reads = [read(Arg.POST_OP * (i + 1) | Arg.SRC_1, like) for i in places]
            operands = (read(Arg.SRC, like), read(Arg.SRC_1, second), *reads, write(Arg.DST, like))
            calls.append((Call(engine, description, *operands), [first, head[1], *places.values(), name]))
        return calls

    def __call__(self, arrays: Sequence[Array | None]) -> None:
        """Run on arrays in the order of the names."""
        known = dict(zip(self._names, flat(*(each for each in arrays if each is not None)), strict=True))
        for start in range(0, known["x"].size, PIECE_VALUES):
            pieces = {name: array[start : start + PIECE_VALUES] for name, array in known.items()}
            size = pieces["x"].size
            pieces |= {name: array[:size] for name, array in self._scratch.items()}
            for call, names in self._calls[size]:
                call([pieces[name] for name in names])
