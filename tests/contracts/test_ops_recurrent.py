"""The contract of the kernels on time steps and rows of tables: against plain numpy in float64, central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from tests.contracts.arrays import blank, close, draw, lay

Array = np.ndarray[Any, Any]
SIZES = [(1, 1), (3, 5), (50, 33), (300, 170)]
EPSILON = 1e-6


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
    gates, out = np.full((n, 4 * d), np.nan, dtype), np.full((n, d), np.nan, dtype)
    given = xw
    if inside:
        given = gates[:, : 3 * d]
        given[...] = xw
    ops.gru_step(given, hu, h, out=out, gates=gates)
    wide = [x.astype(np.float64) for x in (xw, hu, h)]
    close(out, gru(*wide))


@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 5), (40, 7)])
def test_gru_step_grad(ops: NumpyOps, dtype: Any, random: Any, n: int, d: int) -> None:
    xw, hu, h, gy, gh = (draw(random, (n, k * d), dtype) for k in (3, 3, 1, 1, 1))
    gates, out = np.empty((n, 4 * d), dtype), np.empty((n, d), dtype)
    ops.gru_step(xw, hu, h, out=out, gates=gates)
    wide = [x.astype(np.float64) for x in (xw, hu, h)]
    by_input, by_state, direct = differences(gru, wide, [gy.astype(np.float64) + gh])
    ops.gru_step_grad(gates, h, gy, gh)
    near(gates[:, : 3 * d], by_input)
    near(gates[:, d:], by_state)
    near(gh, direct)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("n", "d"), SIZES)
def test_lstm_step(ops: NumpyOps, dtype: Any, random: Any, n: int, d: int, inside: bool) -> None:
    xw, hu, c = (draw(random, (n, k * d), dtype) for k in (4, 4, 1))
    gates = xw.copy() if inside else np.full((n, 4 * d), np.nan, dtype)
    out, out_c = (np.full((n, d), np.nan, dtype) for _ in range(2))
    ops.lstm_step(gates if inside else xw, hu, c, out=out, out_c=out_c, gates=gates)
    wanted, wanted_c = lstm(xw.astype(np.float64) + hu, c.astype(np.float64))
    close(out, wanted)
    close(out_c, wanted_c)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 5), (40, 7)])
def test_lstm_step_grad(ops: NumpyOps, dtype: Any, random: Any, n: int, d: int) -> None:
    xw, hu, c, gy, gh, gc = (draw(random, (n, k * d), dtype) for k in (4, 4, 1, 1, 1, 1))
    gates, out, out_c = np.empty((n, 4 * d), dtype), np.empty((n, d), dtype), np.empty((n, d), dtype)
    ops.lstm_step(xw, hu, c, out=out, out_c=out_c, gates=gates)
    weights = [gy.astype(np.float64) + gh, gc.astype(np.float64)]
    by_gates, before = differences(lstm, [xw.astype(np.float64) + hu, c.astype(np.float64)], weights)
    ops.lstm_step_grad(gates, c, out_c, gy, gh, gc)
    near(gates, by_gates)
    near(gc, before)


def test_gates_far_out_warn_of_nothing(ops: NumpyOps, dtype: Any) -> None:
    far = np.array([[-1e4, 1e4, -200.0, 200.0]], dtype)
    gates, out, out_c = np.empty((1, 4), dtype), np.empty((1, 1), dtype), np.empty((1, 1), dtype)
    ops.lstm_step(far, far, np.ones((1, 1), dtype), out=out, out_c=out_c, gates=gates)
    close(gates, np.array([[0, 1, 0, 1.0]]))
    close(out_c, np.array([[1.0]]))
    ops.gru_step(far[:, :3], np.zeros((1, 3), dtype), out_c, out=out, gates=gates)
    close(out, np.array([[1.0]]))


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("layout", ["plain", "sliced"])
@pytest.mark.parametrize(("n", "v", "d"), [(1, 1, 1), (7, 4, 3), (300, 101, 64)])
def test_rows_of_a_table(
    ops: NumpyOps, dtype: Any, random: Any, n: int, v: int, d: int, layout: str, kind: Any
) -> None:
    table, gy = draw(random, (v, d), dtype), lay(draw(random, (n, d), dtype), layout)
    index = random.integers(0, v, n).astype(kind)
    for padded in (False, True):
        if padded:
            index[::3] = -1
        ones = (index[:, None] == np.arange(v)).astype(np.float64)
        out = blank((n, d), dtype, layout)
        ops.take_rows(table, index, out=out)
        np.testing.assert_array_equal(out, (ones @ table).astype(dtype))
        rows = blank((n, v), dtype, layout)
        ops.one_hot(index, out=rows)
        np.testing.assert_array_equal(rows, ones)
        grad = blank((v, d), dtype, layout)
        ops.add_rows(gy, index, out=grad)
        close(grad, ones.T @ gy)
        ops.add_rows(gy, index, out=grad, accumulate=True)
        close(grad, 2 * ones.T @ gy)
