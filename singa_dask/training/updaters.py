"""Update rules, e.g. SGD and Adam, and their blocks in the job file. After SINGA's updater.cc.

A rule computes new values of a slice of a param from the slice's values and gradient. A rule is either a formula, which
`ops` compiles to kernels, or the method `Updater.rule`. Formula and method compute each value separately, so that
results do not depend on how a param is sliced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from singa_dask.conf import Conf, UpdaterConf
from singa_dask.conf.parts import Part
from singa_dask.conf.updater import DecayRate
from singa_dask.ops import NumpyOps
from singa_dask.ops.contract import Array, Arrays, Each, Ops, Preparation
from singa_dask.ops.update_rules import UpdateRule
from singa_dask.registry import Registry
from singa_dask.training.schedules import SCHEDULES

UPDATERS: Registry[Updater] = Registry("updater")


class _State(dict[str, Array]):
    """The state arrays of a piece of a slice, by name. `Updater.rule` must not replace these arrays."""

    def __setitem__(self, name: str, values: Array) -> None:
        if values is not self[name]:
            raise TypeError(f"state[{name!r}] = ... has no effect. Write into its memory: state[{name!r}][...] = ...")

    def __missing__(self, name: str) -> Array:
        raise TypeError(f"there is no state {name!r}. Name it in state_names.")


class Updater(Part):
    """Base class of update rules. One object updates all params, and is used by one thread.

    The object has no state. The owner of a slice stores the state of the slice.

    Parameters
    ----------
    conf : UpdaterConf
        The block ``updater`` of the job. Its ``user_conf`` has options of custom rules.

    Attributes
    ----------
    ops : Ops
        Kernels for the device that stores the slices; by default NumPy.
    state_names : tuple of str
        Names of the state arrays that `update` needs for each slice. These arrays have the shape of the slice, and are
        initially zeros.
    reads : tuple of str
        Optional keys of ``updater`` that the rule reads: ``momentum``, ``delta``.
    decoupled_decay : bool
        Whether weight decay shrinks the values before the rule, ``w *= 1 - lr weight_decay``, instead of being added to
        the gradient.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    decoupled_decay: ClassVar[bool] = False
    state_names: tuple[str, ...] = ()

    def __init__(self, conf: UpdaterConf) -> None:
        # read the block once here, and not in each update
        self.conf = conf if self.options_class is None else conf.with_block(conf.block(self.options_class))
        self.ops: Ops = NumpyOps()
        self.schedule = SCHEDULES.find(conf.learning_rate.type)(conf.learning_rate)

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        """Update one piece of a slice in place.

        The arrays may be on a GPU; NumPy functions with an ``out`` argument work there, too.

        Parameters
        ----------
        w : (n,) float
            Values to update.
        g : (n,) float
            Gradient, read-only, including weight decay unless ``decoupled_decay`` is set.
        lr : float
            Learning rate.
        t : int
            Number of this update, counted from 1.
        state : dict of str to (n,) arrays
            State arrays by their names in `state_names`.
        tmp, tmp2 : (n,) arrays
            Arrays for intermediate results.
        """
        raise TypeError(f"{type(self).__name__} cannot update: it has no rule()")

    def update(
        self,
        step: int,
        n_updates: int,
        value: Arrays,
        grad: Arrays,
        state: Mapping[str, Arrays],
        *,
        n_sharers: int = 1,
        lr_scale: float | Sequence[float] = 1.0,
        wd_scale: float | Sequence[float] = 1.0,
        scale: float = 1.0,
    ) -> None:
        """Update a slice of a param, or several slices, in place.

        Parameters
        ----------
        step : int
            The worker's step, which determines the learning rate.
        n_updates : int
            Number of earlier updates of this slice.
        value : (n,) float
            The slice, a view of the param's memory.
        grad : (n,) float
            Sum of ``n_sharers`` gradients, read-only.
        state : dict of str to (n,) arrays
            State arrays by their names in `state_names`. To update several slices, pass an `ArrayList` of slices as
            ``value``, as ``grad`` and as each state array.
        n_sharers : int
            Number of gradients in the sum ``grad``, which is divided by this number.
        lr_scale, wd_scale : float, or both sequences of float
            Factors of the param for learning rate and weight decay. With several slices, one factor for all or one for
            each slice.
        scale : float
            Factor for the averaged gradient, at most 1, to clip the norm of all gradients.
        """
        # In SINGA, clipping applies to the sum of a param's gradients, so the result depends on their number. AdaDelta,
        # Adam and AdamMax of SINGA do not clip at all. Here, clip_low and clip_high apply in all rules.
        rate, share, t = self.schedule(step), scale / n_sharers, n_updates + 1
        if not isinstance(lr_scale, Sequence) or not isinstance(wd_scale, Sequence):
            lr_scale, wd_scale = [lr_scale], [wd_scale]  # type: ignore[list-item]
        scales = list(zip(lr_scale, wd_scale, strict=True))
        known = {pair: self._prepared(rate, share, *pair) for pair in scales}
        if len(known) == 1:
            ((lr, prep),) = known.values()
            self._apply(value, grad, lr, t, state, prep)
        else:
            lrs, preps = zip(*(known[pair] for pair in scales), strict=True)
            self._apply_each(value, grad, lrs, t, state, Each(preps))

    def _prepared(self, rate: float, share: float, lr_scale: float, wd_scale: float) -> tuple[float, Preparation]:
        """Return the learning rate of a param, and the averaging, clipping and decay of its gradient."""
        conf, lr, decay = self.conf, rate * lr_scale, self.conf.weight_decay * wd_scale
        prep = Preparation(conf.clip_low, conf.clip_high, share, decay)
        return lr, prep._replace(decay=0.0, value_factor=1 - lr * decay) if self.decoupled_decay else prep

    def _apply(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
        """Update a slice with `rule`."""
        names = self.state_names
        with np.errstate(all="ignore"):
            for value, grad, tmp, tmp2, *states in self.ops.update_pieces(prep, w, g, *(state[name] for name in names)):
                self.rule(value, grad, lr, t, _State(zip(names, states, strict=True)), tmp, tmp2)

    def _apply_each(
        self, w: Arrays, g: Arrays, lrs: Sequence[float], t: int, state: Mapping[str, Arrays], preps: Each[Preparation]
    ) -> None:
        """Update slices, each with its own learning rate and preparation."""
        for k, (lr, prep) in enumerate(zip(lrs, preps, strict=True)):
            self._apply(w[k], g[k], lr, t, {name: arrays[k] for name, arrays in state.items()}, prep)


UPDATERS.base = Updater


class KernelUpdater(Updater):
    """An update rule given by a formula, which `ops` compiles to a kernel.

    The kernel also averages, clips and decays the gradient.

    Attributes
    ----------
    formula : UpdateRule
        The formula, which updates ``w`` and the first arrays of `state_names`.
    fused : bool
        Whether the kernel does the whole update. False in a subclass that overrides `rule`.
    """

    formula: UpdateRule
    fused: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "rule" in vars(cls):
            cls.fused = False

    def numbers(self, lr: float, t: int) -> Sequence[float]:
        """Return the formula's scalars, in order, for a learning rate and the update ``t``, counted from 1."""
        raise TypeError(f"{type(self).__name__} cannot update: it has no numbers()")

    def kernel(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
        """Update a slice, a piece of a slice, or several slices in place, with the kernel alone."""
        names = self.state_names[: len(self.formula.arrays) - 1]
        self.ops.update(self.formula, prep, self.numbers(lr, t), g, w, *(state[name] for name in names))

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        self.kernel(w, g, lr, t, state, Preparation())

    def _apply(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
        (self.kernel if self.fused else super()._apply)(w, g, lr, t, state, prep)

    def _apply_each(
        self, w: Arrays, g: Arrays, lrs: Sequence[float], t: int, state: Mapping[str, Arrays], preps: Each[Preparation]
    ) -> None:
        if not self.fused:
            super()._apply_each(w, g, lrs, t, state, preps)
            return
        known = {lr: self.numbers(lr, t) for lr in lrs}
        names = self.state_names[: len(self.formula.arrays) - 1]
        self.ops.update(self.formula, preps, Each(known[lr] for lr in lrs), g, w, *(state[name] for name in names))


PLAIN = UpdateRule("sgd", "lr", "", "w -= lr * g")
MOMENTUM = UpdateRule("sgd_momentum", "lr mu", "v", "v = mu * v - lr * g; w += v")
MOMENTUM_OF_GRADIENTS = UpdateRule("sgd_momentum_of_gradients", "lr mu", "v", "v = mu * v + g; w -= lr * v")


class SGDConf(Conf):
    """``sgd_conf``."""

    velocity: Literal["steps", "gradients"] = "steps"
    """What momentum accumulates: steps, as in SINGA, or gradients, as in PyTorch. The results differ only after the
    learning rate changes: accumulated steps keep their size, but accumulated gradients are multiplied by the new
    rate."""


@UPDATERS.register()
class SGD(KernelUpdater):
    """v = mu v - lr g, w += v, where mu is ``momentum``; without momentum, w -= lr g.

    With ``velocity: gradients``, v = mu v + g, w -= lr v, as in PyTorch.
    """

    options_class = SGDConf
    reads = ("momentum",)

    def __init__(self, conf: UpdaterConf) -> None:
        super().__init__(conf)
        self.state_names = ("momentum",) if conf.momentum > 0 else ()
        of_gradients = self.options.velocity == "gradients"
        with_momentum = MOMENTUM_OF_GRADIENTS if of_gradients else MOMENTUM
        self.formula = with_momentum if conf.momentum > 0 else PLAIN

    def numbers(self, lr: float, t: int) -> Sequence[float]:
        return (lr,) if self.formula is PLAIN else (lr, self.conf.momentum)


@UPDATERS.register()
class Nesterov(KernelUpdater):
    """v' = mu v + lr g, w -= (1 + mu) v' - mu v."""

    reads = ("momentum",)
    state_names = ("momentum",)
    formula = UpdateRule("nesterov", "lr mu ahead", "v", "last = mu * v; v = last + lr * g; w -= ahead * v - last")

    def numbers(self, lr: float, t: int) -> Sequence[float]:
        return lr, self.conf.momentum, 1 + self.conf.momentum


@UPDATERS.register()
class AdaGrad(KernelUpdater):
    """h += g^2, w -= lr g / sqrt(h + delta). SINGA always uses ``delta`` 1e-8."""

    reads = ("delta",)
    state_names = ("square",)
    formula = UpdateRule("adagrad", "lr delta", "h", "h += g * g; w -= lr * g / sqrt(h + delta)")

    def numbers(self, lr: float, t: int) -> Sequence[float]:
        return lr, self.conf.delta


class RMSPropConf(Conf):
    """``rmsprop_conf``."""

    rho: DecayRate
    """Decay rate of the mean of squared gradients."""


@UPDATERS.register()
class RMSProp(KernelUpdater):
    """h = rho h + (1 - rho) g^2, w -= lr g / sqrt(h + delta)."""

    options_class = RMSPropConf
    reads = ("delta",)
    state_names = ("square",)
    formula = UpdateRule(
        "rmsprop", "lr rho rest delta", "h", "h = rho * h + rest * (g * g); w -= lr * g / sqrt(h + delta)"
    )

    def numbers(self, lr: float, t: int) -> Sequence[float]:
        rho = self.options.rho
        return lr, rho, 1 - rho, self.conf.delta


class AdaDeltaConf(Conf):
    """``adadelta_conf``."""

    rho: DecayRate = 0.9
    """Decay rate of the means of squared gradients and squared steps."""


@UPDATERS.register()
class AdaDelta(KernelUpdater):
    """h = rho h + rest g^2, d = g sqrt(u + delta) / sqrt(h + delta), u = rho u + rest d^2, w -= lr d.

    Here rest is 1 - rho.
    """

    options_class = AdaDeltaConf
    reads = ("delta",)
    state_names = ("square", "step_square")
    formula = UpdateRule(
        "adadelta",
        "lr rho rest delta",
        "h u",
        """
        h = rho * h + rest * (g * g);
        d = g * sqrt(u + delta) / sqrt(h + delta);
        u = rho * u + rest * (d * d);
        w -= lr * d
        """,
    )

    def numbers(self, lr: float, t: int) -> Sequence[float]:
        rho = self.options.rho
        return lr, rho, 1 - rho, self.conf.delta


class AdamConf(Conf):
    """``adam_conf``."""

    beta1: DecayRate = 0.9
    """Decay rate of the mean of gradients."""
    beta2: DecayRate = 0.999
    """Decay rate of the mean of squared gradients. In AdamMax, decay rate of their largest absolute value."""
    bias_correction: bool = True
    """Whether to correct the means for their start at zero, as in the paper. SINGA does not correct them."""


class AdamMaxConf(AdamConf):
    """``adammax_conf``."""


_MEANS = "m = beta1 * m + rest1 * g; v = beta2 * v + rest2 * (g * g)"
_NUMBERS = "lr beta1 rest1 beta2 rest2 delta"
ADAM = UpdateRule("adam", f"{_NUMBERS} correction", "m v", f"{_MEANS}; w -= lr * m / (sqrt(correction * v) + delta)")
ADAM_OF_SINGA = UpdateRule("adam_of_singa", _NUMBERS, "m v", f"{_MEANS}; w -= lr * m / sqrt(v + delta)")


@UPDATERS.register()
class Adam(KernelUpdater):
    """m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, w -= lr m' / (sqrt(v') + delta).

    Here m' = m / (1 - b1^t) and v' = v / (1 - b2^t), after Kingma and Ba (2015). With ``bias_correction: false`` the
    update is SINGA's w -= lr m / sqrt(v + delta).
    """

    options_class = AdamConf
    reads = ("delta",)
    state_names = ("mean", "square")

    def __init__(self, conf: UpdaterConf) -> None:
        super().__init__(conf)
        self.formula = ADAM if self.options.bias_correction else ADAM_OF_SINGA

    def numbers(self, lr: float, t: int) -> Sequence[float]:
        conf, delta = self.options, self.conf.delta
        rates = (conf.beta1, 1 - conf.beta1, conf.beta2, 1 - conf.beta2)
        if conf.bias_correction:
            return lr / (1 - conf.beta1**t), *rates, delta, 1 / (1 - conf.beta2**t)
        return lr, *rates, delta


@UPDATERS.register()
class AdamW(Adam):
    """Adam with decoupled weight decay: first w *= 1 - lr weight_decay, then the update of Adam.

    After Loshchilov and Hutter (2019).
    """

    decoupled_decay = True


@UPDATERS.register()
class AdamMax(KernelUpdater):
    """m = b1 m + (1 - b1) g, u = max(b2 u, |g|), w -= lr / (1 - b1^t) m / (u + delta).

    This is AdaMax of Kingma and Ba (2015); ``delta`` only avoids 0 / 0. With ``bias_correction: false`` the update is
    SINGA's u = max(b2 u, |g|) + delta, w -= lr m / u.
    """

    options_class = AdamMaxConf
    reads = ("delta",)
    state_names = ("mean", "largest")
    formula = UpdateRule(
        "adamax",
        "lr beta1 rest1 beta2 delta kept",
        "m u",
        """
        m = beta1 * m + rest1 * g;
        largest = max(beta2 * u, abs(g));
        u = largest + kept;
        w -= lr * m / (largest + delta)
        """,
    )

    def numbers(self, lr: float, t: int) -> Sequence[float]:
        conf, delta = self.options, self.conf.delta
        if conf.bias_correction:
            return lr / (1 - conf.beta1**t), conf.beta1, 1 - conf.beta1, conf.beta2, delta, 0.0
        return lr, conf.beta1, 1 - conf.beta1, conf.beta2, delta, delta


class LionConf(Conf):
    """``lion_conf``."""

    beta1: DecayRate = 0.9
    """Weight of the mean of gradients in the direction of a step. The new gradient has the weight 1 - beta1."""
    beta2: DecayRate = 0.99
    """Decay rate of the mean of gradients."""


@UPDATERS.register()
class Lion(Updater):
    """w -= lr sign(b1 m + (1 - b1) g), then m = b2 m + (1 - b2) g, with decoupled weight decay.

    After Chen et al. (2023), Symbolic discovery of optimization algorithms. Weight decay works as in AdamW: w *= 1 - lr
    weight_decay before the update. The paper uses a learning rate 3 to 10 times smaller than for Adam.
    """

    options_class = LionConf
    decoupled_decay = True
    state_names = ("mean",)

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        mean = state["mean"]
        np.multiply(mean, self.options.beta1, out=tmp)
        np.multiply(g, 1 - self.options.beta1, out=tmp2)
        np.add(tmp, tmp2, out=tmp)
        np.sign(tmp, out=tmp)
        np.multiply(tmp, lr, out=tmp)
        np.subtract(w, tmp, out=w)
        np.multiply(mean, self.options.beta2, out=mean)
        np.multiply(g, 1 - self.options.beta2, out=tmp2)
        np.add(mean, tmp2, out=mean)
