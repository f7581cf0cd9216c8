"""Checks of updaters: slices, state, read-only gradients, learning, and devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from singa_dask.conf import UpdaterConf
from singa_dask.errors import PartError
from singa_dask.ops import NumpyOps, get_ops
from singa_dask.ops.contract import Array, Ops
from singa_dask.testing.case import CPU
from singa_dask.testing.examine import compare, examine
from singa_dask.training import UPDATERS, Updater

PIECE = NumpyOps.update_values
N_STEPS = 400
START = np.random.default_rng(1).normal(size=3 * PIECE)


def check_updater(
    kind: str | type[Updater], conf: dict[str, Any] | None = None, *, learning_rate: float = 0.05
) -> list[str]:
    """Check an update rule.

    Parameters
    ----------
    kind : str or type of Updater
        The class of the updater, or its name in a job file.
    conf : dict, optional
        Keys of ``updater`` in a job, such as its block or ``momentum``.
    learning_rate : float
        Learning rate at which the updater should learn a linear model of five values within 400 steps.

    Returns
    -------
    list of str
        The checks that were not possible on this machine, with reasons.

    Raises
    ------
    PartError
        The updater has mistakes. The message lists all of them, with advice.
    """
    cls = UPDATERS.find(kind) if isinstance(kind, str) else kind
    rate = {"type": "Fixed", "base_lr": learning_rate}
    updater_conf = UpdaterConf.model_validate({"type": cls.__name__, "learning_rate": rate, **(conf or {})})
    checks = {name: partial(check, partial(cls, updater_conf)) for name, check in UPDATER_ASPECTS.items()}
    # disable weight decay, because with it the model does not reach its best values
    checks["learning"] = partial(check_learns, partial(cls, updater_conf.model_copy(update={"weight_decay": 0.0})))
    return examine(cls.__name__, checks)


def _run(
    make: Callable[[], Updater],
    grads: Sequence[Array],
    cuts: Sequence[int] = (),
    ops: Ops = CPU,
    new: bool = False,
    start: Array = START,
    lr_scale: float = 1.0,
) -> Array:
    """Return the values after an update with each gradient, slice by slice.

    With ``new``, each update uses a new updater.
    """
    start = start[: grads[0].size].astype(grads[0].dtype)
    value, updater = ops.from_host(start), make()
    state = {name: ops.zeros(start.shape, start.dtype) for name in updater.state_names}
    for t, grad in enumerate(grads):
        updater = make() if new else updater
        updater.ops = ops
        grad.flags.writeable = False
        there = ops.from_host(grad)
        for a, b in pairwise([0, *cuts, start.size]):
            part = {name: array[a:b] for name, array in state.items()}
            updater.update(t, t, value[a:b], there[a:b], part, lr_scale=lr_scale)
    return np.array(ops.to_host(value))


def _drawn(size: int) -> list[Array]:
    return list(np.random.default_rng(0).normal(size=(3, size)).astype(np.float32))


def check_slices(make: Callable[[], Updater]) -> None:
    """Check that updating a param in slices, as servers do, gives the same bits as updating it as a whole."""
    grads = _drawn(2 * PIECE + 77)
    remedy = "Compute value by value: no sum, norm or place of a slice may count."
    cut = _run(make, grads, (1, PIECE - 3, PIECE + 5))
    compare("a value of a param in slices", cut, _run(make, grads), 0, remedy)


def check_state(make: Callable[[], Updater]) -> None:
    """Check that a rule keeps only its declared state, so that a resumed job gives the same results."""
    remedy = "Keep what lasts in state, and name it in state_names; draw no random numbers."
    compare("a value after a resume", _run(make, _drawn(9), new=True), _run(make, _drawn(9)), 0, remedy)


def check_zero(make: Callable[[], Updater]) -> None:
    """Check that gradients of 0 do not change values of 0. Weight decay may shrink other values."""
    remedy = "A gradient of 0 says that a value is right. Does it divide by 0? See delta."
    zeros = np.zeros(9)
    compare("a value after gradients of 0", _run(make, [zeros] * 2, start=zeros), zeros, 0, remedy)


def check_rate(make: Callable[[], Updater]) -> None:
    """Check that a learning rate of 0 changes nothing."""
    remedy = "Multiply the step by lr, which includes the schedule and the param's factor."
    compare("a value after steps at a learning rate of 0", _run(make, _drawn(9), lr_scale=0), START[:9], 1e-6, remedy)


def check_learns(make: Callable[[], Updater]) -> None:
    """Check that the updater learns a linear model."""
    random = np.random.default_rng(3)
    x, truth = random.normal(size=(64, 5)), random.normal(size=5)
    w, updater = np.zeros(5), make()
    state = {name: np.zeros(5) for name in updater.state_names}
    for t in range(N_STEPS):
        updater.update(t, t, w, x.T @ (x @ (w - truth)) / len(x), state)
    before, after = (float(((x @ (values - truth)) ** 2).mean()) for values in (np.zeros(5), w))
    if not after < 0.01 * before:
        remedy = "Step against the gradient, w -= ...; or pass another learning_rate."
        raise PartError(
            f"the updater does not train a linear model: the loss was {before:.4g}, and is {after:.4g}. {remedy}"
        )


def check_gpu(make: Callable[[], Updater]) -> None:
    """Check that a GPU computes the same as NumPy."""
    ops = get_ops("cupy")
    with ops.activate():
        values = _run(make, _drawn(1000), ops=ops)
    remedy = "Use NumPy functions with out=, and arithmetic."
    compare("a value on a GPU", values, _run(make, _drawn(1000)), 1e-4, remedy)


UPDATER_ASPECTS: dict[str, Callable[[Callable[[], Updater]], None]] = {
    "slices": check_slices,
    "state": check_state,
    "zero": check_zero,
    "learning rate": check_rate,
    "learning": check_learns,
    "GPU": check_gpu,
}
