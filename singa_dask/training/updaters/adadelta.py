"""AdaDelta: steps in the units of the values."""

from __future__ import annotations

from collections.abc import Mapping

from singa_dask.conf.model import Conf
from singa_dask.conf.updater import DecayRate
from singa_dask.ops.contract import Array, Preparation
from singa_dask.training.updaters.updater import UPDATERS, KernelUpdater

__all__ = ["AdaDelta", "AdaDeltaConf"]


class AdaDeltaConf(Conf):
    """``adadelta_conf``."""

    rho: DecayRate = 0.9
    """Decay rate of the means of squared gradients and squared steps."""


@UPDATERS.register()
class AdaDelta(KernelUpdater):
    """h = rho h + (1 - rho) g^2, d = g sqrt(u + delta) / sqrt(h + delta), u = rho u + (1 - rho) d^2, w -= lr d."""

    block = AdaDeltaConf
    reads = ("delta",)
    state_names = ("square", "step_square")

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        rho, delta = self.conf.block(AdaDeltaConf).rho, self.conf.delta
        self.ops.adadelta(w, g, state["square"], state["step_square"], lr, rho, delta, prep)
