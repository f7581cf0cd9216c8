"""Binary: losses and metrics of scores that are each a yes or a no of their own."""

from __future__ import annotations

from typing import Protocol

from singa_dask.ops.contract.arrays import Array, Scalar

__all__ = ["Binary"]


class Binary(Protocol):
    """Kernels on rows of ``D`` scores, each the logit of a probability of its own, `Elementwise.sigmoid` of it."""

    def binary_cross_entropy(self, x: Array, t: Array, weights: Array | None = None) -> Scalar:
        """Return the sum over all values of ``max(x, 0) - x t + log(1 + exp(-|x|))``.

        That is ``-t log(p) - (1 - t) log(1 - p)`` with ``p = sigmoid(x)``, without overflow.

        Parameters
        ----------
        x, t : (N, D)
            Scores, and targets in [0, 1]. The result is NaN if a target is outside of it.
        weights : (N,) float, optional
            The terms of each row are multiplied by its weight.
        """

    def count_binary_matches(self, x: Array, t: Array) -> Scalar:
        """Return how many scores are on the side of their target: ``(x > 0) == (t > 0.5)``; a NaN counts as a miss."""
