"""The contract of the kernels on time steps and rows of tables: against plain numpy in float64, central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from tests.contracts.arrays import blank, close, draw, get, lay, put, untouched

Array = np.ndarray[Any, Any]
SIZES = [(1, 1), (3, 5), (50, 33), (300, 170)]
EPSILON = 1e-6


def missing(ops: NumpyOps, n: int, d: int, dtype: Any) -> Any:
    """Return memory of the device that holds NaN."""
    return put(ops, np.full((n, d), np.nan, dtype))


def logistic(x: Array) -> Array:
    y: Array = 1 / (1 + np.exp(-x))
    return y


def gru(xw: Array, hu: Array, h: Array) -> Array:
    (xc, xz, xr), (uz, ur, uc) = np.split(xw, 3, axis=1), np.split(hu, 3, axis=1)
    z, r = logistic(xz + uz), logistic(xr + ur)
    out: Array = z * h + (1 - z) * np.tanh(xc + r * uc)
    return out


def lstm(a: Array, c: Array) -> tuple[Array, Array]:
    i, f, o, g = np.split(a, 4, axis=1)
    new = logistic(f) * c + logistic(i) * np.tanh(g)
    return logistic(o) * np.tanh(new), new


def differences(f: Callable[..., Any], at: list[Array], weights: list[Array]) -> list[Array]:
    """Return the gradients of ``sum(weights * f(*at))`` by central differences, each row of ``f`` by itself."""
    found = []
    for k, values in enumerate(at):
        grad = np.zeros_like(values)
        for column in range(values.shape[1]):
            sides = []
            for sign in (1, -1):
                moved = [one.copy() for one in at]
                moved[k][:, column] += sign * EPSILON
                results = f(*moved)
                results = results if isinstance(results, tuple) else (results,)
                sides.append(sum((w * y).sum(axis=1) for w, y in zip(weights, results, strict=True)))
            grad[:, column] = (sides[0] - sides[1]) / (2 * EPSILON)
        found.append(grad)
    return found


def near(actual: Array, wanted: Array) -> None:
    """Compare with differences."""
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=2e-5 if actual.dtype == np.float32 else 1e-8)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("n", "d"), SIZES)
def test_gru_step(ops: NumpyOps, dtype: Any, random: Any, n: int, d: int, inside: bool) -> None:
    xw, hu, h = (draw(random, (n, k * d), dtype) for k in (3, 3, 1))
    gates, out, given = missing(ops, n, 4 * d, dtype), missing(ops, n, d, dtype), put(ops, xw)
    if inside:
        gates[:, : 3 * d] = given
        given = gates[:, : 3 * d]
    ops.gru_step(given, put(ops, hu), put(ops, h), out=out, gates=gates)
    wide = [x.astype(np.float64) for x in (xw, hu, h)]
    close(get(ops, out), gru(*wide))


@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 5), (40, 7)])
def test_gru_step_grad(ops: NumpyOps, dtype: Any, random: Any, n: int, d: int) -> None:
    xw, hu, h, gy, gh = (draw(random, (n, k * d), dtype) for k in (3, 3, 1, 1, 1))
    wide = [x.astype(np.float64) for x in (xw, hu, h)]
    by_input, by_state, direct = differences(gru, wide, [gy.astype(np.float64) + gh])
    gates, before, back = missing(ops, n, 4 * d, dtype), put(ops, h), put(ops, gh)
    ops.gru_step(put(ops, xw), put(ops, hu), before, out=missing(ops, n, d, dtype), gates=gates)
    ops.gru_step_grad(gates, before, put(ops, gy), back)
    near(get(ops, gates)[:, : 3 * d], by_input)
    near(get(ops, gates)[:, d:], by_state)
    near(get(ops, back), direct)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("n", "d"), SIZES)
def test_lstm_step(ops: NumpyOps, dtype: Any, random: Any, n: int, d: int, inside: bool) -> None:
    xw, hu, c = (draw(random, (n, k * d), dtype) for k in (4, 4, 1))
    wanted, wanted_c = lstm(xw.astype(np.float64) + hu, c.astype(np.float64))
    given = put(ops, xw)
    gates = given if inside else missing(ops, n, 4 * d, dtype)
    out, out_c = (missing(ops, n, d, dtype) for _ in range(2))
    ops.lstm_step(given, put(ops, hu), put(ops, c), out=out, out_c=out_c, gates=gates)
    close(get(ops, out), wanted)
    close(get(ops, out_c), wanted_c)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 5), (40, 7)])
def test_lstm_step_grad(ops: NumpyOps, dtype: Any, random: Any, n: int, d: int) -> None:
    xw, hu, c, gy, gh, gc = (draw(random, (n, k * d), dtype) for k in (4, 4, 1, 1, 1, 1))
    weights = [gy.astype(np.float64) + gh, gc.astype(np.float64)]
    by_gates, before = differences(lstm, [xw.astype(np.float64) + hu, c.astype(np.float64)], weights)
    gates, cell, new, back = missing(ops, n, 4 * d, dtype), put(ops, c), missing(ops, n, d, dtype), put(ops, gc)
    ops.lstm_step(put(ops, xw), put(ops, hu), cell, out=missing(ops, n, d, dtype), out_c=new, gates=gates)
    ops.lstm_step_grad(gates, cell, new, put(ops, gy), put(ops, gh), back)
    near(get(ops, gates), by_gates)
    near(get(ops, back), before)


def test_gates_far_out_warn_of_nothing(ops: NumpyOps, dtype: Any) -> None:
    far = put(ops, np.array([[-1e4, 1e4, -200.0, 200.0]], dtype))
    gates, out, out_c = (missing(ops, 1, n, dtype) for n in (4, 1, 1))
    ops.lstm_step(far, far, put(ops, np.ones((1, 1), dtype)), out=out, out_c=out_c, gates=gates)
    close(get(ops, gates), np.array([[0, 1, 0, 1.0]]))
    close(get(ops, out_c), np.array([[1.0]]))
    ops.gru_step(far[:, :3], ops.zeros((1, 3), dtype), out_c, out=out, gates=gates)
    close(get(ops, out), np.array([[1.0]]))


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("layout", ["plain", "sliced"])
@pytest.mark.parametrize(("n", "v", "d"), [(1, 1, 1), (7, 4, 3), (9, 40, 3), (300, 101, 64), (700, 3, 130)])
def test_rows_of_a_table(
    ops: NumpyOps, dtype: Any, random: Any, n: int, v: int, d: int, layout: str, kind: Any
) -> None:
    table, gy = draw(random, (v, d), dtype), lay(draw(random, (n, d), dtype), layout)
    there, grads = put(ops, table), put(ops, gy)
    index = random.integers(0, v, n).astype(kind)
    for padded in (False, True):
        if padded:
            index[::3] = -1
        ones = (index[:, None] == np.arange(v)).astype(np.float64)
        prepared = ops.row_index(index.copy(), v, ops.row_index(np.zeros(n, kind), v))
        # as a layer has them, and as they are most quickly read
        for places in (index, ops.labels(index.copy()), ops.from_host(index), prepared):
            np.testing.assert_array_equal(ops.to_host(places), index)
            out, rows = put(ops, blank((n, d), dtype, layout)), put(ops, blank((n, v), dtype, layout))
            ops.take_rows(there, places, out=out)
            ops.one_hot(places, out=rows)
            taken = get(ops, out)
            assert untouched(taken)
            np.testing.assert_array_equal(taken, (ones @ table).astype(dtype))
            close(get(ops, rows), ones)
            grad = put(ops, blank((v, d), dtype, layout))
            for times in (1, 2):
                ops.add_rows(grads, places, out=grad, accumulate=times == 2)
                close(get(ops, grad), times * (ones.T @ gy))


def test_no_rows_of_a_table(ops: NumpyOps, dtype: Any) -> None:
    table, none, index = put(ops, np.ones((4, 3), dtype)), ops.empty((0, 3), dtype), np.zeros(0, np.int64)
    for places in (index, ops.from_host(index)):
        ops.take_rows(table, places, out=none)
        ops.one_hot(places, out=none)
        ops.add_rows(none, places, out=table, accumulate=True)
        np.testing.assert_array_equal(get(ops, table), np.ones((4, 3)))
    ops.add_rows(none, index, out=table)
    assert not get(ops, table).any()


def test_rows_are_added_in_the_same_order_each_time(ops: NumpyOps, random: Any) -> None:
    # more places than 16 bits have, nearly all of which nothing is added to
    gy, index = put(ops, draw(random, (500, 5), np.float32)), random.integers(0, 3, 500)
    sums = []
    for _ in range(2):
        out = put(ops, np.zeros((33000, 5), np.float32))
        ops.add_rows(gy, index, out=out)
        sums.append(get(ops, out))
    np.testing.assert_array_equal(*sums)
    assert sums[0].any(axis=1).sum() == 3
