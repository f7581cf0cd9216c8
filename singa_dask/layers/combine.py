"""Add and Multiply: elementwise sums and products of several sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
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
        """Combine two or more arrays with ``kernel``, and write the result to ``out``.

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

    # the layer writes to its output's gradient only if a fused ReLU is the output, and its gradient is not shared
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

    The gradient of a source is the gradient of y times all other sources.
    """

    speed = Combined.speed

    def forward(self, phase: Phase) -> None:
        self.combine(self.ops.multiply, [source.data for source in self.sources], self.features[0].data)

    def backward(self, phase: Phase) -> None:
        for source in self.sources:
            if source.grad is not None:
                others = [other.data for other in self.sources if other is not source]
                self.combine(self.ops.multiply, [self.features[0].output_grad, *others], source.grad)
