"""SiLU: the sigmoid linear unit."""

from __future__ import annotations

from singa_dask.conf import Phase
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.traits import Connection, Traits

__all__ = ["SiLU"]


@LAYERS.register()
class SiLU(Layer):
    """y = x sigmoid(x), value by value; Hendrycks and Gimpel (2016), also known as swish."""

    traits = Traits(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        self.add_output(self.sources[0].shape, overwritable=True)

    def forward(self, phase: Phase) -> None:
        self.ops.silu(self.sources[0].data, out=self.features[0].data)

    def backward(self, phase: Phase) -> None:
        source, gy = self.sources[0], self.features[0].output_grad
        if source.grad is not None:
            self.ops.silu_grad(source.data, gy, out=source.grad)
