"""GELU: the Gaussian error linear unit."""

from __future__ import annotations

from typing import Literal

from singa_dask.conf import Phase
from singa_dask.conf.model import Conf
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.traits import Connection, Traits

__all__ = ["GELU", "GELUConf"]


class GELUConf(Conf):
    """``gelu_conf``."""

    approximate: Literal["none", "tanh"] = "none"
    """Compute the error function exactly, or by a tanh."""


@LAYERS.register()
class GELU(Layer):
    """y = x (1 + erf(x / sqrt(2))) / 2, or with ``approximate: tanh`` its approximation, value by value.

    The approximation is x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. After Hendrycks and Gimpel (2016).
    """

    block = GELUConf
    traits = Traits(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        self.approximate = self.conf.block(GELUConf).approximate == "tanh"
        self.add_output(self.sources[0].shape, overwritable=True)

    def forward(self, phase: Phase) -> None:
        self.ops.gelu(self.sources[0].data, out=self.features[0].data, approximate=self.approximate)

    def backward(self, phase: Phase) -> None:
        source, gy = self.sources[0], self.features[0].output_grad
        if source.grad is not None:
            self.ops.gelu_grad(source.data, gy, out=source.grad, approximate=self.approximate)
