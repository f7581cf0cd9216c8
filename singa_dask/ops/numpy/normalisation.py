"""NumpyNormalisation and NumpySoftmax: kernels that reduce channels, groups of them, the batch, or rows, in numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from singa_dask.arrays import Array, DType
from singa_dask.ops.numpy.elementwise import NumpyElementwise
from singa_dask.ops.numpy.images import pixel_sums, sum_of_channels
from singa_dask.ops.numpy.memory import NumpyMemory
from singa_dask.ops.types import Running


class NumpyNormalisation(NumpyElementwise):
    """Kernels that normalise (N, C, H, W), or (N, C) where noted. ``out`` shares memory with no input.

    Parameters and statistics of channels, (C,), are dense, and float32 where images are bfloat16.
    """

    # -- local response normalisation --------------------------------------------------------------------

    def lrn_memory(
        self, shape: Sequence[int], dtype: DType, size: int, alpha: float, beta: float, knorm: float
    ) -> Array:
        """Return ``work`` of `lrn`, which it leaves to `lrn_grad`; ``shape`` is that of the images."""
        return self.features(shape, dtype)

    def lrn(self, x: Array, out: Array, work: Array | None, size: int, alpha: float, beta: float, knorm: float) -> None:
        """``out = x / S^beta``, ``S = knorm + alpha / size`` times the sum of ``x^2`` over ``size`` channels around.

        Parameters
        ----------
        x, out : (N, C, H, W)
        work : from `lrn_memory`, or None if no gradient follows
        size : int
            Odd; the sum is over the channels from c - size // 2 to c + size // 2 that exist.
        """
        for source, y, sums in self.pieces(x, out, work):
            sums = self.scratch("sums", y.shape, y.dtype) if sums is None else sums
            np.multiply(source, source, out=y)
            _add_neighbours(y, size, out=sums)
            np.multiply(sums, alpha / size, out=sums)
            np.add(sums, knorm, out=sums)
            self._inverse_power(sums, beta, out=y)
            np.multiply(y, source, out=y)

    def lrn_grad(
        self, x: Array, gy: Array, out: Array, work: Array, size: int, alpha: float, beta: float, knorm: float
    ) -> None:
        """``out = gy S^-beta - 2 beta alpha / size x T``, T the sum of ``gy x S^(-beta - 1)`` over these channels."""
        for source, g, gx, sums in self.pieces(x, gy, out, work):
            scaled, inner = (self.scratch(name, g.shape, g.dtype) for name in ("scaled", "inner"))
            self._inverse_power(sums, beta, out=scaled)
            np.multiply(scaled, g, out=scaled)
            np.multiply(scaled, source, out=inner)
            np.divide(inner, sums, out=inner)
            _add_neighbours(inner, size, out=gx)
            np.multiply(gx, source, out=gx)
            np.multiply(gx, -2 * beta * alpha / size, out=gx)
            np.add(gx, scaled, out=gx)

    def _inverse_power(self, x: Array, exponent: float, out: Array) -> None:
        """``out = x^-exponent``; by roots where it is 3 / 4, the usual one, which is several times faster."""
        if exponent != 0.75:
            np.power(x, -exponent, out=out)
            return
        root = self.scratch("root", x.shape, x.dtype)
        np.sqrt(x, out=out)
        np.sqrt(out, out=root)
        np.multiply(out, root, out=out)
        np.divide(1, out, out=out)

    # -- batch normalisation -----------------------------------------------------------------------------

    def batch_norm(
        self,
        x: Array,
        scale: Array,
        shift: Array,
        mean: Array,
        var: Array,
        out: Array,
        eps: float,
        training: bool,
        relu: bool = False,
        work: Array | None = None,
    ) -> None:
        """``out = scale (x - mean) / sqrt(var + eps) + shift``, channel by channel.

        Parameters
        ----------
        x, out : (N, C, H, W) or (N, C)
        scale, shift : (C,)
        mean, var : (C,)
            In training those of x over all rows and pixels are written here; the variance divides by their number.
        relu : bool
            ``out`` is `relu` of that.
        work : (n,) uint8, optional
            A bit for each value, which this may leave to `batch_norm_grad` in training with ``relu``.
        """
        if training:
            np.copyto(mean, sum_of_channels(x) * (mean.size / x.size), casting="same_kind")
            total = np.zeros(mean.shape)
            for source, y in self.pieces(x, out):
                np.subtract(source, _wide(mean, x), out=y)
                np.multiply(y, y, out=y)
                total += sum_of_channels(y)
            np.copyto(var, total * (var.size / x.size), casting="same_kind")
        factor = scale / np.sqrt(var + eps)
        for source, y in self.pieces(x, out):
            np.subtract(source, _wide(mean, x), out=y)
            np.multiply(y, _wide(factor, x), out=y)
            np.add(y, _wide(shift, x), out=y)
            if relu:
                np.maximum(y, 0, out=y)

    def batch_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        var: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        eps: float,
        running: Running | None = None,
        y: Array | None = None,
        work: Array | None = None,
    ) -> None:
        """Compute the gradients of `batch_norm` in training.

        With u = (x - mean) / sqrt(var + eps) and M values in a channel, ``grad_shift = sum gy``,
        ``grad_scale = sum gy u`` and, unless it is None,
        ``out = scale / sqrt(var + eps) (gy - grad_shift / M - u grad_scale / M)``. Shapes are those of `batch_norm`.

        Parameters
        ----------
        running : Running, optional
            Its gradients are written, ``grad_mean = rate (running mean - mean)`` and likewise of the variance.
        y : optional
            Output of `batch_norm` with ``relu``, if that made it: gy counts where ``y > 0``, as in `relu_grad`.
        work : optional
            Given with ``y`` if `batch_norm` had it.
        """
        if running is not None:
            write_running(running, mean, var)
        if y is not None:
            masked = self.scratch("masked", gy.shape, gy.dtype)
            np.greater(y, 0, out=masked)
            gy = np.multiply(gy, masked, out=masked)
        width = 1 / np.sqrt(var + eps)
        total = np.zeros(var.shape)
        for source, g in self.pieces(x, gy):
            product = self._normal(source, mean, width)
            np.multiply(product, g, out=product)
            total += sum_of_channels(product)
        np.copyto(grad_scale, total, casting="same_kind")
        np.copyto(grad_shift, sum_of_channels(gy), casting="same_kind")
        if out is None:
            return
        share = var.size / x.size
        for source, g, gx in self.pieces(x, gy, out):
            mixed = self._normal(source, mean, width)
            np.multiply(mixed, _wide(grad_scale * share, x), out=mixed)
            np.add(mixed, _wide(grad_shift * share, x), out=mixed)
            np.subtract(g, mixed, out=gx)
            np.multiply(gx, _wide(scale * width, x), out=gx)

    def _normal(self, x: Array, mean: Array, width: Array) -> Array:
        """Return (x - mean) width, in scratch memory."""
        normal = self.scratch("normal", x.shape, x.dtype)
        np.subtract(x, _wide(mean, x), out=normal)
        np.multiply(normal, _wide(width, x), out=normal)
        return normal

    # -- layer normalisation ---------------------------------------------------------------------------------

    def layer_norm(self, x: Array, scale: Array, shift: Array, mean: Array, var: Array, out: Array, eps: float) -> None:
        """``out = scale (x - mean) / sqrt(var + eps) + shift``, with mean and variance of each row.

        Parameters
        ----------
        x, out : (N, D)
        scale, shift : (D,)
        mean, var : (N,)
            Written, for `layer_norm_grad`; float32 where x is bfloat16. The variance divides by D.
        """
        for source, y, middle, spread in self.pieces(x, out, mean, var):
            np.mean(source, axis=1, out=middle)
            np.subtract(source, middle[:, None], out=y)
            square = self.scratch("square", y.shape, y.dtype)
            np.multiply(y, y, out=square)
            np.mean(square, axis=1, out=spread)
            np.multiply(y, _inverse_root(spread, eps)[:, None], out=y)
            np.multiply(y, scale, out=y)
            np.add(y, shift, out=y)

    def layer_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        var: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        eps: float,
        accumulate: bool = False,
    ) -> None:
        """Compute the gradients of `layer_norm`.

        With u = (x - mean) / sqrt(var + eps), ``grad_scale = sum_n gy u`` and ``grad_shift = sum_n gy``, added to what
        is there if ``accumulate``; and, unless it is None,
        ``out = (g - mean_row(g) - u mean_row(g u)) / sqrt(var + eps)`` with ``g = gy scale``.
        Shapes are those of `layer_norm`.
        """
        totals = np.zeros((2, x.shape[1]))
        for source, g, gx, middle, spread in self.pieces(x, gy, out, mean, var):
            normal, product = (self.scratch(name, g.shape, g.dtype) for name in ("normal", "product"))
            width = _inverse_root(spread, eps)[:, None]
            np.subtract(source, middle[:, None], out=normal)
            np.multiply(normal, width, out=normal)
            np.multiply(normal, g, out=product)
            totals += np.add.reduce(product, axis=0), np.add.reduce(g, axis=0)
            if gx is not None:
                np.multiply(product, scale, out=product)
                np.multiply(normal, product.mean(axis=1, keepdims=True), out=normal)
                np.multiply(g, scale, out=product)
                np.add(normal, product.mean(axis=1, keepdims=True), out=normal)
                np.subtract(product, normal, out=product)
                np.multiply(product, width, out=gx)
        _write_sums(totals, grad_scale, grad_shift, accumulate)

    def layer_norm_grad_add(
        self,
        more: Array,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        var: Array,
        out: Array,
        grad_scale: Array,
        grad_shift: Array,
        eps: float,
        accumulate: bool = False,
    ) -> None:
        """Compute the gradients of `layer_norm`, that of x plus ``more`` (N, D), e.g. that of another reader of x."""
        self.layer_norm_grad(x, gy, scale, mean, var, out, grad_scale, grad_shift, eps, accumulate)
        self.add(out, more, out)

    # -- root mean squares -----------------------------------------------------------------------------------

    def inverse_root(self, x: Array, eps: float, out: Array) -> None:
        """``out = 1 / sqrt(x + eps)``, (N,)."""
        np.add(x, eps, out=out)
        np.sqrt(out, out=out)
        np.divide(1, out, out=out)

    # -- group normalisation ---------------------------------------------------------------------------------

    def group_norm(self, x: Array, scale: Array, shift: Array, mean: Array, var: Array, out: Array, eps: float) -> None:
        """``out = scale (x - mean) / sqrt(var + eps) + shift``, with mean and variance of each group of channels.

        Parameters
        ----------
        x, out : (N, C, H, W)
        scale, shift : (C,)
        mean, var : (N, G)
            Written, for `group_norm_grad`; float32 where x is bfloat16. G divides C: a group is C / G neighbouring
            channels of one image, and the variance divides by C / G H W.
        """
        for source, y, middle, spread in self.pieces(x, out, mean, var):
            np.copyto(middle, _group_means(pixel_sums(source), source, middle), casting="same_kind")
            np.subtract(source, _of_channels(middle, x), out=y)
            square = self.scratch("square", y.shape, y.dtype)
            np.multiply(y, y, out=square)
            np.copyto(spread, _group_means(pixel_sums(square), source, spread), casting="same_kind")
            np.multiply(y, _of_channels(_inverse_root(spread, eps), x) * _wide(scale, x), out=y)
            np.add(y, _wide(shift, x), out=y)

    def group_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        var: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        eps: float,
        accumulate: bool = False,
    ) -> None:
        """Compute the gradients of `group_norm`, as `layer_norm_grad` does with groups for rows."""
        totals = np.zeros((2, x.shape[1]))
        for source, g, gx, middle, spread in self.pieces(x, gy, out, mean, var):
            normal, product = (self.scratch(name, g.shape, g.dtype) for name in ("normal", "product"))
            width = _of_channels(_inverse_root(spread, eps), x)
            np.subtract(source, _of_channels(middle, x), out=normal)
            np.multiply(normal, width, out=normal)
            np.multiply(normal, g, out=product)
            sums = pixel_sums(product), pixel_sums(g)
            totals += [np.add.reduce(each, axis=0) for each in sums]
            if gx is not None:
                slope, constant = (_of_channels(_group_means(each * scale, x, middle), x) for each in sums)
                np.multiply(normal, slope, out=normal)
                np.add(normal, constant, out=normal)
                np.multiply(g, _wide(scale, x), out=product)
                np.subtract(product, normal, out=product)
                np.multiply(product, width, out=gx)
        _write_sums(totals, grad_scale, grad_shift, accumulate)


def write_running(running: Running, mean: Array, var: Array) -> None:
    """Write the gradients of running statistics for those of a batch."""
    for value, of_batch, grad in (
        (running.mean, mean, running.grad_mean),
        (running.var, var, running.grad_var),
    ):
        np.subtract(value, of_batch, out=grad)
        np.multiply(grad, running.rate, out=grad)


def _add_neighbours(x: Array, size: int, out: Array) -> None:
    """``out[:, c]`` = sum of ``x[:, c - size // 2 : c + size // 2 + 1]``, clipped to the channels."""
    np.copyto(out, x)
    for k in range(1, min(size // 2, x.shape[1] - 1) + 1):
        np.add(out[:, k:], x[:, :-k], out=out[:, k:])
        np.add(out[:, :-k], x[:, k:], out=out[:, :-k])


def _wide(values: Array, x: Array) -> Array:
    """Return values (C,) to be broadcast against x."""
    return values[:, None, None] if x.ndim == 4 else values


def _inverse_root(var: Array, eps: float) -> Array:
    root: Array = 1 / np.sqrt(var + eps)
    return root


def _write_sums(totals: Array, grad_scale: Array, grad_shift: Array, accumulate: bool) -> None:
    """Write the gradients of scale and shift, or add them to what is there."""
    for total, out in zip(totals, (grad_scale, grad_shift), strict=True):
        np.add(total, out if accumulate else 0, out=out, casting="same_kind")


def _group_means(sums: Array, x: Array, groups: Array) -> Array:
    """Return the means over groups (N, G) from sums over the pixels of x (N, C), shaped like ``groups``."""
    n_values = x[0].size / groups.shape[1]
    total: Array = np.add.reduce(sums.reshape(*groups.shape, -1), axis=2) / n_values
    return total


def _of_channels(groups: Array, x: Array) -> Array:
    """Return values of groups (N, G) repeated for their channels, to be broadcast against images x, in their dtype."""
    values = np.repeat(groups, x.shape[1] // groups.shape[1], axis=1)[:, :, None, None]
    return values.astype(x.dtype, copy=False)


# NumpySoftmax: probabilities, losses and metrics of rows of scores, in numpy.


# Rows of fewer values are computed as columns: numpy takes long to begin each row. A sum of so few values has the same
# bits along either axis.
SHORT_ROW = 8


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
            Probabilities; those below the smallest normal float count as that.
        labels : (N,) integers
        smoothing : float
            e in [0, 1), label smoothing as in Szegedy et al. (2016).
        weights : (N,) float, optional
            The term of each row is multiplied by its weight; the sum is divided by N all the same.
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
        """Multiply factors of rows by what makes `cross_entropy` and its gradient those of a focal loss.

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
        """Return how many rows have their label, which is not -1, among the ``k`` highest scores; ties as in `top`."""
        own, n_columns, axis = scores[np.arange(len(labels)), labels], scores.shape[1], 1
        if k == 1:
            # a label of -1 is no column, and a row of NaN is a miss
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
        # counting the scores that do not come before makes a row of NaN a miss
        return int(np.count_nonzero((after.sum(axis=axis) > n_columns - k) & (np.asarray(labels) >= 0)))


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
