"""NumpySoftmax: probabilities, losses and metrics of rows of scores, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops.numpy.memory import NumpyMemory

# Shorter rows are computed as columns, because NumPy is slow to start each row. For so few values, sums along either
# axis have the same bits.
SHORT_ROW = 8


class NumpySoftmax(NumpyMemory):
    """Kernels on rows of ``D`` scores. Labels are (N,) integers in [0, D), of the host or the device."""

    def softmax(self, x: Array, out: Array) -> None:
        """``out = exp(x) / sum_row(exp(x))``, (N, D); ``out`` may be ``x``."""
        NumpySoftmax.masked_softmax(self, x, out, causal=False)

    def softmax_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = y (gy - sum_row(gy y))``, (N, D); ``out`` may be ``gy``.

        This is also the gradient of `masked_softmax`, with its rows as (N, D). Masked scores have ``y = 0``, so their
        gradient is 0.
        """
        for p, g, gx in self.pieces(y, gy, out):
            row = self.scratch("row", (len(p), 1), p.dtype)
            np.einsum("nd,nd->n", p, g, out=row[:, 0])
            np.subtract(g, row, out=gx)
            np.multiply(gx, p, out=gx)

    def masked_softmax(self, scores: Array, out: Array, causal: bool, first: int = 0) -> None:
        """``out`` = `softmax` over the last axis; with ``causal``, only over the keys that a query may see.

        Parameters
        ----------
        scores, out : (..., T, S)
            Scores of T queries for S keys; ``out`` may be ``scores``. Keys that a query may not see get 0.
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
            (*before, n_columns), p, axis = y.shape, y, -1
            n_rows = math.prod(before)
            row = self.scratch("row", (n_rows,), y.dtype).reshape(*before, 1)
            if n_columns < SHORT_ROW:
                row, p, axis = row[None, ..., 0], self.scratch("columns", (n_columns, n_rows), y.dtype), 0
                p = p.reshape(n_columns, *before)
                np.copyto(p, np.moveaxis(source, -1, 0))
                source = p
            np.max(source, axis=axis, keepdims=True, out=row)
            np.subtract(source, row, out=p)
            np.exp(p, out=p)
            np.sum(p, axis=axis, keepdims=True, out=row)
            np.divide(p, row, out=p)
            if axis == 0:
                np.copyto(y, np.moveaxis(p, 0, -1))

    def cross_entropy(self, p: Array, labels: Array, smoothing: float = 0.0, weights: Array | None = None) -> float:
        """Return the mean over the rows of ``(1 - e) nll[label] + e mean_k(nll[k])``, ``nll = -log(p)`` of the row.

        Parameters
        ----------
        p : (N, D)
            Probabilities. A probability below the smallest normal float counts as this float.
        labels : (N,) integers
        smoothing : float
            e in [0, 1), label smoothing as in Szegedy et al. (2016).
        weights : (N,) float, optional
            Weights that multiply the term of each row; the sum is still divided by N.
        """
        least = np.finfo(p.dtype).tiny
        picked = p[np.arange(len(labels)), labels]
        losses = np.log(np.maximum(picked, least, out=picked), out=picked)
        if weights is not None:
            np.multiply(losses, weights, out=losses)
        loss = -float(np.add.reduce(losses, dtype=np.float64)) / len(losses)
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

    def focal_factors(self, p: Array, labels: Array, gamma: float, out: Array) -> None:
        """Multiply weights of rows by the factors that turn `cross_entropy` and its gradient into a focal loss.

        ``out[0] *= (1 - q)^gamma`` and ``out[1] *= (1 - q)^gamma - gamma q (1 - q)^(gamma - 1) log(q)``, where ``q`` is
        the probability of the label, after Lin et al. (2017), Focal loss for dense object detection.

        Parameters
        ----------
        p : (N, D)
        labels : (N,) integers
        gamma : float
            At least 0.
        out : (2, N)
        """
        least = np.finfo(p.dtype).tiny
        q = np.maximum(p[np.arange(len(labels)), labels], least)
        rest = np.maximum(1 - q, least)
        np.multiply(out[0], rest**gamma, out=out[0])
        np.multiply(out[1], rest**gamma - gamma * q * rest ** (gamma - 1) * np.log(q), out=out[1])

    def top(self, scores: Array, k: int, out: Array) -> None:
        """``out`` = columns of the ``k`` highest scores of each row, best first.

        Parameters
        ----------
        scores : (N, D)
        k : int
        out : (N, k)
            If scores are equal, the higher column comes first, as in SINGA.
        """
        last = scores.shape[1] - 1
        if k == 1:
            np.subtract(last, np.argmax(scores[:, ::-1], axis=1)[:, None], out=out, casting="unsafe")
        else:
            order = np.argsort(-scores[:, ::-1], axis=1, kind="stable")[:, :k]
            np.subtract(last, order, out=out, casting="unsafe")

    def count_in_top(self, scores: Array, labels: Array, k: int) -> int:
        """Return how many rows have their label among the ``k`` columns of `top`; the label -1 never counts."""
        own, n_columns, axis = scores[np.arange(len(labels)), labels], scores.shape[1], 1
        if k == 1:
            # the label -1 matches no column, and a row with NaN counts as a miss
            hits = scores[:, ::-1].argmax(axis=1) == n_columns - 1 - np.asarray(labels)
            return int(np.count_nonzero(np.logical_and(hits, own == own, out=hits)))
        places: Array = np.arange(n_columns)
        if n_columns < SHORT_ROW:
            scores, places, axis = np.ascontiguousarray(scores.T), places[:, None], 0
        own, wanted = np.expand_dims(own, axis), np.expand_dims(labels, axis)
        after, equal = (self.scratch(name, scores.shape, bool) for name in ("after", "equal"))
        np.equal(scores, own, out=equal)
        np.less_equal(places, wanted, out=after)
        np.logical_and(equal, after, out=equal)
        np.less(scores, own, out=after)
        np.logical_or(after, equal, out=after)
        # count the scores that are not higher, so that a row with NaN is a miss
        return int(np.count_nonzero((after.sum(axis=axis) > n_columns - k) & (np.asarray(labels) >= 0)))


def hidden(scores: Array, first: int) -> Array:
    """Return a mask (T, S), true for keys that a query may not see: keys beyond its own position."""
    n_queries, n_keys = scores.shape[-2:]
    mask: Array = np.arange(n_keys) > first + np.arange(n_queries)[:, None]
    return mask
