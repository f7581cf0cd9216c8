"""Adam, AdamW and AdamMax: steps by decaying moments of the gradient."""

from __future__ import annotations

from collections.abc import Mapping

from singa_dask.conf.model import Conf
from singa_dask.conf.updater import DecayRate
from singa_dask.ops.contract import Array, Preparation
from singa_dask.training.updaters.updater import UPDATERS, KernelUpdater

__all__ = ["Adam", "AdamConf", "AdamMax", "AdamMaxConf", "AdamW"]


class AdamConf(Conf):
    """``adam_conf``."""

    beta1: DecayRate = 0.9
    """Decay rate of the mean of gradients."""
    beta2: DecayRate = 0.999
    """Decay rate of the mean of squared gradients; of AdamMax, of their largest absolute value."""
    bias_correction: bool = True
    """Correct the means for their start at zero, as the paper does; SINGA does not."""


class AdamMaxConf(AdamConf):
    """``adammax_conf``."""


@UPDATERS.register()
class Adam(KernelUpdater):
    """m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, w -= lr m' / (sqrt(v') + delta).

    m' = m / (1 - b1^t) and v' = v / (1 - b2^t), as Kingma and Ba (2015) have it. With ``bias_correction: false``
    it is SINGA's w -= lr m / sqrt(v + delta).
    """

    block = AdamConf
    reads = ("delta",)
    state_names = ("mean", "square")

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        conf, correction = self.conf.block(AdamConf), None
        if conf.bias_correction:
            lr, correction = lr / (1 - conf.beta1**t), 1 / (1 - conf.beta2**t)
        numbers = (lr, conf.beta1, conf.beta2, self.conf.delta, correction)
        self.ops.adam(w, g, state["mean"], state["square"], *numbers, prep)


@UPDATERS.register()
class AdamW(Adam):
    """Adam with decoupled weight decay: w *= 1 - lr weight_decay before its step (Loshchilov and Hutter, 2019)."""

    decoupled_decay = True


@UPDATERS.register()
class AdamMax(KernelUpdater):
    """m = b1 m + (1 - b1) g, u = max(b2 u, |g|), w -= lr / (1 - b1^t) m / (u + delta).

    AdaMax of Kingma and Ba (2015), which has no delta: it only keeps 0 / 0 away. With ``bias_correction: false``
    it is SINGA's u = max(b2 u, |g|) + delta, w -= lr m / u.
    """

    block = AdamMaxConf
    reads = ("delta",)
    state_names = ("mean", "largest")

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        conf = self.conf.block(AdamMaxConf)
        if conf.bias_correction:
            lr /= 1 - conf.beta1**t
        numbers = (lr, conf.beta1, conf.beta2, self.conf.delta, not conf.bias_correction)
        self.ops.adamax(w, g, state["mean"], state["largest"], *numbers, prep)
