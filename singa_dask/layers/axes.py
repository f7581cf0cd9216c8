"""Layers that rearrange the axes of values: Reshape, Transpose, Stack and Unstack."""

from __future__ import annotations

import numpy as np

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Many, Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer, check_axes
from singa_dask.layers.time_steps import check_all_steps, time_steps
from singa_dask.layers.traits import Speed
from singa_dask.ops.contract import Array


class ReshapeConf(Conf):
    """``reshape_conf``."""

    shape: Many[int]
    """Lengths of the axes of a record. One length may be -1; this length is then computed from the other lengths."""


@LAYERS.register()
class Reshape(Layer):
    """Reshape each record of x to ``shape``: y (N, ``shape``).

    The values keep their order. Values of images are in the order C, H, W.
    """

    options_class = ReshapeConf
    speed = Speed(time_foldable=True, capturable=True, reads_gradients=True)

    def setup(self) -> None:
        shape, source = [*self.options.shape], self.sources[0]
        known = int(np.prod([n for n in shape if n != -1], dtype=np.int64))
        if any(n < 1 and n != -1 for n in shape) or not 1 <= len(shape) <= 3 or shape.count(-1) > 1:
            message = f"expected one to three lengths, of which one may be -1, got {shape}."
            raise ConfigError(Problem(("reshape_conf", "shape"), message))
        if source.size % known or (known != source.size and -1 not in shape):
            message = f"expected {source.size} values, as records of {source.shape[1:]} have, got {shape}."
            raise ConfigError(Problem(("reshape_conf", "shape"), message))
        self.add_output((source.shape[0], *(source.size // known if n == -1 else n for n in shape)))

    def forward(self, phase: Phase) -> None:
        y = self.features[0].data
        self.ops.copy(self.rows().reshape(y.shape), out=y)

    def backward(self, phase: Phase) -> None:
        if self.sources[0].grad is not None:
            with self.grad_rows() as gx:
                gy = self.features[0].output_grad
                self.ops.copy(gy, out=gx.reshape(gy.shape))


class Moved(Layer):
    """Base of layers whose output has the values of the source with rearranged axes."""

    speed = Speed(time_foldable=True, capturable=True, reads_gradients=True)

    def view(self, x: Array) -> Array:
        """Return a view of an array in the shape of the source, with its axes arranged as in the output."""
        raise NotImplementedError

    def forward(self, phase: Phase) -> None:
        x = self.view(self.sources[0].data)
        self.ops.copy(x, out=self.features[0].data.reshape(x.shape))

    def backward(self, phase: Phase) -> None:
        if self.sources[0].grad is not None:
            gx = self.view(self.sources[0].grad)
            self.ops.copy(self.features[0].output_grad.reshape(gx.shape), out=gx)


class TransposeConf(Conf):
    """``transpose_conf``."""

    axes: Many[Size]
    """The two axes to exchange. Axis 0, the batch, cannot be exchanged."""


@LAYERS.register()
class Transpose(Moved):
    """Exchange the two ``axes`` of x."""

    options_class = TransposeConf
    speed = Moved.speed

    def setup(self) -> None:
        axes, shape = self.options.axes, self.sources[0].shape
        if len(axes) != 2 or max(axes) >= len(shape):
            message = f"expected two axes of {shape}, from 1 on, got {[*axes]}."
            raise ConfigError(Problem(("transpose_conf", "axes"), message))
        self.axes = (axes[0], axes[1])
        self.add_output(self.view(np.empty(shape, bool)).shape)

    def view(self, x: Array) -> Array:
        return x.swapaxes(*self.axes)


class StackConf(Conf):
    """``stack_conf``."""

    images: bool = False
    """Whether to output images (N, D, 1, T) with D channels, for a Convolution or Pooling over time with ``kernel_y:
    1``."""


@LAYERS.register()
class Stack(Moved):
    """Join the T time steps of each sequence to one record: x (T N, D) becomes y (N, T, D).

    Set ``unroll_len: 1`` for this layer.
    """

    options_class = StackConf
    traits = Moved.traits.replace(steps="all")
    speed = Moved.speed

    def setup(self) -> None:
        self.n_steps, self.images = time_steps(self), self.options.images
        self.add_output(self.view(np.empty(self.sources[0].shape, bool)).shape)

    def view(self, x: Array) -> Array:
        steps = x.reshape(self.n_steps, -1, x.shape[1])
        return steps.transpose(1, 2, 0)[:, :, None] if self.images else steps.swapaxes(0, 1)


@LAYERS.register()
class Unstack(Moved):
    """Divide each record into T time steps: x (N, T, D), or images (N, D, 1, T), becomes y (T N, D).

    Set ``unroll_len: T`` for this layer.
    """

    traits = Moved.traits.replace(steps="all")
    speed = Moved.speed

    def setup(self) -> None:
        x = self.sources[0]
        check_axes(self, "sequences (time steps, features)", 3, 4)
        check_all_steps(self)
        if len(x.shape) == 4 and x.shape[2] != 1:
            message = f"{self.conf.srclayers[0]!r} gives images of height {x.shape[2]}. "
            message += "Expected height 1, as the width is time."
            raise ConfigError(Problem(("srclayers",), message))
        n_steps, n_rows, width = self.view(np.empty(x.shape, bool)).shape
        if self.site.n_steps != n_steps:
            message = f"expected {n_steps}, the time steps of {self.conf.srclayers[0]!r}, got {self.site.n_steps}."
            raise ConfigError(Problem(("unroll_len",), message))
        self.add_output((n_steps * n_rows, width))

    def view(self, x: Array) -> Array:
        return x.swapaxes(0, 1) if x.ndim == 3 else x[:, :, 0].transpose(2, 0, 1)
