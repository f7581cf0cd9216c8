"""The contract of the update rules: against their formulas in float64, the gradient only read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from singa_dask.ops.contract import ArrayList, Preparation
from singa_dask.ops.update_rules import UpdateRule
from singa_dask.training import updaters
from tests.contracts.arrays import close, draw, get, put
from tests.selection import mostly_long

Array = np.ndarray[Any, Any]
LR = 0.1
PREPARATIONS = {
    "plain": Preparation(),
    "averaged": Preparation(scale=1 / 3),
    "all": Preparation(low=-0.5, high=0.25, scale=0.5, decay=0.01),
    "clipped to what is above": Preparation(low=0.5, high=0.75),
    "decoupled decay": Preparation(scale=0.5, value_factor=0.99),
}


def sgd(w: Array, g: Array, v: Array, momentum: float) -> Any:
    v = momentum * v - LR * g
    return w + v, v


def nesterov(w: Array, g: Array, v: Array, momentum: float) -> Any:
    new = momentum * v + LR * g
    return w - (1 + momentum) * new + momentum * v, new


def adagrad(w: Array, g: Array, h: Array, delta: float) -> Any:
    h = h + g**2
    return w - LR * g / np.sqrt(h + delta), h


def rmsprop(w: Array, g: Array, h: Array, rho: float, delta: float) -> Any:
    h = rho * h + (1 - rho) * g**2
    return w - LR * g / np.sqrt(h + delta), h


def adadelta(w: Array, g: Array, h: Array, u: Array, rho: float, delta: float) -> Any:
    h = rho * h + (1 - rho) * g**2
    d = g * np.sqrt(u + delta) / np.sqrt(h + delta)
    return w - LR * d, h, rho * u + (1 - rho) * d**2


def adam(
    w: Array, g: Array, m: Array, v: Array, beta1: float, beta2: float, delta: float, correction: float | None
) -> Any:
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
    root = np.sqrt(v + delta) if correction is None else np.sqrt(correction * v) + delta
    return w - LR * m / root, m, v


def adamax(w: Array, g: Array, m: Array, u: Array, beta1: float, beta2: float, delta: float, keep_delta: bool) -> Any:
    m, u = beta1 * m + (1 - beta1) * g, np.maximum(beta2 * u, np.abs(g))
    return w - LR * m / (u + delta), m, u + delta * keep_delta


# Formula, and the numbers after the learning rate.
RULES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (sgd, (0.9,)),
    (nesterov, (0.9,)),
    (adagrad, (0.01,)),
    (rmsprop, (0.9, 0.01)),
    (adadelta, (0.95, 0.01)),
    (adam, (0.9, 0.999, 0.01, 1.5)),
    (adam, (0.9, 0.999, 0.01, None)),
    (adamax, (0.9, 0.99, 0.01, False)),
    (adamax, (0.9, 0.99, 0.01, True)),
]


def arguments(name: str, lr: float, *given: Any) -> tuple[UpdateRule, tuple[float, ...]]:
    """Return a rule and its numbers, for the numbers of a formula above."""
    if name == "sgd":
        return updaters.MOMENTUM, (lr, *given)
    if name == "nesterov":
        return updaters.Nesterov.formula, (lr, given[0], 1 + given[0])
    if name == "adagrad":
        return updaters.AdaGrad.formula, (lr, *given)
    first, *rest = given
    numbers = (lr, first, 1 - first)
    if name in ("rmsprop", "adadelta"):
        return (updaters.RMSProp if name == "rmsprop" else updaters.AdaDelta).formula, (*numbers, *rest)
    if name == "adamax":
        beta2, delta, keep_delta = rest
        return updaters.AdamMax.formula, (*numbers, beta2, delta, delta if keep_delta else 0.0)
    beta2, delta, correction = rest
    numbers = (*numbers, beta2, 1 - beta2, delta)
    return (updaters.ADAM_OF_SINGA, numbers) if correction is None else (updaters.ADAM, (*numbers, correction))


def prepared(prep: Preparation, w: Array, g: Array) -> Array:
    g = prep.scale * g
    if prep.high > prep.low:
        g = np.clip(g, prep.low, prep.high)
    made: Array = g + prep.decay * w
    return made


@pytest.mark.parametrize("prep", PREPARATIONS.values(), ids=PREPARATIONS)
@pytest.mark.parametrize(("rule", "numbers"), RULES, ids=lambda value: getattr(value, "__name__", None))
def test_update(ops: NumpyOps, dtype: Any, random: Any, rule: Any, numbers: Any, prep: Preparation) -> None:
    n_state = rule.__code__.co_argcount - 2 - len(numbers)
    w, g = (draw(random, (1000,), dtype) for _ in range(2))
    # means of squares are not below 0
    state = [np.abs(draw(random, (1000,), dtype)) for _ in range(n_state)]
    arrays = [put(ops, x.copy()) for x in (w, g, *state)]
    wanted = [x.astype(np.float64) for x in (w, *state)]
    for _ in range(2):
        formula, rates = arguments(rule.__name__, LR, *numbers)
        ops.update(formula, prep, rates, arrays[1], arrays[0], *arrays[2:])
        gradient = prepared(prep, wanted[0], g.astype(np.float64))
        wanted = list(rule(prep.value_factor * wanted[0], gradient, *wanted[1:], *numbers))
    value, grad, *states = (get(ops, x) for x in arrays)
    np.testing.assert_array_equal(grad, g)
    for actual, formula in zip((value, *states), wanted, strict=True):
        close(actual, formula)


def test_sgd_without_velocity(ops: NumpyOps, dtype: Any, random: Any) -> None:
    w, g = (draw(random, (1000,), dtype) for _ in range(2))
    value, grad = (put(ops, x.copy()) for x in (w, g))
    prep = PREPARATIONS["all"]
    ops.update(updaters.PLAIN, prep, (LR,), grad, value)
    wide = [x.astype(np.float64) for x in (w, g)]
    close(get(ops, value), wide[0] - LR * prepared(prep, *wide))


def test_a_slice_may_be_empty_and_what_is_no_number_stays_none(ops: NumpyOps, dtype: Any) -> None:
    for size in (0, 3):
        w, v = (ops.zeros((size,), dtype) for _ in range(2))
        g = put(ops, np.full(size, np.nan, dtype))
        ops.update(updaters.MOMENTUM, Preparation(low=-1.0, high=1.0), (LR, 0.9), g, w, v)
        assert np.isnan(get(ops, w)).all()


def test_pieces_for_a_rule_of_a_user(ops: NumpyOps, dtype: Any, random: Any) -> None:
    w, g, h = (draw(random, (70_000,), dtype) for _ in range(3))
    arrays = [put(ops, x.copy()) for x in (w, g, h)]
    prep = PREPARATIONS["all"]
    for value, grad, tmp, tmp2, state in ops.update_pieces(prep, *arrays):
        np.multiply(grad, 2, out=tmp)
        np.copyto(tmp2, tmp)
        np.add(state, tmp2, out=state)
        value -= tmp
    step = 2 * prepared(prep, *(x.astype(np.float64) for x in (w, g)))
    close(get(ops, arrays[0]), w - step)
    close(get(ops, arrays[2]), h + step)


# chunks of a GPU have 4096 values
SIZES = (5, 0, 4096, 1, 9000, 3)


@pytest.mark.parametrize("prep", PREPARATIONS.values(), ids=PREPARATIONS)
@pytest.mark.parametrize(
    ("rule", "numbers"), mostly_long([*RULES, (None, ())], 3), ids=lambda x: getattr(x, "__name__", None)
)
def test_a_list_of_slices_has_the_bits_of_each_alone(
    ops: NumpyOps, dtype: Any, random: Any, rule: Any, numbers: Any, prep: Preparation
) -> None:
    n_state = 0 if rule is None else rule.__code__.co_argcount - 2 - len(numbers)
    columns = [[np.abs(draw(random, (size,), dtype)) for size in SIZES] for _ in range(2 + n_state)]
    # slices that begin anywhere in memory
    whole = [put(ops, np.concatenate([column[0], *column])) for column in columns]
    starts = np.cumsum([SIZES[0], *SIZES])
    lists = [ArrayList(x[a : a + n] for a, n in zip(starts[:-1], SIZES, strict=True)) for x in whole]
    alone = [[put(ops, x.copy()) for x in column] for column in columns]
    for lr in (LR, LR / 2):
        formula, rates = (updaters.PLAIN, (lr,)) if rule is None else arguments(rule.__name__, lr, *numbers)
        for w, g, *state in (lists, *zip(*alone, strict=True)):
            ops.update(formula, prep, rates, g, w, *state)
    for column, wanted in zip(lists, alone, strict=True):
        for actual, x in zip(column, wanted, strict=True):
            np.testing.assert_array_equal(get(ops, actual), get(ops, x))


def test_a_shift_is_a_mean_of_sharers(ops: NumpyOps, dtype: Any, random: Any) -> None:
    values, sums = ([draw(random, (size,), dtype) for size in SIZES] for _ in range(2))
    w, g = (ArrayList(put(ops, x.copy()) for x in arrays) for arrays in (values, sums))
    ops.shift(w, g, 3)
    ops.shift(w[0], g[0], 1)
    for i, (value, total) in enumerate(zip(values, sums, strict=True)):
        if not value.size:
            continue
        wanted = value.astype(np.float64) - total / 3 - total * (i == 0)
        close(get(ops, w[i]), wanted)
