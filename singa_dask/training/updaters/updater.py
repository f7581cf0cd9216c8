"""The base of update rules, and their registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import Conf, UpdaterConf
from singa_dask.ops import NumpyOps
from singa_dask.ops.contract import Array, Arrays, Ops, Preparation
from singa_dask.registry import Registry
from singa_dask.training.schedules import SCHEDULES

UPDATERS: Registry[Updater] = Registry("updater")


class _State(dict[str, Array]):
    """What `Updater.rule` keeps of a piece, by name."""

    def __setitem__(self, name: str, values: Array) -> None:
        if values is not self[name]:
            raise TypeError(f"state[{name!r}] = ... is not kept. Write into its memory: state[{name!r}][...] = ...")

    def __missing__(self, name: str) -> Array:
        raise TypeError(f"there is no state {name!r}. Name it in state_names.")


class Updater:
    """One rule for all params, for one thread. It keeps no state: that belongs to whoever keeps the slice.

    Parameters
    ----------
    conf : UpdaterConf
        Its ``user_conf`` is for rules of the user's own.

    Attributes
    ----------
    ops : Ops
        Kernels for the memory that slices lie in; numpy's until another is set.
    state_names : tuple of str
        Arrays like the value that `update` wants, zeros at first.
    block : type of Conf or None
        The block of ``updater`` that it reads, ``conf.block(XConf)``.
    reads : tuple of str
        Other keys of ``updater`` that it reads, of those that not all read: ``momentum``, ``delta``.
    decoupled_decay : bool
        Weight decay makes the values smaller before the rule, ``w *= 1 - lr weight_decay``, and is not in the
        gradient.
    """

    block: ClassVar[type[Conf] | None] = None
    reads: ClassVar[tuple[str, ...]] = ()
    decoupled_decay: ClassVar[bool] = False
    state_names: tuple[str, ...] = ()

    def __init__(self, conf: UpdaterConf) -> None:
        self.conf = conf
        self.ops: Ops = NumpyOps()
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
        value: Arrays,
        grad: Arrays,
        state: Mapping[str, Arrays],
        *,
        n_sharers: int = 1,
        lr_scale: float = 1.0,
        wd_scale: float = 1.0,
    ) -> None:
        """Update a slice of a param, or several at once, in place: average over sharers, clip, decay, rule.

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
            By `state_names`. Each of ``value``, ``grad`` and these may be an `ArrayList` of slices.
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

    def _apply(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
        """Update a slice by `rule`."""
        names = self.state_names
        with np.errstate(all="ignore"):
            for value, grad, tmp, tmp2, *states in self.ops.update_pieces(prep, w, g, *(state[name] for name in names)):
                self.rule(value, grad, lr, t, _State(zip(names, states, strict=True)), tmp, tmp2)


UPDATERS.base = Updater


class KernelUpdater(Updater):
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

    def kernel(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
        """Change values in place, of a slice, of a piece of one, or of several slices, by a kernel of `ops` alone."""
        raise TypeError(f"{type(self).__name__} does not say how to update: it has no kernel()")

    def rule(self, w: Array, g: Array, lr: float, t: int, state: Mapping[str, Array], tmp: Array, tmp2: Array) -> None:
        self.kernel(w, g, lr, t, state, Preparation())

    def _apply(self, w: Arrays, g: Arrays, lr: float, t: int, state: Mapping[str, Arrays], prep: Preparation) -> None:
        (self.kernel if self.fused else super()._apply)(w, g, lr, t, state, prep)
