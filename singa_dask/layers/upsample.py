"""Upsample: enlarge images by an integer factor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Size, choice
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.traits import Connection, Speed
from singa_dask.layers.window import PAD, as_images, image_shape
from singa_dask.ops.contract import Array, ConvWindow


class UpsampleConf(Conf):
    """``upsample_conf``."""

    factor: Size = 2
    """Factor by which height and width are multiplied."""
    mode: Annotated[Literal["NEAREST", "BILINEAR"], choice()] = "NEAREST"
    """Whether to repeat each pixel, or to interpolate linearly between the centres of pixels. Beyond the outermost
    centres, interpolated values are constant."""


@LAYERS.register()
class Upsample(Layer):
    """Enlarge images x (N, C, H, W) by ``factor``: y (N, C, factor H, factor W).

    With ``mode: NEAREST`` each pixel is repeated. With ``mode: BILINEAR`` pixel i of y is x at the position (i + 1/2) /
    factor - 1/2, interpolated linearly between the two nearest pixels, on both axes.
    """

    options_class = UpsampleConf
    speed = Speed(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        options = self.options
        self.window = (options.factor, options.factor)
        self.takes_lines = options.mode == "BILINEAR" and options.factor > 1
        n_rows, n_channels, height, width = image_shape(self)
        self.add_output((n_rows, n_channels, height * options.factor, width * options.factor), overwritable=True)
        if self.takes_lines:
            # bilinear scaling is a transposed convolution of images with repeated edges
            size = 2 * options.factor - options.factor % 2
            pad = (options.factor + size) // 2
            self.scaled = ConvWindow(self.window, (pad, pad), groups=n_channels)
            line = 1 - np.abs(np.arange(size) - (size - 1) / 2) / options.factor
            self.weights = self.buffer("weights", (n_channels, 1, size, size), make=partial(self._kernels, line))
            self.edged = self.buffer("edged", (n_rows, n_channels, height + 2, width + 2), self.context.dtype)

    def _kernels(self, line: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        memory = self.ops.empty(shape, dtype)
        self.ops.copy(np.broadcast_to(np.outer(line, line), shape).astype(dtype), out=memory)
        return memory

    def _phases(self, y: Array) -> Iterator[Array]:
        """Yield factor^2 views of y. Each view has one of the copies of every pixel of x."""
        for i, j in np.ndindex(*self.window):
            yield y[:, :, i :: self.window[0], j :: self.window[1]]

    def forward(self, phase: Phase) -> None:
        x, y = as_images(self.sources[0].data), self.features[0].data
        if not self.takes_lines:
            for pixels in self._phases(y):
                self.ops.copy(x, out=pixels)
            return
        edged = self.edged.data
        self.ops.copy(x, out=edged[:, :, 1:-1, 1:-1])
        for edge, inside in EDGES:
            self.ops.copy(edged[inside], out=edged[edge])
        self.ops.conv2d_grad_input(edged, self.weights.data, out=y, window=self.scaled)

    def backward(self, phase: Phase) -> None:
        source = self.sources[0]
        if source.grad is None:
            return
        gy, gx = self.features[0].output_grad, as_images(source.grad)
        if not self.takes_lines:
            self.ops.avg_pool(gy, out=gx, kernel=self.window, stride=self.window, pad=PAD, count_pad=True)
            self.ops.multiply(gx, float(self.window[0] * self.window[1]), out=gx)
            return
        edged = self.edged.data
        self.ops.conv2d(gy, self.weights.data, None, out=edged, window=self.scaled)
        for edge, inside in reversed(EDGES):
            self.ops.add(edged[inside], edged[edge], out=edged[inside])
        self.ops.copy(edged[:, :, 1:-1, 1:-1], out=gx)


_ALL, _INSIDE = slice(None), slice(1, -1)
EDGES = [
    ((_ALL, _ALL, slice(1), _INSIDE), (_ALL, _ALL, slice(1, 2), _INSIDE)),
    ((_ALL, _ALL, slice(-1, None), _INSIDE), (_ALL, _ALL, slice(-2, -1), _INSIDE)),
    # add the columns last, because they include the corners
    ((_ALL, _ALL, _ALL, slice(1)), (_ALL, _ALL, _ALL, slice(1, 2))),
    ((_ALL, _ALL, _ALL, slice(-1, None)), (_ALL, _ALL, _ALL, slice(-2, -1))),
]
"""The edges of images that were padded by one pixel, and the neighbouring pixels that they repeat."""
