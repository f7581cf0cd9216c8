"""Add: the sum of several sources, as at the end of a residual block."""

from __future__ import annotations

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.traits import Connection, Traits

__all__ = ["Add"]


@LAYERS.register()
class Add(Layer):
    """y = x1 + x2 + ..., of two or more sources of one shape. The gradient of each source is that of y.

    The shortcut connection of He et al. (2016), "Deep residual learning for image recognition".
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
        self.ops.add(first.data, second.data, out=y)
        for source in others:
            self.ops.add(y, source.data, out=y)

    def backward(self, phase: Phase) -> None:
        gy = self.features[0].output_grad
        for source in self.sources:
            if source.grad is not None:
                self.ops.copy(gy, out=source.grad)
