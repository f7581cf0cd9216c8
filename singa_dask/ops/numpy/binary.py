"""NumpyBinary: losses and metrics of scores that are each a yes or a no of their own, in numpy."""

from __future__ import annotations

import math

import numpy as np

from singa_dask.ops.contract import Array, Binary
from singa_dask.ops.scratch import Scratch

__all__ = ["NumpyBinary"]


class NumpyBinary(Scratch, Binary):
    """Kernels on rows of logits, a mixin of `NumpyOps`."""

    def binary_cross_entropy(self, x: Array, t: Array, weights: Array | None = None) -> float:
        total = 0.0
        for scores, targets, factors in self.pieces(x, t, weights):
            # also false for a NaN
            if not (targets.min() >= 0 and targets.max() <= 1):
                return math.nan
            losses, term = (self.scratch(name, scores.shape, scores.dtype) for name in ("losses", "term"))
            np.maximum(scores, 0, out=losses)
            np.multiply(scores, targets, out=term)
            np.subtract(losses, term, out=losses)
            np.abs(scores, out=term)
            np.negative(term, out=term)
            np.exp(term, out=term)
            np.log1p(term, out=term)
            np.add(losses, term, out=losses)
            if factors is not None:
                np.multiply(losses, factors[:, None], out=losses)
            total += float(np.sum(losses, dtype=np.float64))
        return total

    def count_binary_matches(self, x: Array, t: Array) -> int:
        found = 0
        for scores, targets in self.pieces(x, t):
            yes, wanted = (self.scratch(name, scores.shape, bool) for name in ("yes", "wanted"))
            np.greater(scores, 0, out=yes)
            np.greater(targets, 0.5, out=wanted)
            np.equal(yes, wanted, out=yes)
            np.equal(scores, scores, out=wanted)
            np.logical_and(yes, wanted, out=yes)
            found += int(np.count_nonzero(yes))
        return found
