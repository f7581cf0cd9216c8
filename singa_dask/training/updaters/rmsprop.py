"""RMSProp: steps divided by the root of a decaying mean of squared gradients."""

from __future__ import annotations

from collections.abc import Mapping

from singa_dask.conf.model import Conf
from singa_dask.conf.updater import DecayRate
from singa_dask.ops.contract import Array, Preparation
from singa_dask.training.updaters.updater import UPDATERS, KernelUpdater

__all__ = ["RMSProp", "RMSPropConf"]


class RMSPropConf(Conf):
    """``rmsprop_conf``."""

    rho: DecayRate
    """Decay rate of the mean of squared gradients."""


@UPDATERS.register()
class RMSProp(KernelUpdater):
    """h = rho h + (1 - rho) g^2, w -= lr g / sqrt(h + delta)."""

    block = RMSPropConf
    reads = ("delta",)
    state_names = ("square",)

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        self.ops.rmsprop(w, g, state["square"], lr, self.conf.block(RMSPropConf).rho, self.conf.delta, prep)
