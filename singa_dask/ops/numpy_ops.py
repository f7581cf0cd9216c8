"""NumpyOps: what every kernel means, in numpy.

A faster backend is a subclass that overrides kernels; what it does not cover falls back by inheritance.
Kernels write into ``out``, keep nothing between calls and allocate nothing of batch size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from singa_dask.ops import philox

__all__ = ["NumpyOps"]

# Arrays are Any: a backend has its own kind.
Array = Any

# STanh's constants, after SINGA's src/utils/math_blob.h: y = STANH_Y * tanh(STANH_X * x).
STANH_Y = 1.7159047
STANH_X = 0.66666667

# Where one kernel makes several passes it makes them over pieces of this many values, which stay in cache.
CHUNK_VALUES = 1 << 15
CROP_VALUES = 1 << 18


class NumpyOps:
    """Kernels for host memory. Float arrays are float32 or float64, all of one call the same.

    ``N`` is the batch, ``D`` and ``H`` the values of one record before and after a layer.
    """

    # -- memory ----------------------------------------------------------------------------------

    def empty(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return memory that holds anything."""
        return np.empty(shape, dtype)

    def zeros(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return memory that holds zeros."""
        return np.zeros(shape, dtype)

    def to_host(self, x: Array) -> np.ndarray[Any, Any]:
        """Return ``x`` as a numpy array, a view where possible."""
        return np.asarray(x)

    def copy(self, x: Array, out: Array) -> None:
        """``out = x``; dtypes may differ."""
        np.copyto(out, x, casting="unsafe")

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
        rows = max(1, CHUNK_VALUES * len(out) // max(1, out.size))
        for start in range(0, len(out), rows):
            source, target = x[start : start + rows], out[start : start + rows]
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
        buffer = np.empty((n_rows, n_channels, length), out.dtype)
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

    def linear_grad_input(self, gy: Array, w: Array, out: Array, transpose: bool = False) -> None:
        """``out = gy w``, (N, D), from ``gy`` (N, H) and weights as in `linear`."""
        np.matmul(gy, w.T if transpose else w, out=out)

    def linear_grad_weight(
        self, x: Array, gy: Array, out: Array, transpose: bool = False, accumulate: bool = False
    ) -> None:
        """``out = gy^T x`` in the shape of the weights; added to ``out`` when ``accumulate``."""
        left, right = (x.T, gy) if transpose else (gy.T, x)
        if accumulate:
            np.add(out, np.matmul(left, right), out=out)
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
        if negative_slope:
            below = _scratch(out, x)
            np.multiply(x, negative_slope, out=below)
            np.maximum(x, below, out=out)
        else:
            np.maximum(x, 0, out=out)

    def relu_grad(self, y: Array, gy: Array, out: Array, negative_slope: float = 0.0) -> None:
        """``out = gy`` where ``y > 0``, else ``negative_slope * gy``."""
        if negative_slope:
            np.multiply(gy, np.where(y > 0, 1, y.dtype.type(negative_slope)), out=out)
        else:
            np.multiply(gy, y > 0, out=out)

    def sigmoid(self, x: Array, out: Array) -> None:
        """``out = 1 / (1 + exp(-x))``, as tanh, which cannot overflow."""
        np.multiply(x, 0.5, out=out)
        np.tanh(out, out=out)
        np.multiply(out, 0.5, out=out)
        np.add(out, 0.5, out=out)

    def sigmoid_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = gy y (1 - y)``."""
        slope = _scratch(out, gy)
        np.subtract(1, y, out=slope)
        np.multiply(slope, y, out=slope)
        np.multiply(slope, gy, out=out)

    def tanh(self, x: Array, out: Array) -> None:
        """``out = tanh(x)``."""
        np.tanh(x, out=out)

    def tanh_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = gy (1 - y^2)``."""
        slope = _scratch(out, gy)
        np.multiply(y, y, out=slope)
        np.subtract(1, slope, out=slope)
        np.multiply(slope, gy, out=out)

    def stanh(self, x: Array, out: Array) -> None:
        """``out = 1.7159047 tanh(0.66666667 x)``, LeCun's scaled tanh."""
        np.multiply(x, STANH_X, out=out)
        np.tanh(out, out=out)
        np.multiply(out, STANH_Y, out=out)

    def stanh_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = gy (0.66666667 * 1.7159047 - 0.66666667 / 1.7159047 * y^2)``."""
        slope = _scratch(out, gy)
        np.multiply(y, -STANH_X / STANH_Y, out=slope)
        np.multiply(slope, y, out=slope)
        np.add(slope, STANH_X * STANH_Y, out=slope)
        np.multiply(slope, gy, out=out)

    # -- softmax and what is counted from it -----------------------------------------------------------

    def softmax(self, x: Array, out: Array) -> None:
        """``out`` = probabilities, each row of ``x`` (N, D) by itself."""
        np.subtract(x, x.max(axis=1, keepdims=True), out=out)
        np.exp(out, out=out)
        np.divide(out, out.sum(axis=1, keepdims=True), out=out)

    def softmax_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = y (gy - sum_row(gy y))``; ``out`` may be ``gy``."""
        dots = np.einsum("nd,nd->n", y, gy)
        np.subtract(gy, dots[:, None], out=out)
        np.multiply(out, y, out=out)

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
        after = scores < own
        after |= (scores == own) & (np.arange(scores.shape[1]) <= labels[:, None])
        # Counting who does not come before makes a row of NaN a miss.
        return int(np.count_nonzero(after.sum(axis=1) > scores.shape[1] - k))

    # -- random numbers, by address (see philox) ---------------------------------------------------------

    def random_words(self, key: philox.Key, low: Array, high: Array) -> np.ndarray[Any, Any]:
        """Return four words in [0, 2^32) for each address, (4, N) int64, in host memory; see `philox.words`."""
        return philox.words(key, low, high)

    def dropout_mask(self, key: philox.Key, keep: float, out: Array, first_row: int = 0) -> None:
        """``out`` = ``1 / keep`` with probability ``keep``, else 0; (N, ...)."""
        np.less(philox.uniform(key, out.shape, first_row), keep, out=out)
        np.multiply(out, 1 / keep, out=out)

    def uniform(self, key: philox.Key, out: Array, low: float = 0.0, high: float = 1.0, first_row: int = 0) -> None:
        """``out`` = draws from [low, high); (N, ...)."""
        np.multiply(philox.uniform(key, out.shape, first_row), high - low, out=out)
        np.add(out, low, out=out)

    def gaussian(self, key: philox.Key, out: Array, mean: float = 0.0, std: float = 1.0, first_row: int = 0) -> None:
        """``out`` = draws from N(mean, std); (N, ...)."""
        np.multiply(philox.gaussian(key, out.shape, first_row), std, out=out)
        np.add(out, mean, out=out)


def _stretches(images: Array, length: int) -> Array:
    """Return a view of images (..., C, H, W): for each of their channels, the stretch that begins at each pixel."""
    return sliding_window_view(images.reshape(*images.shape[:-2], -1), length, axis=-1)


def _scratch(out: Array, kept: Array) -> Array:
    """Return ``out`` as scratch memory, or new memory where that would overwrite ``kept``."""
    return np.empty_like(out) if np.may_share_memory(out, kept) else out
