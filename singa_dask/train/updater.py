"""Update rules of the servers: value and gradient of a slice in, new value out, in place.

After SINGA's src/utils/updater.cc. A rule works value by value, so cutting a param into slices or pieces
never changes a bit; the base makes one pass over memory, in pieces that stay in cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from singa_dask.conf import UpdaterConf
from singa_dask.registry import Registry
from singa_dask.train.schedule import SCHEDULES

__all__ = ["SGD", "UPDATERS", "AdaDelta", "AdaGrad", "Adam", "AdamMax", "Nesterov", "RMSProp", "Updater"]

UPDATERS: Registry[Updater] = Registry("updater")

Array = np.ndarray[Any, Any]

# Values of a piece: those, gradient, state and scratch of it stay in a cache, and numpy has few calls to make.
PIECE = 1 << 16


class Updater:
    """One rule for all params, for one thread. It keeps no state: that belongs to whoever keeps the slice.

    Parameters
    ----------
    conf : UpdaterConf
        Its ``user_conf`` is for rules of the user's own.

    Attributes
    ----------
    state_names : tuple of str
        Arrays like the value that `update` wants, zeros at first.
    """

    state_names: tuple[str, ...] = ()

    def __init__(self, conf: UpdaterConf) -> None:
        self.conf = conf
        self.schedule = SCHEDULES.find(conf.learning_rate.type)(conf.learning_rate)
        self._scratch = np.empty((3, 0))

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        """Change one piece of a slice in place.

        Parameters
        ----------
        w : (n,) float
            Values.
        g : (n,) float
            Gradient, read only; weight decay is in it.
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
        """Update a slice of a param in place: clip, average over sharers, decay, rule.

        Parameters
        ----------
        step : int
            The worker's step, for the learning rate.
        n_updates : int
            Updates that this slice has seen before.
        value : (n,) float
            A view of the param's memory.
        grad : (n,) float
            Sum of the sharers' gradients.
        state : dict of str to (n,) arrays
            By `state_names`.
        n_sharers : int
            What the sum is divided by.
        lr_scale, wd_scale : float
            The param's own factors of learning rate and weight decay.
        """
        lr = self.schedule(step) * lr_scale
        decay = self.conf.weight_decay * wd_scale
        if self._scratch.dtype != value.dtype or self._scratch.shape[1] < min(PIECE, value.size):
            self._scratch = np.empty((3, min(PIECE, value.size)), value.dtype)
        # A net that diverges is found by its loss; it should not get there through warnings.
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            for start in range(0, value.size, PIECE):
                piece = slice(start, min(start + PIECE, value.size))
                w, states = value[piece], {name: state[name][piece] for name in self.state_names}
                tmp, tmp2, own = self._scratch[:, : w.size]
                g = self._prepare(w, grad[piece], own, tmp, 1 / n_sharers, decay)
                self.rule(w, g, lr, n_updates + 1, states, tmp, tmp2)

    def _prepare(self, w: Array, g: Array, out: Array, tmp: Array, scale: float, decay: float) -> Array:
        """Return the gradient that the rule sees, in ``out`` unless it is the one given."""
        # SINGA clips neither for AdaDelta nor for Adam and AdamMax; here clip_low and clip_high always hold.
        if self.conf.clip_high > self.conf.clip_low:
            g = np.clip(g, self.conf.clip_low, self.conf.clip_high, out=out)
        if scale != 1:
            g = np.multiply(g, scale, out=out)
        if decay > 0:
            np.multiply(w, decay, out=tmp)
            g = np.add(g, tmp, out=out)
        return g


@UPDATERS.register()
class SGD(Updater):
    """v = mu v - lr g, w += v; without ``momentum`` mu, w -= lr g."""

    def __init__(self, conf: UpdaterConf) -> None:
        super().__init__(conf)
        self.state_names = ("momentum",) if conf.momentum > 0 else ()

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        np.multiply(g, lr, out=tmp)
        if not state:
            w -= tmp
            return
        v = state["momentum"]
        v *= self.conf.momentum
        v -= tmp
        w += v


@UPDATERS.register()
class Nesterov(Updater):
    """v' = mu v + lr g, w -= (1 + mu) v' - mu v."""

    state_names = ("momentum",)

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        v = state["momentum"]
        v *= self.conf.momentum
        np.copyto(tmp2, v)
        np.multiply(g, lr, out=tmp)
        v += tmp
        np.multiply(v, 1 + self.conf.momentum, out=tmp)
        tmp -= tmp2
        w -= tmp


