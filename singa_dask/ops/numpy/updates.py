"""NumpyUpdates: the update rules of the servers, in numpy, each in one pass over pieces that stay in cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops.numpy.memory import NumpyMemory
from singa_dask.ops.types import ArrayList, Arrays, Each, Preparation
from singa_dask.ops.update_rules import SHIFT, UpdateRule

# The loss reports a net that diverges; warnings would add nothing.
quietly = np.errstate(all="ignore")
UPDATE_SCRATCH = ("update", "second of update", "gradient of update")


class NumpyUpdates(NumpyMemory):
    """Update rules. All change ``w``, (n,) values, and the state of the rule, arrays like ``w``, in place.

    ``g``, (n,), is the gradient, only read and prepared as ``prep`` says. A rule works
    value by value: the result does not depend on how a param is cut into slices.

    ``w``, ``g`` and the state may be an `ArrayList` each instead, of the same params. A GPU updates all of them by one
    launch; the result is the same to the bit.

    Attributes
    ----------
    update_values : int
        The most values of a piece.
    """

    # so small that values, gradient, state and scratch of a piece stay in cache, so large that calls are few
    update_values = 1 << 16

    def update_pieces(self, prep: Preparation, w: Arrays, g: Arrays, *state: Arrays) -> Iterator[tuple[Array, ...]]:
        """Cut a slice into pieces for a rule.

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
                # a rule that is called on this very piece uses the first two
                tmp, tmp2, own = [self.scratch(name, value.shape, value.dtype) for name in UPDATE_SCRATCH]
                prepared = _prepared(prep, value, grad, own, tmp)
                if prep.value_factor != 1:
                    value *= prep.value_factor
                yield (value, prepared, tmp, tmp2, *states)

    def shift(self, w: Arrays, g: Arrays, divisor: int) -> None:
        """``w -= g / divisor``: running statistics, ``g`` is the sum of what ``divisor`` sharers find too large."""
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
            None leaves the gradient and the values as they are.
        numbers : sequence of float, or Each of such
            Those of the rule, the learning rate among them. With ``prep`` it may be an `Each` where arrays are lists.
        g, w : (n,) arrays, or lists
            Gradient and values.
        *state : (n,) arrays, or lists
            The other arrays of the rule.
        """
        if isinstance(prep, Each):
            for each in zip(prep, numbers, g, w, *state, strict=True):
                self.update(rule, *each)
            return
        for value, grad, tmp, tmp2, *states in self.update_pieces(prep or Preparation(), w, g, *state):
            rule.for_cpu(*numbers, grad, tmp, tmp2, value, *states)


def _prepared(prep: Preparation, w: Array, g: Array, out: Array, tmp: Array) -> Array:
    """Return the prepared gradient, in ``out`` unless it is ``g``."""
    if prep.scale != 1:
        g = np.multiply(g, prep.scale, out=out)
    if prep.high > prep.low:
        g = np.clip(g, prep.low, prep.high, out=out)
    if prep.decay > 0:
        np.multiply(w, prep.decay, out=tmp)
        g = np.add(g, tmp, out=out)
    return g
