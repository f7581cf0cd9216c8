"""Softmax: probabilities, losses and metrics of rows of scores."""

from __future__ import annotations

from typing import Protocol

from singa_dask.ops.contract.device import Array, Scalar


class Softmax(Protocol):
    """Kernels on rows of ``D`` scores. Labels are (N,) integers in [0, D), of the host or the device."""

    def softmax(self, x: Array, out: Array) -> None:
        """``out = exp(x) / sum_row(exp(x))``, (N, D); ``out`` may be ``x``."""

    def softmax_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = y (gy - sum_row(gy y))``, (N, D); ``out`` may be ``gy``.

        The gradient of `masked_softmax` too, on its rows as (N, D): masked scores have ``y = 0``, so gradient 0.
        """

    def masked_softmax(self, scores: Array, out: Array, causal: bool, first: int = 0) -> None:
        """``out`` = `softmax` of each row of the last axis, with ``causal`` over the columns that its row may see.

        Parameters
        ----------
        scores, out : (..., T, S)
            Scores of T queries for S keys; ``out`` may be ``scores``. What a query may not see gets 0.
        causal : bool
            Query t sees the keys up to ``first + t``; else every query sees all keys.
        first : int
            Position of the first query among the keys, at least 0.
        """

    def cross_entropy(self, p: Array, labels: Array, smoothing: float = 0.0, weights: Array | None = None) -> Scalar:
        """Return the mean over the rows of ``(1 - e) nll[label] + e mean_k(nll[k])``, ``nll = -log(p)`` of the row.

        Parameters
        ----------
        p : (N, D)
            Probabilities; those below the smallest normal float count as that.
        labels : (N,) integers
        smoothing : float
            e in [0, 1), label smoothing as in Szegedy et al. (2016).
        weights : (N,) float, optional
            The term of each row is multiplied by its weight; the sum is divided by N all the same.
        """

    def cross_entropy_grad(self, p: Array, labels: Array, scale: float, out: Array, smoothing: float = 0.0) -> None:
        """``out = scale / N (p - (1 - e) onehot(labels) - e / D)``: the gradient for the input of `softmax`.

        e is ``smoothing``; ``out`` may be ``p``.
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
