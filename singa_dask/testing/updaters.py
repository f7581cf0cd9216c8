"""The exam of updaters: slices, state, gradients that are only read, that they learn, and devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from singa_dask.conf import UpdaterConf
from singa_dask.errors import PartError
from singa_dask.ops import NumpyOps
from singa_dask.ops.contract import Array
from singa_dask.testing.examined import compare, device, examine
from singa_dask.training import UPDATERS, Updater

__all__ = ["check_updater"]

PIECE = NumpyOps.update_values
N_STEPS = 400


def check_updater(
    kind: str | type[Updater], conf: dict[str, Any] | None = None, *, learning_rate: float = 0.05
) -> list[str]:
    """Examine an update rule.

    Parameters
    ----------
    kind : str or type of Updater
        The class, or its name in a job file.
    conf : dict, optional
        Keys of ``updater`` in a job: its block, ``momentum`` and so on.
    learning_rate : float
        At which it learns a linear model of five values within 400 steps.

    Returns
    -------
    list of str
        What could not be examined here, and why.

    Raises
    ------
    PartError
        All that is wrong with it, and what to do.
    """
    cls = UPDATERS.find(kind) if isinstance(kind, str) else kind
    rate = {"type": "Fixed", "base_lr": learning_rate}
    name = kind if isinstance(kind, str) else cls.__name__
    made = UpdaterConf.model_validate({"type": name, "learning_rate": rate, **(conf or {})})
    rule = _Rule(cls, made)
    return examine(cls.__name__, {name: partial(check, rule) for name, check in ASPECTS.items()})


class _Rule(NamedTuple):
    cls: type[Updater]
    conf: UpdaterConf

    def run(
        self, w: Array, grads: Sequence[Array], cuts: Sequence[int] = (), ops: NumpyOps | None = None, new: bool = False
    ) -> Array:
        """Return values after an update by each gradient, made slice by slice; by a ``new`` updater each time."""
        ops = ops or NumpyOps()
        value, updater = ops.from_host(w.copy()), self.cls(self.conf)
        state = {name: ops.zeros(w.shape, w.dtype) for name in updater.state_names}
        for t, grad in enumerate(grads):
            updater = self.cls(self.conf) if new else updater
            updater.ops = ops
            there = ops.from_host(grad)
            for a, b in pairwise([0, *cuts, w.size]):
                updater.update(t, t, value[a:b], there[a:b], {name: each[a:b] for name, each in state.items()})
        return np.array(ops.to_host(value))


def _drawn(size: int) -> tuple[Array, list[Array]]:
    w, *grads = np.random.default_rng(0).normal(size=(4, size)).astype(np.float32)
    for grad in grads:
        grad.flags.writeable = False
    return w, grads


def check_slices(rule: _Rule) -> None:
    """Check that a param gives the same bits whole and in slices, which servers and pieces for the cache are."""
    w, grads = _drawn(2 * PIECE + 77)
    whole = rule.run(w, grads)
    remedy = "Compute value by value: no sum, norm or place of a slice may count."
    compare("a value of a param in slices", rule.run(w, grads, (1, PIECE - 3, PIECE + 5)), whole, 0, remedy)


def check_state(rule: _Rule) -> None:
    """Check that a rule keeps nothing but its declared state, so that a resumed job goes on as it would have."""
    w, grads = _drawn(300)
    remedy = "Keep what lasts in state, and name it in state_names; draw no random numbers."
    compare("a value after a resume", rule.run(w, grads, new=True), rule.run(w, grads), 0, remedy)


def check_zero(rule: _Rule) -> None:
    """Check that a gradient of 0 leaves values alone that have had no other, and finite."""
    w, _ = _drawn(9)
    remedy = "A gradient of 0 says that a value is right. Does it divide by 0? See delta."
    compare("a value after gradients of 0", rule.run(w, [np.zeros_like(w)] * 2), w, 0, remedy)


def check_learns(rule: _Rule) -> None:
    """Check that a linear model is learnt."""
    random = np.random.default_rng(3)
    x, truth = random.normal(size=(64, 5)), random.normal(size=5)
    w, updater = np.zeros(5), rule.cls(rule.conf)
    state = {name: np.zeros(5) for name in updater.state_names}
    for t in range(N_STEPS):
        updater.update(t, t, w, x.T @ (x @ (w - truth)) / len(x), state)
    before, after = (float(((x @ (values - truth)) ** 2).mean()) for values in (np.zeros(5), w))
    if not after < 0.01 * before:
        remedy = "Step against the gradient, w -= ...; or say another learning_rate."
        raise PartError(f"a linear model is not learnt: its loss was {before:.4g}, is {after:.4g}. {remedy}")


def check_gpu(rule: _Rule) -> None:
    """Check that a GPU computes what NumPy does."""
    w, grads = _drawn(1000)
    ops = device("cupy")
    remedy = "Use NumPy functions with out=, and arithmetic."
    with ops.activate():
        found = rule.run(w, grads, ops=ops)
    compare("a value on a GPU", found, rule.run(w, grads), 1e-4, remedy)


ASPECTS: dict[str, Callable[[_Rule], None]] = {
    "slices": check_slices,
    "state": check_state,
    "zero": check_zero,
    "learning": check_learns,
    "GPU": check_gpu,
}
