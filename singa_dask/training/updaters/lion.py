"""Lion: steps of one size, in the direction of the sign of a decaying mean of gradients."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from singa_dask.conf.model import Conf
from singa_dask.conf.updater import DecayRate
from singa_dask.ops.contract import Array
from singa_dask.training.updaters.updater import UPDATERS, Updater

__all__ = ["Lion", "LionConf"]


class LionConf(Conf):
    """``lion_conf``."""

    beta1: DecayRate = 0.9
    """Weight of the mean of gradients in the direction of a step; the new gradient has the rest."""
    beta2: DecayRate = 0.99
    """Decay rate of the mean of gradients."""


@UPDATERS.register()
class Lion(Updater):
    """w -= lr sign(b1 m + (1 - b1) g), then m = b2 m + (1 - b2) g, with decoupled weight decay.

    Chen et al. (2023), Symbolic discovery of optimization algorithms. Weight decay is as in AdamW: w *= 1 - lr
    weight_decay before the step. The paper takes a learning rate 3 to 10 times smaller than Adam's.
    """

    block = LionConf
    decoupled_decay = True
    state_names = ("mean",)

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        conf, mean = self.conf.block(LionConf), state["mean"]
        np.multiply(mean, conf.beta1, out=tmp)
        np.multiply(g, 1 - conf.beta1, out=tmp2)
        np.add(tmp, tmp2, out=tmp)
        np.sign(tmp, out=tmp)
        np.multiply(tmp, lr, out=tmp)
        np.subtract(w, tmp, out=w)
        np.multiply(mean, conf.beta2, out=mean)
        np.multiply(g, 1 - conf.beta2, out=tmp2)
        np.add(mean, tmp2, out=mean)
