"""NumpyImages: crops, convolution and pooling, in NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from singa_dask.arrays import Array
from singa_dask.ops.contract import ConvWindow, Pair
from singa_dask.ops.numpy.elementwise import NumpyElementwise
from singa_dask.ops.numpy.memory import channels_last

# Number of values of unfolded images in one matrix product.
COLUMN_VALUES = 1 << 18
# Number of values of cropped images that are normalised at once.
CROP_VALUES = 1 << 18
# Maximum number of pixels in a window for which the index of a pixel is stored as a byte.
BYTE_PLACES = 256


class NumpyImages(NumpyElementwise):
    """Kernels on images (N, C, H, W) with any strides, fastest if memory has the order N, H, W, C.

    ``C`` and ``F`` are the numbers of channels of input and output images, ``H, W`` and ``OH, OW`` the sizes of these
    images; ``OH = floor((H + 2 pad - dilation (kernel - 1) - 1) / stride) + 1``, and the width likewise. ``out``
    shares memory with no input.
    """

    def crop_mirror_normalize(
        self,
        x: Array,
        top: Array,
        left: Array,
        mirrored: Array,
        mean: Array | float | None,
        std: Array | float | None,
        scale: float,
        out: Array,
    ) -> None:
        """``out = scale (x - mean) / std`` of a crop of each image, converted from the dtype of the records.

        Parameters
        ----------
        x : (N, C, H, W) uint8 or float
            May be a host array.
        top, left : (N,) integers of the host
            Upper left pixel of each crop.
        mirrored : (N,) bool of the host
            Whether a crop is then mirrored left to right.
        mean, std : (C, H, W), a number, or None
            Cropped like the image. If ``mean`` is None, nothing is subtracted; if ``std`` is None, nothing is
            divided.
        scale : float
        out : (N, C, h, w) float
        """
        width, (n_channels, part_height, part_width) = x.shape[3], out.shape[1:]
        # copy the rows of a crop together with the gaps between them, because few long copies are faster
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

    # -- convolution -------------------------------------------------------------------------------------

    def conv2d(self, x: Array, w: Array, b: Array | None, out: Array, window: ConvWindow, relu: bool = False) -> None:
        """``out[n, f, i, j] = b[f] + sum_{c, k, l} w[f, c, k, l] x[n, c, i s + k d - pad, j s + l d - pad]``.

        Here s is the stride and d the dilation of ``window``. Outside of the image x is 0. The kernel is not flipped,
        as usual in neural nets. With ``relu``, negative values of the result become 0. A NaN may become 0, too.

        Parameters
        ----------
        x : (N, C, H, W)
        w : (F, C / groups, kh, kw)
        b : (F,) or None
        out : (N, F, OH, OW)
        """
        if window.groups > 1:
            for xs, ws, bs, ys in parts_of_groups(window.groups, (x, 1), (w, 0), (b, 0), (out, 1)):
                NumpyImages.conv2d(self, xs, ws, bs, ys, window._replace(groups=1), relu)
            return
        weights = self._weights(w).T
        for columns, y in self._columns(x, out, w.shape[2:], window):
            self._product(columns, weights, y)
            if b is not None:
                np.add(y, b[:, None, None], out=y)
            if relu:
                np.maximum(y, 0, out=y)

    def conv2d_grad_input(self, gy: Array, w: Array, out: Array, window: ConvWindow) -> None:
        """``out`` (N, C, H, W) = gradient of `conv2d` with respect to x, from ``gy`` (N, F, OH, OW)."""
        stride, pad, dilation, groups = window
        if groups > 1:
            for gys, ws, gxs in parts_of_groups(groups, (gy, 1), (w, 0), (out, 1)):
                NumpyImages.conv2d_grad_input(self, gys, ws, gxs, window._replace(groups=1))
            return
        kh, kw = w.shape[2:]
        reach = ((kh - 1) * dilation[0], (kw - 1) * dilation[1])
        if stride == (1, 1) and pad[0] <= reach[0] and pad[1] <= reach[1]:
            # a convolution with flipped kernels is faster, because it reads values instead of adding to them
            turned = w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
            around = (reach[0] - pad[0], reach[1] - pad[1])
            NumpyImages.conv2d(self, gy, turned, None, out, window._replace(pad=around))
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
                top, left = i * dilation[0], j * dilation[1]
                part = sums[:, top : top + stride[0] * oh : stride[0], left : left + stride[1] * ow : stride[1]]
                np.add(part, folded[:, :, :, i, j], out=part)
            np.copyto(gx, padded[:, :, pad[0] : pad[0] + height, pad[1] : pad[1] + width])

    def conv2d_grad_weight(
        self, x: Array, gy: Array, out: Array, grad_bias: Array | None, window: ConvWindow, accumulate: bool = False
    ) -> None:
        """``out`` (F, C / groups, kh, kw) and ``grad_bias`` (F,), if any, = gradients of `conv2d` for w and b.

        Both are added to earlier values if ``accumulate``.
        """
        if window.groups > 1:
            for xs, gys, gws, gbs in parts_of_groups(window.groups, (x, 1), (gy, 1), (out, 0), (grad_bias, 0)):
                NumpyImages.conv2d_grad_weight(self, xs, gys, gws, gbs, window._replace(groups=1), accumulate)
            return
        n_filters, n_channels, kh, kw = out.shape
        total = self.scratch("total", (n_filters, kh * kw * n_channels), out.dtype)
        product = self.scratch("product", total.shape, out.dtype)
        total[...] = 0
        for columns, g in self._columns(x, gy, (kh, kw), window):
            np.matmul(self._rows(g).T, columns, out=product)
            np.add(total, product, out=total)
        wanted = total.reshape(n_filters, kh, kw, n_channels).transpose(0, 3, 1, 2)
        np.add(wanted, out if accumulate else 0, out=out)
        if grad_bias is not None:
            np.add(sum_of_channels(gy), grad_bias if accumulate else 0, out=grad_bias, casting="same_kind")

    def _weights(self, w: Array) -> Array:
        """Return weights (F, C, kh, kw) as (F, kh kw C), the order of `_columns`."""
        ordered = self.scratch("weights", (len(w), *w.shape[2:], w.shape[1], 1), w.dtype)[..., 0]
        np.copyto(ordered, channels_last(w))
        return ordered.reshape(len(w), -1)

    def _columns(self, x: Array, y: Array, kernel: Sequence[int], window: ConvWindow) -> Iterator[tuple[Array, Array]]:
        """Yield (values of the windows (n OH OW, kh kw C), rows of y (n, F, OH, OW)) for pieces of the batch."""
        stride, pad, dilation, _ = window
        (n_channels, height, width), (kh, kw), (oh, ow) = x.shape[1:], kernel, y.shape[2:]
        n_rows = max(1, COLUMN_VALUES // (oh * ow * kh * kw * n_channels))
        for start in range(0, len(x), n_rows):
            images = x[start : start + n_rows]
            shape = (len(images), n_channels, height + 2 * pad[0], width + 2 * pad[1])
            padded = self.scratch("padded", shape, x.dtype)
            padded[...] = 0
            np.copyto(padded[:, :, pad[0] : pad[0] + height, pad[1] : pad[1] + width], images)
            reach = ((kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1)
            windows = sliding_window_view(channels_last(padded), reach, axis=(1, 2))
            windows = windows[:, :: stride[0], :: stride[1], :, :: dilation[0], :: dilation[1]]
            windows = windows.transpose(0, 1, 2, 4, 5, 3)
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

    def place_dtype(self, kernel: Pair) -> np.dtype[Any]:
        """Return the dtype of ``where`` of `max_pool`."""
        return np.dtype(np.uint8 if kernel[0] * kernel[1] <= BYTE_PLACES else np.int32)

    def max_pool(self, x: Array, out: Array, where: Array | None, kernel: Pair, stride: Pair, pad: Pair) -> None:
        """``out[n, c, i, j]`` = largest value of x in the window that starts at (i, j) stride - pad.

        Parameters
        ----------
        x : (N, C, H, W)
            Images. Padding is never the largest value. ``pad`` must be less than ``kernel``.
        out : (N, C, OH, OW)
        where : (N, C, OH, OW) of dtype `place_dtype`, or None
            Output: the index of the largest value in its window, counted row by row. If values are equal, the first one
            counts.
        """
        for source, y, places in self.pieces(x, out, where):
            y[...] = -np.inf
            if places is not None:
                places[...] = 0
            for place, windows, pixels in _places(x, out, kernel, stride, pad):
                value, best = source[pixels], y[windows]
                if places is not None:
                    # places ascend, so the last place with a larger value is the maximum of these places
                    more = self.scratch("more", best.shape, places.dtype)
                    np.greater(value, best, out=more)
                    np.multiply(more, places.dtype.type(place), out=more)
                    np.maximum(places[windows], more, out=places[windows])
                np.maximum(best, value, out=best)

    def max_pool_grad(self, gy: Array, where: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair) -> None:
        """``out[n, c, i, j]`` = sum of ``gy`` over the windows whose largest value is at pixel (i, j)."""
        for gx, g, places in self.pieces(out, gy, where):
            gx[...] = 0
            for place, windows, pixels in _places(out, gy, kernel, stride, pad):
                won = self.scratch("won", g[windows].shape, bool)
                np.equal(places[windows], place, out=won)
                self._add_won(gx[pixels], g[windows], won)

    def max_pool_grad_ties(
        self, x: Array, y: Array, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair
    ) -> None:
        """``out[n, c, i, j]`` = sum of ``gy`` over windows with pixel (i, j) whose ``y`` equals x there."""
        for gx, source, g, largest in self.pieces(out, x, gy, y):
            gx[...] = 0
            for _, windows, pixels in _places(out, gy, kernel, stride, pad):
                won = self.scratch("won", g[windows].shape, bool)
                np.equal(source[pixels], largest[windows], out=won)
                self._add_won(gx[pixels], g[windows], won)

    def _add_won(self, gx: Array, g: Array, won: Array) -> None:
        """Add ``g`` to ``gx`` for the windows that ``won`` marks."""
        part = self.scratch("part", g.shape, g.dtype)
        np.multiply(g, won, out=part)
        np.add(gx, part, out=gx)

    def avg_pool(self, x: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> None:
        """``out[n, c, i, j]`` = mean of x over the window that starts at (i, j) stride - pad.

        The sum is divided by kh kw if ``count_pad``, else by the number of pixels of the image in the window.
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

    def avg_pool_relu_grad(
        self, y: Array, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool
    ) -> None:
        """``out`` = gradient of `avg_pool`, and then of a ReLU before it with output ``y`` (N, C, H, W)."""
        self.avg_pool_grad(gy, out=out, kernel=kernel, stride=stride, pad=pad, count_pad=count_pad)
        self.relu_grad(y, out, out=out)

    def global_avg_pool(self, x: Array, out: Array) -> None:
        """``out`` (N, C) = mean of x (N, C, H, W) over its pixels."""
        np.divide(pixel_sums(x), x[0, 0].size, out=out, casting="same_kind")

    def global_avg_pool_grad(self, gy: Array, out: Array) -> None:
        """``out`` (N, C, H, W) = gradient of `global_avg_pool`: ``gy`` (N, C) / (H W) for each pixel."""
        np.multiply(gy[:, :, None, None], 1 / out[0, 0].size, out=out)


