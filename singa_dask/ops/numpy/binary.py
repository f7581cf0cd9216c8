"""NumpyBinary: losses and metrics of rows of logits of independent probabilities, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops.numpy.memory import NumpyMemory


class NumpyBinary(NumpyMemory):
    """Kernels on rows of ``D`` scores, each the logit of an independent probability."""

    def binary_cross_entropy(self, x: Array, t: Array, weights: Array | None = None) -> float:
        """Return the sum over all values of ``max(x, 0) - x t + log(1 + exp(-|x|))``.

        That is ``-t log(p) - (1 - t) log(1 - p)`` with ``p = sigmoid(x)``, without overflow.

        Parameters
        ----------
        x, t : (N, D)
            Scores, and targets in [0, 1]. The result is NaN if a target is out of range.
        weights : (N,) float, optional
            Weights that multiply the terms of each row.
        """
        total = 0.0
        for scores, targets, factors in self.pieces(x, t, weights):
            # this condition also holds if a target is NaN
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
        """Return how often ``(x > 0) == (t > 0.5)``; a NaN does not match."""
        n_matches = 0
        for scores, targets in self.pieces(x, t):
            yes, wanted = (self.scratch(name, scores.shape, bool) for name in ("yes", "wanted"))
            np.greater(scores, 0, out=yes)
            np.greater(targets, 0.5, out=wanted)
            np.equal(yes, wanted, out=yes)
            np.equal(scores, scores, out=wanted)
            np.logical_and(yes, wanted, out=yes)
            n_matches += int(np.count_nonzero(yes))
        return n_matches
