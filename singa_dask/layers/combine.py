"""Add and Multiply: elementwise sums and products of several sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.feature import Feature
from singa_dask.layers.traits import Connection, Speed, Traits
from singa_dask.ops.contract import Array

Kernel: TypeAlias = Callable[[Array, Array, Array], None]


class Combined(Layer):
    """Base of layers that combine sources of equal shape, two at a time, with an elementwise kernel."""

    traits = Traits(n_sources=(2, None))
    speed = Speed(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        shapes = [source.shape for source in self.sources]
        if len(set(shapes)) > 1:
            message = f"expected sources of one shape, got {', '.join(map(str, shapes))}."
            raise ConfigError(Problem(("srclayers",), message))
        self.add_output(shapes[0], overwritable=True)

    def combine(self, kernel: Kernel, values: Sequence[Array], out: Array, last: Kernel | None = None) -> None:
        """Combine two or more arrays with ``kernel``; write the result to ``out``.

        ``last``, if passed, replaces ``kernel`` for the last array.
        """
        total, *others, end = values
        for value in others:
            kernel(total, value, out)
            total = out
        (last or kernel)(total, end, out)


@LAYERS.register()
class Add(Combined):
    """y = x1 + x2 + ..., for two or more sources of equal shape.

    The gradient of each source is the gradient of y. This is the shortcut connection of He et al. (2016), "Deep
    residual learning for image recognition".
    """

    # the layer writes to the gradient of its output only with a fused ReLU, and then no other feature shares the
    # array
    speed = Combined.speed.replace(reads_gradients=True, fuses=("relu", "pass_grad"))

    def forward(self, phase: Phase) -> None:
        last = self.ops.add_relu if self.fused.relu else None
        self.combine(self.ops.add, [source.data for source in self.sources], self.features[0].data, last)

    def backward(self, phase: Phase) -> None:
        grad = self.features[0].output_grad
        if self.fused.masks_output:
            self.ops.relu_grad(self.features[0].data, grad, out=grad)
        for source in self.sources:
            if source.grad is not None and source.grad is not grad:
                self.ops.copy(grad, out=source.grad)


@LAYERS.register()
class Multiply(Combined):
    """y = x1 x2 ..., elementwise, for two or more sources of equal shape.

    If a source has images (N, C, H, W), other sources may be gates of channels, (N, C) or (N, C, 1, 1). A gate
    multiplies all pixels of each channel. The gradient of a source is the gradient of y times all other sources. For a
    gate, these products are summed over the pixels.

    Notes
    -----
    Gates follow Hu et al. (2018), "Squeeze-and-excitation networks".
    """

    speed = Combined.speed

    def setup(self) -> None:
        shapes = [source.shape for source in self.sources]
        shape = max(shapes, key=lambda each: (math.prod(each), len(each)))
        gates = (shape[:2], (*shape[:2], 1, 1)) if len(shape) == 4 else ()
        if any(each != shape and each not in gates for each in shapes):
            message = f"expected sources of one shape, or images (N, C, H, W) and gates (N, C), got {shapes}."
            raise ConfigError(Problem(("srclayers",), message))
        self.add_output(shape, overwritable=True)

    def factor(self, source: Feature) -> Array:
        """Return the data of a source as an array that is broadcast to the output."""
        return source.data[:, :, None, None] if len(source.shape) < len(self.features[0].shape) else source.data

    def forward(self, phase: Phase) -> None:
        y = self.features[0]
        sources = sorted(self.sources, key=lambda source: source.shape != y.shape)
        self.combine(self.ops.multiply, [self.factor(source) for source in sources], y.data)

    def backward(self, phase: Phase) -> None:
        ops, gy = self.ops, self.features[0].output_grad
        for source in self.sources:
            if source.grad is None:
                continue
            factors = [gy, *(self.factor(other) for other in self.sources if other is not source)]
            if source.shape == gy.shape:
                self.combine(ops.multiply, factors, source.grad)
                continue
            products, sums = ops.scratch("products", gy.shape, gy.dtype), source.grad
            self.combine(ops.multiply, factors, products)
            sums = sums[:, :, 0, 0] if sums.ndim == 4 else sums
            ops.global_avg_pool(products, out=sums)
            ops.multiply(sums, float(math.prod(gy.shape[2:])), out=sums)
