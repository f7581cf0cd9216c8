"""Update rules of the servers: value and gradient of a slice in, new value out, in place.

After SINGA's src/utils/updater.cc. The mathematics of each is a kernel of `ops`, which works value by value: cutting a
param into slices never changes a bit. A rule of a user's own says its mathematics itself, in `Updater.rule`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import UpdaterConf
from singa_dask.ops import NumpyOps
from singa_dask.ops.contract import Preparation
from singa_dask.registry import Registry
from singa_dask.train.schedule import SCHEDULES

__all__ = ["SGD", "UPDATERS", "AdaDelta", "AdaGrad", "Adam", "AdamMax", "AdamW", "Nesterov", "RMSProp", "Updater"]

UPDATERS: Registry[Updater] = Registry("updater")

# Arrays are Any: those of the kernels' device.
Array = Any


class Updater:
    """One rule for all params, for one thread. It keeps no state: that belongs to whoever keeps the slice.

    Parameters
    ----------
    conf : UpdaterConf
        Its ``user_conf`` is for rules of the user's own.

    Attributes
    ----------
    ops : NumpyOps
        Kernels for the memory that slices lie in; numpy's until another is set.
    state_names : tuple of str
        Arrays like the value that `update` wants, zeros at first.
    reads : tuple of str
        Keys of the job's ``updater`` that it reads, beside those that all read.
    decoupled_decay : bool
        Weight decay makes the values smaller before the rule, ``w *= 1 - lr weight_decay``, and is not in the
        gradient.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    decoupled_decay: ClassVar[bool] = False
    state_names: tuple[str, ...] = ()

    def __init__(self, conf: UpdaterConf) -> None:
        self.conf = conf
        self.ops = NumpyOps()
        self.schedule = SCHEDULES.find(conf.learning_rate.type)(conf.learning_rate)

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        """Change one piece of a slice in place.

        Functions of numpy with an ``out`` compute on arrays of a GPU too.

        Parameters
        ----------
        w : (n,) float
            Values.
        g : (n,) float
            Gradient, read only; weight decay is in it unless that is decoupled.
        lr : float
            Learning rate.
        t : int
            Number of this update, from 1.
        state : dict of str to (n,) arrays
            By `state_names`.
        tmp, tmp2 : (n,) arrays
            Scratch.
        """
        raise TypeError(f"{type(self).__name__} does not say how to update: it has no rule()")

    def update(
        self,
        step: int,
        n_updates: int,
        value: Array,
        grad: Array,
        state: Mapping[str, Array],
        *,
        n_sharers: int = 1,
        lr_scale: float = 1.0,
        wd_scale: float = 1.0,
    ) -> None:
        """Update a slice of a param in place: average over sharers, clip, decay, rule.

        Parameters
        ----------
        step : int
            The worker's step, for the learning rate.
        n_updates : int
            Updates that this slice has seen before.
        value : (n,) float
            A view of the param's memory.
        grad : (n,) float
            Sum of the sharers' gradients; read only.
        state : dict of str to (n,) arrays
            By `state_names`.
        n_sharers : int
            What the sum is divided by.
        lr_scale, wd_scale : float
            The param's own factors of learning rate and weight decay.
        """
        # SINGA clips the sum over sharers, so that the result depends on their number. It does not clip at all for
        # AdaDelta, Adam and AdamMax; here clip_low and clip_high always hold.
        conf, lr, decay = self.conf, self.schedule(step) * lr_scale, self.conf.weight_decay * wd_scale
        prep = Preparation(conf.clip_low, conf.clip_high, 1 / n_sharers, decay)
        if self.decoupled_decay:
            prep = prep._replace(decay=0.0, value_factor=1 - lr * decay)
        self._apply(value, grad, lr, n_updates + 1, state, prep)

    def _apply(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        """Update a slice by `rule`."""
        names = self.state_names
        with np.errstate(all="ignore"):
            for value, grad, tmp, tmp2, *states in self.ops.update_pieces(prep, w, g, *(state[name] for name in names)):
                self.rule(value, grad, lr, t, dict(zip(names, states, strict=True)), tmp, tmp2)


class _Kernel(Updater):
    """A rule that is one kernel of ops, which prepares the gradient too.

    Attributes
    ----------
    fused : bool
        The kernel is all of it: not so in a subclass with a `rule` of its own around it.
    """

    fused: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "rule" in vars(cls):
            cls.fused = False

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        """Change values in place, of a slice or of a piece of one."""
        raise TypeError(f"{type(self).__name__} does not say how to update: it has no kernel()")

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        self.kernel(w, g, lr, t, state, Preparation())

    def _apply(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        (self.kernel if self.fused else super()._apply)(w, g, lr, t, state, prep)


@UPDATERS.register()
class SGD(_Kernel):
    """v = mu v - lr g, w += v; without ``momentum`` mu, w -= lr g."""

    reads = ("momentum",)

    def __init__(self, conf: UpdaterConf) -> None:
        super().__init__(conf)
        self.state_names = ("momentum",) if conf.momentum > 0 else ()

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        self.ops.sgd(w, g, state.get("momentum"), lr, self.conf.momentum, prep)


@UPDATERS.register()
class Nesterov(_Kernel):
    """v' = mu v + lr g, w -= (1 + mu) v' - mu v."""

    reads = ("momentum",)
    state_names = ("momentum",)

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        self.ops.nesterov(w, g, state["momentum"], lr, self.conf.momentum, prep)


@UPDATERS.register()
class AdaGrad(_Kernel):
    """h += g^2, w -= lr g / sqrt(h + delta). SINGA always takes 1e-8 for ``delta``."""

    reads = ("delta",)
    state_names = ("square",)

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        self.ops.adagrad(w, g, state["square"], lr, self.conf.delta, prep)


@UPDATERS.register()
class RMSProp(_Kernel):
    """h = rho h + (1 - rho) g^2, w -= lr g / sqrt(h + delta)."""

    reads = ("rmsprop_conf", "delta")
    state_names = ("square",)

    def __init__(self, conf: UpdaterConf) -> None:
        super().__init__(conf)
        assert conf.rmsprop_conf  # the conf makes sure of it
        self.rho = conf.rmsprop_conf.rho

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        self.ops.rmsprop(w, g, state["square"], lr, self.rho, self.conf.delta, prep)


@UPDATERS.register()
class AdaDelta(_Kernel):
    """h = rho h + (1 - rho) g^2, d = g sqrt(u + delta) / sqrt(h + delta), u = rho u + (1 - rho) d^2, w -= lr d."""

    reads = ("adadelta_conf", "delta")
    state_names = ("square", "step_square")

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        rho, delta = self.conf.adadelta_conf.rho, self.conf.delta
        self.ops.adadelta(w, g, state["square"], state["step_square"], lr, rho, delta, prep)


@UPDATERS.register()
class Adam(_Kernel):
    """m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, w -= lr m' / (sqrt(v') + delta).

    m' = m / (1 - b1^t) and v' = v / (1 - b2^t), as Kingma and Ba (2015) have it. With ``bias_correction: false``
    it is SINGA's w -= lr m / sqrt(v + delta).
    """

    reads = ("adam_conf", "delta")
    state_names = ("mean", "square")

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        conf, correction = self.conf.adam_conf, None
        if conf.bias_correction:
            lr, correction = lr / (1 - conf.beta1**t), 1 / (1 - conf.beta2**t)
        numbers = (lr, conf.beta1, conf.beta2, self.conf.delta, correction)
        self.ops.adam(w, g, state["mean"], state["square"], *numbers, prep)


@UPDATERS.register()
class AdamW(Adam):
    """Adam with decoupled weight decay: w *= 1 - lr weight_decay before its step (Loshchilov and Hutter, 2019)."""

    decoupled_decay = True


@UPDATERS.register()
class AdamMax(_Kernel):
    """m = b1 m + (1 - b1) g, u = max(b2 u, |g|), w -= lr / (1 - b1^t) m / (u + delta).

    AdaMax of Kingma and Ba (2015), which has no delta: it only keeps 0 / 0 away. With ``bias_correction: false``
    it is SINGA's u = max(b2 u, |g|) + delta, w -= lr m / u.
    """

    reads = ("adammax_conf", "delta")
    state_names = ("mean", "largest")

    def kernel(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], prep: Preparation) -> None:
        conf = self.conf.adammax_conf
        if conf.bias_correction:
            lr /= 1 - conf.beta1**t
        numbers = (lr, conf.beta1, conf.beta2, self.conf.delta, not conf.bias_correction)
        self.ops.adamax(w, g, state["mean"], state["largest"], *numbers, prep)
