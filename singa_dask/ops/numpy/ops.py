"""NumpyOps: what every kernel means, in numpy.

A faster backend is a subclass that overrides kernels; what it does not cover falls back by inheritance.
Kernels write into ``out`` and allocate nothing of batch size after their first call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from singa_dask.ops import philox
from singa_dask.ops.numpy.images import NumpyImages
from singa_dask.ops.numpy.memory import NumpyMemory
from singa_dask.ops.numpy.recurrent import NumpyRecurrent
from singa_dask.ops.numpy.updates import NumpyUpdates

__all__ = ["STANH_X", "STANH_Y", "NumpyOps"]

# Arrays are Any: a backend has its own kind.
Array = Any

# STanh's constants, after SINGA's src/utils/math_blob.h: y = STANH_Y * tanh(STANH_X * x).
STANH_Y = 1.7159047
STANH_X = 0.66666667

CROP_VALUES = 1 << 18


class NumpyOps(NumpyMemory, NumpyImages, NumpyRecurrent, NumpyUpdates):
    """Kernels for host memory. Float arrays are float32 or float64, all of one call the same, with any strides.

    ``N`` is the batch, ``D`` and ``H`` the values of one record before and after a layer. Memory is in `NumpyMemory`,
    kernels on images in `NumpyImages`, those on time steps in `NumpyRecurrent`, update rules in `NumpyUpdates`.

    What counts something, e.g. `cross_entropy`, returns a number on a CPU. On other devices it returns an array (1,)
    float64 that is good until the next call: see `accumulate`, or ``float(ops.to_host(scalar)[0])``.

    Attributes
    ----------
    name : str
        As a job's ``ops`` says it.
    """

    name = "numpy"

    # -- element by element ------------------------------------------------------------------------

    def add(self, x: Array, y: Array, out: Array) -> None:
        """``out = x + y``; ``out`` may be either."""
        np.add(x, y, out=out)

    def subtract(self, x: Array, y: Array, out: Array) -> None:
        """``out = x - y``; ``out`` may be either."""
        np.subtract(x, y, out=out)

    def multiply(self, x: Array, y: Array | float, out: Array) -> None:
        """``out = x * y`` for an array or a number ``y``; ``out`` may be either."""
        np.multiply(x, y, out=out)

    def sum_squares(self, x: Array) -> float:
        """Return the sum of squares of all values."""
        return float(np.vdot(x, x))

    def normalize(self, x: Array, mean: Array | float | None, std: Array | float | None, out: Array) -> None:
        """``out = (x - mean) / std`` in one pass from the type of the records to floats.

        Parameters
        ----------
        x : (N, ...) uint8 or float
        mean, std : broadcast against one record, or None
            What is None is not applied.
        out : (N, ...) float
        """
        for target, source in self.pieces(out, x):
            if mean is None:
                np.copyto(target, source, casting="unsafe")
            else:
                np.subtract(source, mean, out=target, dtype=target.dtype, casting="unsafe")
            if std is not None:
                np.divide(target, std, out=target)

    def crop_mirror_normalize(
        self,
        x: Array,
        top: np.ndarray[Any, Any],
        left: np.ndarray[Any, Any],
        mirrored: np.ndarray[Any, Any],
        mean: Array | float | None,
        std: Array | float | None,
        scale: float,
        out: Array,
    ) -> None:
        """``out = scale (x - mean) / std`` of a part of each image, in one pass from the type of the records to floats.

        Parameters
        ----------
        x : (N, C, H, W) uint8 or float
        top, left : (N,) integers
            Where the part of each image begins.
        mirrored : (N,) bool
            Whether it is then mirrored left to right.
        mean, std : (C, H, W), a number, or None
            Cut as the image is. What is None is not applied.
        scale : float
        out : (N, C, h, w) float
        """
        width, (n_channels, part_height, part_width) = x.shape[3], out.shape[1:]
        # all rows of a part, with what lies between them, are one stretch of each channel: few long copies
        length = (part_height - 1) * width + part_width
        starts, channels = (top * width + left)[:, None], np.arange(n_channels)
        pixels = _stretches(x, length)
        steps: list[tuple[Any, Any]] = [(np.subtract, mean), (np.divide, std), (np.multiply, scale)]
        steps = [(step, _stretches(by, length) if np.ndim(by) else by) for step, by in steps if by is not None]
        n_rows = max(1, CROP_VALUES // (n_channels * length))
        buffer = self.scratch("crop", (n_rows, n_channels, length), out.dtype)
        parts = sliding_window_view(buffer, part_width, axis=-1)[:, :, ::width]
        for turn, chosen in ((1, np.flatnonzero(~mirrored)), (-1, np.flatnonzero(mirrored))):
            for first in range(0, len(chosen), n_rows):
                rows = chosen[first : first + n_rows]
                values = buffer[: len(rows)]
                np.copyto(values, pixels[rows[:, None], channels, starts[rows]], casting="unsafe")
                for step, by in steps:
                    step(values, by[channels, starts[rows]] if np.ndim(by) else by, out=values)
                out[rows] = parts[: len(rows), ..., ::turn]

    # -- inner product -------------------------------------------------------------------------------

    def linear(self, x: Array, w: Array, b: Array | None, out: Array, transpose: bool = False) -> None:
        """``out = x w^T + b``, or ``x w + b`` when ``transpose``.

        Parameters
        ----------
        x : (N, D)
        w : (H, D), or (D, H) when ``transpose``
        b : (H,) or None
        out : (N, H)
        """
        np.matmul(x, w if transpose else w.T, out=out)
        if b is not None:
            np.add(out, b, out=out)

    def linear_grad_input(
        self, gy: Array, w: Array, out: Array, transpose: bool = False, accumulate: bool = False
    ) -> None:
        """``out = gy w``, (N, D), ``gy`` (N, H), weights as in `linear`; added to ``out`` when ``accumulate``."""
        self._multiply_matrices(gy, w.T if transpose else w, out, accumulate)

    def linear_grad_weight(
        self, x: Array, gy: Array, out: Array, transpose: bool = False, accumulate: bool = False
    ) -> None:
        """``out = gy^T x`` in the shape of the weights; added to ``out`` when ``accumulate``."""
        left, right = (x.T, gy) if transpose else (gy.T, x)
        self._multiply_matrices(left, right, out, accumulate)

    def _multiply_matrices(self, left: Array, right: Array, out: Array, accumulate: bool) -> None:
        """``out = left right``; added to ``out`` when ``accumulate``."""
        if accumulate:
            product = self.scratch("product", out.shape, out.dtype)
            np.matmul(left, right, out=product)
            np.add(out, product, out=out)
        else:
            np.matmul(left, right, out=out)

    def linear_grad_bias(self, gy: Array, out: Array, accumulate: bool = False) -> None:
        """``out`` = sum of the rows of ``gy``, (H,); added to ``out`` when ``accumulate``."""
        if accumulate:
            np.add(out, np.sum(gy, axis=0), out=out)
        else:
            np.sum(gy, axis=0, out=out)

    # -- activations; gradients from outputs; ``out`` may be ``x``, or ``gy`` ------------------------------

    def relu(self, x: Array, out: Array, negative_slope: float = 0.0) -> None:
        """``out = x`` where positive, else ``negative_slope * x``; the slope is in [0, 1]."""
        if not negative_slope:
            np.maximum(x, 0, out=out)
            return
        for source, y in self.pieces(x, out):
            below = self.scratch("slope", y.shape, y.dtype)
            np.multiply(source, negative_slope, out=below)
            np.maximum(source, below, out=y)

    def relu_grad(self, y: Array, gy: Array, out: Array, negative_slope: float = 0.0) -> None:
        """``out = gy`` where ``y > 0``, else ``negative_slope * gy``."""
        for value, g, gx in self.pieces(y, gy, out):
            slope = self.scratch("slope", g.shape, g.dtype)
            np.greater(value, 0, out=slope)
            if negative_slope:
                np.maximum(slope, negative_slope, out=slope)
            np.multiply(g, slope, out=gx)

    def sigmoid(self, x: Array, out: Array) -> None:
        """``out = 1 / (1 + exp(-x))``, as tanh, which cannot overflow."""
        for source, y in self.pieces(x, out):
            np.multiply(source, 0.5, out=y)
            np.tanh(y, out=y)
            np.multiply(y, 0.5, out=y)
            np.add(y, 0.5, out=y)

    def sigmoid_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = gy y (1 - y)``."""
        for value, g, gx in self.pieces(y, gy, out):
            slope = self.scratch("slope", g.shape, g.dtype)
            np.subtract(1, value, out=slope)
            np.multiply(slope, value, out=slope)
            np.multiply(slope, g, out=gx)

    def tanh(self, x: Array, out: Array) -> None:
        """``out = tanh(x)``."""
        np.tanh(x, out=out)

    def tanh_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = gy (1 - y^2)``."""
        for value, g, gx in self.pieces(y, gy, out):
            slope = self.scratch("slope", g.shape, g.dtype)
            np.multiply(value, value, out=slope)
            np.subtract(1, slope, out=slope)
            np.multiply(slope, g, out=gx)

    def stanh(self, x: Array, out: Array) -> None:
        """``out = 1.7159047 tanh(0.66666667 x)``, LeCun's scaled tanh."""
        for source, y in self.pieces(x, out):
            np.multiply(source, STANH_X, out=y)
            np.tanh(y, out=y)
            np.multiply(y, STANH_Y, out=y)

    def stanh_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = gy (0.66666667 * 1.7159047 - 0.66666667 / 1.7159047 * y^2)``."""
        for value, g, gx in self.pieces(y, gy, out):
            slope = self.scratch("slope", g.shape, g.dtype)
            np.multiply(value, -STANH_X / STANH_Y, out=slope)
            np.multiply(slope, value, out=slope)
            np.add(slope, STANH_X * STANH_Y, out=slope)
            np.multiply(slope, g, out=gx)

    # -- softmax and what is counted from it -----------------------------------------------------------

    def softmax(self, x: Array, out: Array) -> None:
        """``out`` = probabilities, each row of ``x`` (N, D) by itself."""
        for source, y in self.pieces(x, out):
            row = self.scratch("row", (len(y), 1), y.dtype)
            np.max(source, axis=1, keepdims=True, out=row)
            np.subtract(source, row, out=y)
            np.exp(y, out=y)
            np.sum(y, axis=1, keepdims=True, out=row)
            np.divide(y, row, out=y)

    def softmax_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = y (gy - sum_row(gy y))``; ``out`` may be ``gy``."""
        for p, g, gx in self.pieces(y, gy, out):
            row = self.scratch("row", (len(p), 1), p.dtype)
            np.einsum("nd,nd->n", p, g, out=row[:, 0])
            np.subtract(g, row, out=gx)
            np.multiply(gx, p, out=gx)

    def cross_entropy(self, p: Array, labels: Array) -> float:
        """Return the mean of ``-log(p of the label)``; p is kept above the least normal float.

        Parameters
        ----------
        p : (N, D)
            Probabilities.
        labels : (N,) integers in [0, D)
        """
        picked = p[np.arange(len(labels)), labels]
        return -float(np.log(np.maximum(picked, np.finfo(p.dtype).tiny)).mean(dtype=np.float64))

    def cross_entropy_grad(self, p: Array, labels: Array, scale: float, out: Array) -> None:
        """``out = scale / N (p - onehot(labels))``: gradient with respect to what `softmax` was given."""
        factor = scale / len(labels)
        np.multiply(p, factor, out=out)
        out[np.arange(len(labels)), labels] -= factor

    def top(self, scores: Array, k: int, out: Array) -> None:
        """``out`` = columns of the ``k`` highest scores of each row, best first.

        Parameters
        ----------
        scores : (N, D)
        k : int
        out : (N, k)
            Of equal scores the one with the higher column comes first, as SINGA sorts (score, column) downwards.
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
        # Counting who does not come before makes a row of NaN a miss.
        return int(np.count_nonzero(after.sum(axis=1) > scores.shape[1] - k))

    # -- random numbers, by address (see philox) ---------------------------------------------------------

    def random_words(self, key: philox.Key, low: Array, high: Array) -> np.ndarray[Any, Any]:
        """Return four words in [0, 2^32) for each address, (4, N) int64, in host memory; see `philox.words`."""
        return philox.words(key, low, high)

    def dropout_mask(self, key: philox.Key, keep: float, out: Array, first_row: int = 0) -> None:
        """``out`` = ``1 / keep`` with probability ``keep``, else 0; (N, ...)."""
        for mask, draws in self._draws(key, out, first_row):
            np.less(draws, np.float32(keep), out=mask)
            np.multiply(mask, 1 / keep, out=mask)

    def uniform(self, key: philox.Key, out: Array, low: float = 0.0, high: float = 1.0, first_row: int = 0) -> None:
        """``out`` = draws from [low, high); (N, ...)."""
        for part, draws in self._draws(key, out, first_row):
            np.multiply(draws, high - low, out=part)
            np.add(part, low, out=part)

    def bernoulli(self, key: philox.Key, p: Array, out: Array, first_row: int = 0) -> None:
        """``out`` = 1 with probability ``p``, value by value, else 0; both (N, ...); ``out`` may be ``p``."""
        # to begin to draw takes longer than to read draws from outside a cache
        for drawn, chance in self.pieces(out, p, n_values=1 << 17):
            np.less(philox.uniform(key, drawn.shape, first_row), chance, out=drawn)
            first_row += len(drawn)

    def gaussian(self, key: philox.Key, out: Array, mean: float = 0.0, std: float = 1.0, first_row: int = 0) -> None:
        """``out`` = draws from N(mean, std); (N, ...)."""
        np.multiply(philox.gaussian(key, out.shape, first_row), std, out=out)
        np.add(out, mean, out=out)

    def _draws(self, key: philox.Key, out: Array, first_row: int) -> Iterator[tuple[Array, Array]]:
        """Yield (rows of out, draws from [0, 1) for them), in pieces that stay in cache."""
        for (part,) in self.pieces(out):
            yield part, philox.uniform(key, part.shape, first_row)
            first_row += len(part)


def _stretches(images: Array, length: int) -> Array:
    """Return a view of images (..., C, H, W): for each of their channels, the stretch that begins at each pixel."""
    return sliding_window_view(images.reshape(*images.shape[:-2], -1), length, axis=-1)