@UPDATERS.register()
class AdaGrad(Updater):
    """h += g^2, w -= lr g / sqrt(h + delta). SINGA always takes 1e-8 for ``delta``."""

    state_names = ("square",)

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        h = state["square"]
        np.multiply(g, g, out=tmp)
        h += tmp
        _root_step(w, g, h, lr, self.conf.delta, tmp, tmp2)


@UPDATERS.register()
class RMSProp(Updater):
    """h = rho h + (1 - rho) g^2, w -= lr g / sqrt(h + delta)."""

    state_names = ("square",)

    def __init__(self, conf: UpdaterConf) -> None:
        super().__init__(conf)
        assert conf.rmsprop_conf  # the conf makes sure of it
        self.rho = conf.rmsprop_conf.rho

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        h = state["square"]
        _mean_square(h, g, self.rho, tmp)
        _root_step(w, g, h, lr, self.conf.delta, tmp, tmp2)


@UPDATERS.register()
class AdaDelta(Updater):
    """h = rho h + (1 - rho) g^2, d = g sqrt(u + delta) / sqrt(h + delta), u = rho u + (1 - rho) d^2, w -= lr d."""

    state_names = ("square", "step_square")

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        h, u = state["square"], state["step_square"]
        rho, delta = self.conf.adadelta_conf.rho, self.conf.delta
        _mean_square(h, g, rho, tmp)
        np.add(u, delta, out=tmp)
        np.sqrt(tmp, out=tmp)
        tmp *= g
        np.add(h, delta, out=tmp2)
        np.sqrt(tmp2, out=tmp2)
        tmp /= tmp2
        _mean_square(u, tmp, rho, tmp2)
        tmp *= lr
        w -= tmp


@UPDATERS.register()
class Adam(Updater):
    """m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, w -= lr m' / (sqrt(v') + delta).

    m' = m / (1 - b1^t) and v' = v / (1 - b2^t), as Kingma and Ba (2015) have it. With ``bias_correction: false``
    it is SINGA's w -= lr m / sqrt(v + delta).
    """

    state_names = ("mean", "square")

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        m, v = state["mean"], state["square"]
        conf = self.conf.adam_conf
        _mean(m, g, conf.beta1, tmp)
        _mean_square(v, g, conf.beta2, tmp)
        if not conf.bias_correction:
            _root_step(w, m, v, lr, self.conf.delta, tmp, tmp2)
            return
        np.multiply(v, 1 / (1 - conf.beta2**t), out=tmp)
        np.sqrt(tmp, out=tmp)
        tmp += self.conf.delta
        np.multiply(m, lr / (1 - conf.beta1**t), out=tmp2)
        tmp2 /= tmp
        w -= tmp2


@UPDATERS.register()
class AdamMax(Updater):
    """m = b1 m + (1 - b1) g, u = max(b2 u, |g|), w -= lr / (1 - b1^t) m / (u + delta).

    AdaMax of Kingma and Ba (2015), which has no delta: it only keeps 0 / 0 away. With ``bias_correction: false``
    it is SINGA's u = max(b2 u, |g|) + delta, w -= lr m / u.
    """

    state_names = ("mean", "largest")

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        m, u = state["mean"], state["largest"]
        conf = self.conf.adammax_conf
        _mean(m, g, conf.beta1, tmp)
        u *= conf.beta2
        np.abs(g, out=tmp)
        np.maximum(u, tmp, out=u)
        if conf.bias_correction:
            lr /= 1 - conf.beta1**t
            np.add(u, self.conf.delta, out=tmp)
        else:
            u += self.conf.delta
            np.copyto(tmp, u)
        np.multiply(m, lr, out=tmp2)
        tmp2 /= tmp
        w -= tmp2


def _mean(m: Array, g: Array, keep: float, tmp: Array) -> None:
    """``m = keep m + (1 - keep) g``."""
    m *= keep
    np.multiply(g, 1 - keep, out=tmp)
    m += tmp


def _mean_square(h: Array, g: Array, keep: float, tmp: Array) -> None:
    """``h = keep h + (1 - keep) g^2``."""
    h *= keep
    np.multiply(g, g, out=tmp)
    tmp *= 1 - keep
    h += tmp


def _root_step(w: Array, g: Array, h: Array, lr: float, delta: float, tmp: Array, tmp2: Array) -> None:
    """``w -= lr g / sqrt(h + delta)``."""
    np.add(h, delta, out=tmp)
    np.sqrt(tmp, out=tmp)
    np.multiply(g, lr, out=tmp2)
    tmp2 /= tmp
    w -= tmp2
