"""AdaGrad: steps divided by the root of the sum of squared gradients."""

from __future__ import annotations

from collections.abc import Mapping

from singa_dask.ops.contract import Array, Preparation
from singa_dask.training.updaters.updater import UPDATERS, KernelUpdater

__all__ = ["AdaGrad"]


@UPDATERS.register()
class AdaGrad(KernelUpdater):
    """h += g^2, w -= lr g / sqrt(h + delta). SINGA always takes 1e-8 for ``delta``."""

    reads = ("delta",)
    state_names = ("square",)

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        self.ops.adagrad(w, g, state["square"], lr, self.conf.delta, prep)
