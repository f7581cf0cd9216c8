"""SGD: gradient descent with momentum; Nesterov: with Nesterov momentum."""

from __future__ import annotations

from collections.abc import Mapping

from singa_dask.conf import UpdaterConf
from singa_dask.ops.contract import Array, Preparation
from singa_dask.training.updaters.updater import UPDATERS, KernelUpdater

__all__ = ["SGD", "Nesterov"]


@UPDATERS.register()
class SGD(KernelUpdater):
    """v = mu v - lr g, w += v; without ``momentum`` mu, w -= lr g."""

    reads = ("momentum",)

    def __init__(self, conf: UpdaterConf) -> None:
        super().__init__(conf)
        self.state_names = ("momentum",) if conf.momentum > 0 else ()

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        self.ops.sgd(w, g, state.get("momentum"), lr, self.conf.momentum, prep)


@UPDATERS.register()
class Nesterov(KernelUpdater):
    """v' = mu v + lr g, w -= (1 + mu) v' - mu v."""

    reads = ("momentum",)
    state_names = ("momentum",)

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        self.ops.nesterov(w, g, state["momentum"], lr, self.conf.momentum, prep)
