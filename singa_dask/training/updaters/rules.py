"""Update rules: SGD and Nesterov, those that divide steps by the size of past gradients, and Lion."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from singa_dask.conf import UpdaterConf
from singa_dask.conf.job import DecayRate
from singa_dask.conf.model import Conf
from singa_dask.ops.contract import Array, Arrays, Preparation
from singa_dask.training.updaters.updater import UPDATERS, KernelUpdater, Updater


@UPDATERS.register()
class SGD(KernelUpdater):
    """v = mu v - lr g, w += v; without ``momentum`` mu, w -= lr g."""

    reads = ("momentum",)

    def __init__(self, conf: UpdaterConf) -> None:
        super().__init__(conf)
        self.state_names = ("momentum",) if conf.momentum > 0 else ()

    def kernel(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
        self.ops.sgd(w, g, state.get("momentum"), lr, self.conf.momentum, prep)


@UPDATERS.register()
class Nesterov(KernelUpdater):
    """v' = mu v + lr g, w -= (1 + mu) v' - mu v."""

    reads = ("momentum",)
    state_names = ("momentum",)

    def kernel(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
        self.ops.nesterov(w, g, state["momentum"], lr, self.conf.momentum, prep)


@UPDATERS.register()
class AdaGrad(KernelUpdater):
    """h += g^2, w -= lr g / sqrt(h + delta). SINGA always takes 1e-8 for ``delta``."""

    reads = ("delta",)
    state_names = ("square",)

    def kernel(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
        self.ops.adagrad(w, g, state["square"], lr, self.conf.delta, prep)


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

    def kernel(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
        self.ops.rmsprop(w, g, state["square"], lr, self.conf.block(RMSPropConf).rho, self.conf.delta, prep)


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

    def kernel(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
        rho, delta = self.conf.block(AdaDeltaConf).rho, self.conf.delta
        self.ops.adadelta(w, g, state["square"], state["step_square"], lr, rho, delta, prep)


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

    def kernel(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
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

    def kernel(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
        conf = self.conf.block(AdamMaxConf)
        if conf.bias_correction:
            lr /= 1 - conf.beta1**t
        numbers = (lr, conf.beta1, conf.beta2, self.conf.delta, not conf.bias_correction)
        self.ops.adamax(w, g, state["mean"], state["largest"], *numbers, prep)


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
