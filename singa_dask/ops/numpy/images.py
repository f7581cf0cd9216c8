"""NumpyImages: what every kernel on images means, in numpy: convolution, pooling, normalisation.

Images are (N, C, H, W) of any strides; fastest where they lie in memory as N, H, W, C, as `features` makes them.
A window has a height and a width, and so have stride and padding: pairs (y, x) of integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from singa_dask.ops.scratch import Scratch, channels_last

__all__ = ["BYTE_PLACES", "NumpyImages"]

# Arrays are Any: a backend has its own kind.
Array = Any
Pair: TypeAlias = tuple[int, int]

# Values of the unfolded images that one matrix product takes.
COLUMN_VALUES = 1 << 18
# `where` holds places as bytes up to this many values in a window.
BYTE_PLACES = 256


class NumpyImages(Scratch):
    """Kernels on images, a mixin of `NumpyOps`.

    ``N`` is the batch, ``C`` and ``F`` the channels before and after, ``H, W`` and ``OH, OW`` the sizes;
    ``OH = floor((H + 2 pad - kernel) / stride) + 1``, and so is the width.
    """

    # -- convolution -----------------------------------------------------------------------------------

    def conv2d(self, x: Array, w: Array, b: Array | None, out: Array, stride: Pair, pad: Pair) -> None:
        """``out[n, f, i, j] = b[f] + sum_{c, k, l} w[f, c, k, l] x[n, c, i stride + k - pad, j stride + l - pad]``.

        Outside of the image x is 0. The kernel is not flipped: this is what nets call a convolution.

        Parameters
        ----------
        x : (N, C, H, W)
        w : (F, C, kh, kw)
        b : (F,) or None
        out : (N, F, OH, OW)
        """
        weights = self._weights(w).T
        for columns, y in self._columns(x, out, w.shape[2:], stride, pad):
            self._product(columns, weights, y)
            if b is not None:
                np.add(y, b[:, None, None], out=y)

    def conv2d_grad_input(self, gy: Array, w: Array, out: Array, stride: Pair, pad: Pair) -> None:
        """``out`` (N, C, H, W) = gradient of `conv2d` with respect to x, from ``gy`` (N, F, OH, OW)."""
        kh, kw = w.shape[2:]
        if stride == (1, 1) and pad[0] < kh and pad[1] < kw:
            # a convolution with the kernels turned round, which reads where the other way adds up
            turned = w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
            NumpyImages.conv2d(self, gy, turned, None, out, stride, (kh - 1 - pad[0], kw - 1 - pad[1]))
            return
        weights, (oh, ow), (height, width) = self._weights(w), gy.shape[2:], out.shape[2:]
        for g, gx in self.pieces(gy, out, n_values=COLUMN_VALUES // (kh * kw)):
            rows = self._rows(g)
            columns = self.scratch("columns", (len(rows), weights.shape[1]), out.dtype)
            np.matmul(rows, weights, out=columns)
            folded = columns.reshape(len(g), oh, ow, kh, kw, -1)
            padded = self.scratch("padded", (len(g), out.shape[1], height + 2 * pad[0], width + 2 * pad[1]), out.dtype)
            padded[...] = 0
            sums = channels_last(padded)
            for i, j in np.ndindex(kh, kw):
                window = sums[:, i : i + stride[0] * oh : stride[0], j : j + stride[1] * ow : stride[1]]
                np.add(window, folded[:, :, :, i, j], out=window)
            np.copyto(gx, padded[:, :, pad[0] : pad[0] + height, pad[1] : pad[1] + width])

    def conv2d_grad_weight(
        self, x: Array, gy: Array, out: Array, bias: Array | None, stride: Pair, pad: Pair, accumulate: bool = False
    ) -> None:
        """``out`` (F, C, kh, kw) = gradient of `conv2d` with respect to w, ``bias`` (F,), if any, that to b.

        Both are added to what is there when ``accumulate``.
        """
        n_filters, n_channels, kh, kw = out.shape
        total = self.scratch("total", (n_filters, kh * kw * n_channels), out.dtype)
        product = self.scratch("product", total.shape, out.dtype)
        total[...] = 0
        for columns, g in self._columns(x, gy, (kh, kw), stride, pad):
            np.matmul(self._rows(g).T, columns, out=product)
            np.add(total, product, out=total)
        wanted = total.reshape(n_filters, kh, kw, n_channels).transpose(0, 3, 1, 2)
        np.add(wanted, out if accumulate else 0, out=out)
        if bias is not None:
            np.add(_sum_of_channels(gy), bias if accumulate else 0, out=bias, casting="same_kind")

    def _weights(self, w: Array) -> Array:
        """Return weights (F, C, kh, kw) as (F, kh kw C), the order of `_columns`."""
        ordered = self.scratch("weights", (len(w), *w.shape[2:], w.shape[1], 1), w.dtype)[..., 0]
        np.copyto(ordered, channels_last(w))
        return ordered.reshape(len(w), -1)

    def _columns(
        self, x: Array, y: Array, kernel: Sequence[int], stride: Pair, pad: Pair
    ) -> Iterator[tuple[Array, Array]]:
        """Yield (values of the windows (n OH OW, kh kw C), rows of y (n, F, OH, OW)) for pieces of the batch."""
        (n_channels, height, width), (kh, kw), (oh, ow) = x.shape[1:], kernel, y.shape[2:]
        n_rows = max(1, COLUMN_VALUES // (oh * ow * kh * kw * n_channels))
        for start in range(0, len(x), n_rows):
            images = x[start : start + n_rows]
            shape = (len(images), n_channels, height + 2 * pad[0], width + 2 * pad[1])
            padded = self.scratch("padded", shape, x.dtype)
            padded[...] = 0
            np.copyto(padded[:, :, pad[0] : pad[0] + height, pad[1] : pad[1] + width], images)
            windows = sliding_window_view(channels_last(padded), (kh, kw), axis=(1, 2))
            windows = windows[:, :: stride[0], :: stride[1]].transpose(0, 1, 2, 4, 5, 3)
            columns = self.scratch("columns", windows.shape, x.dtype)
            np.copyto(columns, windows)
            yield columns.reshape(len(images) * oh * ow, -1), y[start : start + n_rows]

    def _product(self, columns: Array, weights: Array, out: Array) -> None:
        """``out`` (n, F, OH, OW) = columns weights."""
        target = channels_last(out)
        if target.flags.c_contiguous:
            np.matmul(columns, weights, out=target.reshape(-1, out.shape[1]))
            return
        rows = self.scratch("rows", (len(columns), out.shape[1]), out.dtype)
        np.matmul(columns, weights, out=rows)
        np.copyto(target, rows.reshape(target.shape))

    def _rows(self, images: Array) -> Array:
        """Return images (n, C, H, W) as (n H W, C), a view where possible."""
        pixels = channels_last(images)
        if not pixels.flags.c_contiguous:
            copied = self.scratch("rows", images.shape, images.dtype)
            np.copyto(copied, images)
            pixels = channels_last(copied)
        return pixels.reshape(-1, images.shape[1])

    # -- pooling -----------------------------------------------------------------------------------------

    def max_pool_memory(self, shape: Sequence[int], kernel: Pair) -> Array:
        """Return memory for ``where`` of `max_pool`, of the shape (N, C, OH, OW) of its output."""
        return self.features(shape, np.uint8 if kernel[0] * kernel[1] <= BYTE_PLACES else np.int32)

    def max_pool(self, x: Array, out: Array, where: Array | None, kernel: Pair, stride: Pair, pad: Pair) -> None:
        """``out[n, c, i, j]`` = largest value of x in the window that starts at (i, j) stride - pad.

        Parameters
        ----------
        x : (N, C, H, W)
            What lies outside of it never wins; ``pad`` is less than ``kernel``.
        out : (N, C, OH, OW)
        where : (N, C, OH, OW) from `max_pool_memory`, or None
            Place of that value in its window, rows first; of equal ones the first.
        """
        for source, y, places in self.pieces(x, out, where):
            y[...] = -np.inf
            if places is not None:
                places[...] = 0
            for place, windows, pixels in _places(x, out, kernel, stride, pad):
                value, best = source[pixels], y[windows]
                if places is not None:
                    # places come in order, so that of the latest larger value is the largest number
                    more = self.scratch("more", best.shape, places.dtype)
                    np.greater(value, best, out=more)
                    np.multiply(more, places.dtype.type(place), out=more)
                    np.maximum(places[windows], more, out=places[windows])
                np.maximum(best, value, out=best)

    def max_pool_grad(self, gy: Array, where: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair) -> None:
        """``out`` (N, C, H, W) = sum of ``gy`` (N, C, OH, OW) over the windows whose largest value was there."""
        for gx, g, places in self.pieces(out, gy, where):
            gx[...] = 0
            for place, windows, pixels in _places(out, gy, kernel, stride, pad):
                won = self.scratch("won", g[windows].shape, bool)
                part = self.scratch("part", won.shape, g.dtype)
                np.equal(places[windows], place, out=won)
                np.multiply(g[windows], won, out=part)
                np.add(gx[pixels], part, out=gx[pixels])

    def max_pool_grad_ties(
        self, x: Array, y: Array, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair
    ) -> None:
        """``out`` (N, C, H, W) = sum of ``gy`` over the windows whose largest value, ``y``, is that of x there."""
        for gx, source, g, largest in self.pieces(out, x, gy, y):
            gx[...] = 0
            for _, windows, pixels in _places(out, gy, kernel, stride, pad):
                won = self.scratch("won", g[windows].shape, bool)
                part = self.scratch("part", won.shape, g.dtype)
                np.equal(source[pixels], largest[windows], out=won)
                np.multiply(g[windows], won, out=part)
                np.add(gx[pixels], part, out=gx[pixels])

    def avg_pool(self, x: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> None:
        """``out[n, c, i, j]`` = sum of the window of x that starts at (i, j) stride - pad, over a number of values.

        That number is kh kw where ``count_pad``, else that of the pixels of the image in the window.
        """
        share = _shares(x, out, kernel, stride, pad, count_pad)
        for source, y in self.pieces(x, out):
            y[...] = 0
            for _, windows, pixels in _places(x, out, kernel, stride, pad):
                np.add(y[windows], source[pixels], out=y[windows])
            np.multiply(y, share, out=y)

    def avg_pool_grad(self, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> None:
        """``out`` (N, C, H, W) = gradient of `avg_pool`, from ``gy`` (N, C, OH, OW)."""
        share = _shares(out, gy, kernel, stride, pad, count_pad)
        for gx, g in self.pieces(out, gy):
            gx[...] = 0
            part = self.scratch("part", g.shape, g.dtype)
            np.multiply(g, share, out=part)
            for _, windows, pixels in _places(out, gy, kernel, stride, pad):
                np.add(gx[pixels], part[windows], out=gx[pixels])

    # -- normalisation over channels -------------------------------------------------------------------

    def lrn_memory(self, shape: Sequence[int], dtype: Any, size: int, alpha: float, beta: float, knorm: float) -> Any:
        """Return ``work`` of `lrn`, for what it leaves to `lrn_grad`; ``shape`` is that of the images."""
        return self.features(shape, dtype)

    def lrn(self, x: Array, out: Array, work: Any, size: int, alpha: float, beta: float, knorm: float) -> None:
        """``out = x / S^beta``, ``S = knorm + alpha / size`` times the sum of ``x^2`` over ``size`` channels around.

        Parameters
        ----------
        x, out : (N, C, H, W)
        work : from `lrn_memory`, or None where no gradient follows
        size : int
            Odd; of the channels c - size // 2 to c + size // 2 those that are there count.
        """
        for source, y, sums in self.pieces(x, out, work):
            sums = self.scratch("sums", y.shape, y.dtype) if sums is None else sums
            np.multiply(source, source, out=y)
            _add_neighbours(y, size, out=sums)
            np.multiply(sums, alpha / size, out=sums)
            np.add(sums, knorm, out=sums)
            np.power(sums, -beta, out=y)
            np.multiply(y, source, out=y)

    def lrn_grad(
        self, x: Array, gy: Array, out: Array, work: Any, size: int, alpha: float, beta: float, knorm: float
    ) -> None:
        """``out = gy S^-beta - 2 beta alpha / size x T``, T the sum of ``gy x S^(-beta - 1)`` over these channels."""
        for source, g, gx, sums in self.pieces(x, gy, out, work):
            scaled, inner = (self.scratch(name, g.shape, g.dtype) for name in ("scaled", "inner"))
            np.power(sums, -beta, out=scaled)
            np.multiply(scaled, g, out=scaled)
            np.multiply(scaled, source, out=inner)
            np.divide(inner, sums, out=inner)
            _add_neighbours(inner, size, out=gx)
            np.multiply(gx, source, out=gx)
            np.multiply(gx, -2 * beta * alpha / size, out=gx)
            np.add(gx, scaled, out=gx)

    # -- normalisation over the batch ------------------------------------------------------------------

    def batch_norm(
        self, x: Array, scale: Array, shift: Array, mean: Array, var: Array, out: Array, eps: float, training: bool
    ) -> None:
        """``out = scale (x - mean) / sqrt(var + eps) + shift``, channel by channel.

        Parameters
        ----------
        x, out : (N, C, H, W) or (N, C)
        scale, shift : (C,)
        mean, var : (C,)
            In training those of x are written here, over all rows and places; the variance divides by their number.
        """
        if training:
            np.copyto(mean, _sum_of_channels(x) * (mean.size / x.size), casting="same_kind")
            total = np.zeros(mean.shape)
            for source, y in self.pieces(x, out):
                np.subtract(source, _wide(mean, x), out=y)
                np.multiply(y, y, out=y)
                total += _sum_of_channels(y)
            np.copyto(var, total * (var.size / x.size), casting="same_kind")
        factor = scale / np.sqrt(var + eps)
        for source, y in self.pieces(x, out):
            np.subtract(source, _wide(mean, x), out=y)
            np.multiply(y, _wide(factor, x), out=y)
            np.add(y, _wide(shift, x), out=y)

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
    ) -> None:
        """Gradients of `batch_norm` in training; with u = (x - mean) / sqrt(var + eps) and M values in a channel.

        ``grad_shift = sum gy``, ``grad_scale = sum gy u`` and, unless it is None,
        ``out = scale / sqrt(var + eps) (gy - grad_shift / M - u grad_scale / M)``. Shapes are those of `batch_norm`.
        """
        width = 1 / np.sqrt(var + eps)
        total = np.zeros(var.shape)
        for source, g in self.pieces(x, gy):
            product = self._normal(source, mean, width)
            np.multiply(product, g, out=product)
            total += _sum_of_channels(product)
        np.copyto(grad_scale, total, casting="same_kind")
        np.copyto(grad_shift, _sum_of_channels(gy), casting="same_kind")
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


def _places(
    x: Array, y: Array, kernel: Pair, stride: Pair, pad: Pair
) -> Iterator[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
    """Yield each place of a window: its number, the windows of y that have it in the image, and these pixels of x."""
    for place, at in enumerate(np.ndindex(*kernel)):
        cuts = [_cut(*of) for of in zip(x.shape[2:], y.shape[2:], at, stride, pad, strict=True)]
        yield place, (..., *(windows for windows, _ in cuts)), (..., *(pixels for _, pixels in cuts))


def _cut(n_pixels: int, n_windows: int, place: int, step: int, pad: int) -> tuple[slice, slice]:
    """Return, for one axis, the windows whose ``place`` is a pixel of the image, and these pixels."""
    first = max(0, -((place - pad) // step))
    stop = max(first, min(n_windows, (n_pixels - 1 + pad - place) // step + 1))
    start = first * step + place - pad
    return slice(first, stop), slice(start, start + (stop - first) * step, step)


def _shares(x: Array, y: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> Array:
    """Return one over the number that divides the sum of each window, broadcast against y."""
    if count_pad:
        return 1 / (kernel[0] * kernel[1])
    counts = np.zeros(y.shape[2:], y.dtype)
    for _, windows, _ in _places(x, y, kernel, stride, pad):
        counts[windows] += 1
    return 1 / counts


def _add_neighbours(x: Array, size: int, out: Array) -> None:
    """``out[:, c]`` = sum of ``x[:, c - size // 2 : c + size // 2 + 1]``, as far as it goes."""
    np.copyto(out, x)
    for k in range(1, min(size // 2, x.shape[1] - 1) + 1):
        np.add(out[:, k:], x[:, :-k], out=out[:, k:])
        np.add(out[:, :-k], x[:, k:], out=out[:, :-k])


def _sum_of_channels(x: Array) -> Array:
    """Return the sum over all axes but the second, (C,) float64."""
    return np.add.reduce(x, axis=(0, 2, 3) if x.ndim == 4 else 0, dtype=np.float64)


def _wide(values: Array, x: Array) -> Array:
    """Return values (C,) to be broadcast against x."""
    return values[:, None, None] if x.ndim == 4 else values
