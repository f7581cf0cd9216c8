"""Multiply: the product of several sources, as of values and their gate."""

from __future__ import annotations

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.traits import Connection, Traits

__all__ = ["Multiply"]


@LAYERS.register()
class Multiply(Layer):
    """y = x1 x2 ..., value by value, of two or more sources of one shape.

    The gradient of a source is that of y times the product of the other sources.
    """

    traits = Traits(n_sources=(2, None), time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        shapes = [source.shape for source in self.sources]
        if len(set(shapes)) > 1:
            message = f"expected sources of one shape, got {', '.join(map(str, shapes))}."
            raise ConfigError(Problem(("srclayers",), message))
        self.add_output(shapes[0], overwritable=True)

    def forward(self, phase: Phase) -> None:
        y, (first, second, *others) = self.features[0].data, self.sources
        self.ops.multiply(first.data, second.data, out=y)
        for source in others:
            self.ops.multiply(y, source.data, out=y)

    def backward(self, phase: Phase) -> None:
        gy = self.features[0].output_grad
        for source in self.sources:
            if source.grad is not None:
                first, *others = (other for other in self.sources if other is not source)
                self.ops.multiply(gy, first.data, out=source.grad)
                for other in others:
                    self.ops.multiply(source.grad, other.data, out=source.grad)
