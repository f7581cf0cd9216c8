"""LeakyReLU: a rectifier with a slope below zero."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from singa_dask.conf.model import Conf, Field
from singa_dask.layers.base import LAYERS
from singa_dask.layers.neuron import Activation

__all__ = ["LeakyReLU", "LeakyReLUConf"]


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
        return partial(self.ops.relu, negative_slope=slope), partial(self.ops.relu_grad, negative_slope=slope)