def parts_of_groups(groups: int, *arrays: tuple[Array | None, int]) -> Iterator[list[Any]]:
    """Yield views of the parts of arrays for each group of a convolution.

    ``arrays`` are pairs of an array or None, and its axis of channels or filters.
    """
    for group in range(groups):
        parts = []
        for array, axis in arrays:
            size = 0 if array is None else array.shape[axis] // groups
            part = slice(group * size, (group + 1) * size)
            parts.append(None if array is None else array[:, part] if axis else array[part])
        yield parts


def _stretches(images: Array, length: int) -> Array:
    """Return a view of images (..., C, H, W): for each pixel, the next ``length`` values of its channel."""
    return sliding_window_view(images.reshape(*images.shape[:-2], -1), length, axis=-1)


def _places(
    x: Array, y: Array, kernel: Pair, stride: Pair, pad: Pair
) -> Iterator[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
    """Yield (pixel number in a window, windows of y with this pixel inside the image, pixels of x)."""
    for place, at in enumerate(np.ndindex(*kernel)):
        cuts = [_cut(*of) for of in zip(x.shape[2:], y.shape[2:], at, stride, pad, strict=True)]
        yield place, (..., *(windows for windows, _ in cuts)), (..., *(pixels for _, pixels in cuts))


def _cut(n_pixels: int, n_windows: int, place: int, step: int, pad: int) -> tuple[slice, slice]:
    """Return, for one axis, the windows whose pixel ``place`` is inside the image, and these pixels."""
    first = max(0, -((place - pad) // step))
    stop = max(first, min(n_windows, (n_pixels - 1 + pad - place) // step + 1))
    start = first * step + place - pad
    return slice(first, stop), slice(start, start + (stop - first) * step, step)


def _shares(x: Array, y: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> Array | float:
    """Return the factor that turns the sum of each window into the mean; it broadcasts against y."""
    if count_pad:
        return 1 / (kernel[0] * kernel[1])
    counts = np.zeros(y.shape[2:], y.dtype)
    for _, windows, _ in _places(x, y, kernel, stride, pad):
        counts[windows] += 1
    return 1 / counts


def sum_of_channels(x: Array) -> Array:
    """Return the sum over all axes but the second, (C,) float64."""
    total: Array = np.add.reduce(x, axis=(0, 2, 3) if x.ndim == 4 else 0, dtype=np.float64)
    return total


def pixel_sums(x: Array) -> Array:
    """Return the sum over the pixels of each channel of each image, (N, C) float64."""
    pixels = channels_last(x)
    if not pixels.flags.c_contiguous:
        total: Array = np.add.reduce(x, axis=(2, 3), dtype=np.float64)
        return total
    # a product with a row of ones is several times faster than a sum
    rows = pixels.reshape(len(x), -1, x.shape[1])
    product: Array = np.matmul(np.ones((1, rows.shape[1]), x.dtype), rows)
    return product[:, 0].astype(np.float64)
