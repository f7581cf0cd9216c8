"""NumpySoftmax: probabilities, losses and metrics of rows of scores, in numpy."""

from __future__ import annotations

import math

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops.numpy.memory import NumpyMemory


class NumpySoftmax(NumpyMemory):
    """Kernels on rows of ``D`` scores. Labels are (N,) integers in [0, D), of the host or the device."""

    def softmax(self, x: Array, out: Array) -> None:
        """``out = exp(x) / sum_row(exp(x))``, (N, D); ``out`` may be ``x``."""
        NumpySoftmax.masked_softmax(self, x, out, causal=False)

    def softmax_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = y (gy - sum_row(gy y))``, (N, D); ``out`` may be ``gy``.

        The gradient of `masked_softmax` too, on its rows as (N, D): masked scores have ``y = 0``, so gradient 0.
        """
        for p, g, gx in self.pieces(y, gy, out):
            row = self.scratch("row", (len(p), 1), p.dtype)
            np.einsum("nd,nd->n", p, g, out=row[:, 0])
            np.subtract(g, row, out=gx)
            np.multiply(gx, p, out=gx)

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
        for source, y in self.pieces(scores, out):
            if causal:
                np.copyto(y, source)
                np.copyto(y, -np.inf, where=hidden(y, first))
                source = y
            row = self.scratch("row", (y.size // y.shape[-1],), y.dtype).reshape(*y.shape[:-1], 1)
            np.max(source, axis=-1, keepdims=True, out=row)
            np.subtract(source, row, out=y)
            np.exp(y, out=y)
            np.sum(y, axis=-1, keepdims=True, out=row)
            np.divide(y, row, out=y)

    def cross_entropy(self, p: Array, labels: Array, smoothing: float = 0.0, weights: Array | None = None) -> float:
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
        least = np.finfo(p.dtype).tiny
        picked = p[np.arange(len(labels)), labels]
        losses = np.log(np.maximum(picked, least))
        if weights is not None:
            np.multiply(losses, weights, out=losses)
        loss = -float(losses.mean(dtype=np.float64))
        if not smoothing:
            return loss
        total = 0.0
        for part, factors in self.pieces(p, weights):
            logs = self.scratch("logs", part.shape, part.dtype)
            np.maximum(part, least, out=logs)
            np.log(logs, out=logs)
            if factors is not None:
                np.multiply(logs, factors[:, None], out=logs)
            total -= float(np.sum(logs, dtype=np.float64))
        return (1 - smoothing) * loss + smoothing * total / p.size

    def cross_entropy_grad(self, p: Array, labels: Array, scale: float, out: Array, smoothing: float = 0.0) -> None:
        """``out = scale / N (p - (1 - e) onehot(labels) - e / D)``: the gradient for the input of `softmax`.

        e is ``smoothing``; ``out`` may be ``p``.
        """
        factor = scale / len(labels)
        np.multiply(p, factor, out=out)
        if smoothing:
            np.subtract(out, factor * smoothing / p.shape[1], out=out)
        out[np.arange(len(labels)), labels] -= factor * (1 - smoothing)

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
        last = scores.shape[1] - 1
        if k == 1:
            np.subtract(last, np.argmax(scores[:, ::-1], axis=1)[:, None], out=out, casting="unsafe")
        else:
            order = np.argsort(-scores[:, ::-1], axis=1, kind="stable")[:, :k]
            np.subtract(last, order, out=out, casting="unsafe")

    def count_in_top(self, scores: Array, labels: Array, k: int) -> int:
        """Return how many rows have their label among the ``k`` highest scores, ties as in `top`."""
        own = scores[np.arange(len(labels)), labels][:, None]
        after, equal = (self.scratch(name, scores.shape, bool) for name in ("after", "equal"))
        np.equal(scores, own, out=equal)
        np.less_equal(np.arange(scores.shape[1]), labels[:, None], out=after)
        np.logical_and(equal, after, out=equal)
        np.less(scores, own, out=after)
        np.logical_or(after, equal, out=after)
        # counting the scores that do not come before makes a row of NaN a miss
        return int(np.count_nonzero(after.sum(axis=1) > scores.shape[1] - k))


def hidden(scores: Array, first: int) -> Array:
    """Return which keys a query may not see, (T, S) bool: those beyond its own position."""
    n_queries, n_keys = scores.shape[-2:]
    mask: Array = np.arange(n_keys) > first + np.arange(n_queries)[:, None]
    return mask


class NumpyBinary(NumpyMemory):
    """Kernels on rows of ``D`` scores, each the logit of a probability of its own, `sigmoid` of it."""

    def binary_cross_entropy(self, x: Array, t: Array, weights: Array | None = None) -> float:
        """Return the sum over all values of ``max(x, 0) - x t + log(1 + exp(-|x|))``.

        That is ``-t log(p) - (1 - t) log(1 - p)`` with ``p = sigmoid(x)``, without overflow.

        Parameters
        ----------
        x, t : (N, D)
            Scores, and targets in [0, 1]. The result is NaN if a target is outside of it.
        weights : (N,) float, optional
            The terms of each row are multiplied by its weight.
        """
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
        """Return how many scores are on the side of their target: ``(x > 0) == (t > 0.5)``; a NaN counts as a miss."""
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
