"""Activations with kernels of their own: SiLU, GELU and LeakyReLU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from singa_dask.conf import Phase
from singa_dask.conf.model import Conf, Field
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.feature import Connection, Traits
from singa_dask.layers.neuron import Activation, kernels_of


class OfSource(Layer):
    """y = f(x), value by value, with a gradient that is computed from x."""

    traits = Traits(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)

    def setup(self) -> None:
        self.forward_kernel, self.backward_kernel = self.kernels()
        self.add_output(self.sources[0].shape, overwritable=True)

    def kernels(self) -> tuple[Callable[..., None], Callable[..., None]]:
        """Return f, and what computes the gradient of x from x and that of y."""
        raise NotImplementedError

    def forward(self, phase: Phase) -> None:
        self.forward_kernel(self.sources[0].data, out=self.features[0].data)

    def backward(self, phase: Phase) -> None:
        source = self.sources[0]
        if source.grad is not None:
            self.backward_kernel(source.data, self.features[0].output_grad, out=source.grad)


@LAYERS.register()
class SiLU(OfSource):
    """y = x sigmoid(x), value by value; Hendrycks and Gimpel (2016), also known as swish."""

    traits = OfSource.traits

    def kernels(self) -> tuple[Callable[..., None], Callable[..., None]]:
        return kernels_of(self.ops, "silu")


class GELUConf(Conf):
    """``gelu_conf``."""

    approximate: Literal["none", "tanh"] = "none"
    """Compute the error function exactly, or by a tanh."""


@LAYERS.register()
class GELU(OfSource):
    """y = x (1 + erf(x / sqrt(2))) / 2, or with ``approximate: tanh`` its approximation, value by value.

    The approximation is x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. After Hendrycks and Gimpel (2016).
    """

    block = GELUConf
    traits = OfSource.traits

    def kernels(self) -> tuple[Callable[..., None], Callable[..., None]]:
        by_tanh = self.conf.block(GELUConf).approximate == "tanh"
        return kernels_of(self.ops, "gelu", approximate=by_tanh)


class LeakyReLUConf(Conf):
    """``leakyrelu_conf``."""

    negative_slope: float = Field(default=0.01, ge=0, le=1)
    """Slope below zero."""


@LAYERS.register()
class LeakyReLU(Activation):
    """y = x where positive, else ``negative_slope`` x, value by value. After Maas et al. (2013)."""

    block = LeakyReLUConf
    traits = Activation.traits

    def kernels(self) -> tuple[Callable[..., None], Callable[..., None]]:
        slope = self.conf.block(LeakyReLUConf).negative_slope
        return kernels_of(self.ops, "relu", negative_slope=slope)
