"""Softmax: probabilities, losses and metrics of rows of scores."""

from __future__ import annotations

from typing import Protocol

from singa_dask.ops.contract.arrays import Array, Scalar

__all__ = ["Softmax"]


class Softmax(Protocol):
    """Kernels on rows of ``D`` scores. Labels are (N,) integers in [0, D), of the host or the device."""

    def softmax(self, x: Array, out: Array) -> None:
        """``out = exp(x) / sum_row(exp(x))``, (N, D); ``out`` may be ``x``."""

    def softmax_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = y (gy - sum_row(gy y))``; ``out`` may be ``gy``."""

    def cross_entropy(self, p: Array, labels: Array) -> Scalar:
        """Return the mean over the rows of ``-log(p[n, labels[n]])``.

        Parameters
        ----------
        p : (N, D)
            Probabilities; those below the smallest normal float count as that.
        labels : (N,) integers
        """

    def cross_entropy_grad(self, p: Array, labels: Array, scale: float, out: Array) -> None:
        """``out = scale / N (p - onehot(labels))``: the gradient with respect to the input of `softmax`.

        ``out`` may be ``p``.
        """

    def top(self, scores: Array, k: int, out: Array) -> None:
        """``out`` = columns of the ``k`` highest scores of each row, best first.

        Parameters
        ----------
        scores : (N, D)
        k : int
        out : (N, k)
            Of equal scores the one with the higher column comes first, as SINGA sorts (score, column) in descending
            order.
        """

    def count_in_top(self, scores: Array, labels: Array, k: int) -> Scalar:
        """Return how many rows have their label among the ``k`` highest scores, ties as in `top`."""
