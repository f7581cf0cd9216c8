"""NumpyUpdates: update rules in NumPy, each in one pass over pieces that stay in cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops.contract import ArrayList, Arrays, Each, Preparation
from singa_dask.ops.numpy.memory import NumpyMemory
from singa_dask.ops.update_rules import SHIFT, UpdateRule

# ignore floating-point errors, because a loss that is not finite stops the job
quietly = np.errstate(all="ignore")
UPDATE_SCRATCH = ("update", "second of update", "gradient of update")


class NumpyUpdates(NumpyMemory):
    """Update rules. A rule changes the values ``w`` (n,) and its state, arrays (n,), in place.

    ``g`` (n,) is the gradient; ``prep`` says how to scale and clip it first. Rules are elementwise, so the result
    does not depend on how a param is divided into slices.

    ``w``, ``g`` and the state may each be an `ArrayList` of the same params. A GPU then updates all of them in one
    launch, with the same bits.

    Attributes
    ----------
    update_values : int
        Maximum number of values in a piece.
    """

    # this number of values, with gradient, state and scratch memory, stays in the CPU cache
    update_values = 1 << 16

    def update_pieces(self, prep: Preparation, w: Arrays, g: Arrays, *state: Arrays) -> Iterator[tuple[Array, ...]]:
        """Divide a slice into pieces for a rule.

        Yields
        ------
        tuple of (m,) arrays
            Piece of ``w``, prepared gradient, two arrays of scratch, pieces of the state.
        """
        lists = (x if isinstance(x, ArrayList) else (x,) for x in (w, g, *state))
        for slices in zip(*lists, strict=True):
            size, most = slices[0].size, self.update_values
            for start in range(0, size, most):
                value, grad, *states = slices if size <= most else [each[start : start + most] for each in slices]
                # rules that call `update` on a piece use tmp and tmp2
                tmp, tmp2, own = [self.scratch(name, value.shape, value.dtype) for name in UPDATE_SCRATCH]
                prepared = _prepared(prep, value, grad, own, tmp)
                if prep.value_factor != 1:
                    value *= prep.value_factor
                yield (value, prepared, tmp, tmp2, *states)

    def shift(self, w: Arrays, g: Arrays, divisor: int) -> None:
        """``w -= g / divisor``: update a running statistic by the summed gradients of ``divisor`` sharers."""
        self.update(SHIFT, None, (divisor,), g, w)

    @quietly
    def update(
        self,
        rule: UpdateRule,
        prep: Preparation | Each[Preparation] | None,
        numbers: Sequence[float] | Each[Sequence[float]],
        g: Arrays,
        w: Arrays,
        *state: Arrays,
    ) -> None:
        """Change values and state by a rule.

        Parameters
        ----------
        rule : UpdateRule
        prep : Preparation or None, or Each of Preparation
            None leaves gradient and values unchanged.
        numbers : sequence of float, or Each of sequences of float
            Numbers of the rule, such as the learning rate. It is an `Each` if ``prep`` is an `Each`.
        g, w : (n,) arrays, or lists
            Gradient and values.
        *state : (n,) arrays, or lists
            Arrays of the rule's state, such as the momentum.
        """
        if isinstance(prep, Each):
            for each in zip(prep, numbers, g, w, *state, strict=True):
                self.update(rule, *each)
            return
        for value, grad, tmp, tmp2, *states in self.update_pieces(prep or Preparation(), w, g, *state):
            rule.for_cpu(*numbers, grad, tmp, tmp2, value, *states)


def _prepared(prep: Preparation, w: Array, g: Array, out: Array, tmp: Array) -> Array:
    """Return the prepared gradient: ``g`` itself or ``out``."""
    if prep.scale != 1:
        g = np.multiply(g, prep.scale, out=out)
    if prep.high > prep.low:
        g = np.clip(g, prep.low, prep.high, out=out)
    if prep.decay > 0:
        np.multiply(w, prep.decay, out=tmp)
        g = np.add(g, tmp, out=out)
    return g
