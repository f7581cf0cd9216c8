"""The contract of label smoothing and of weights of rows, against formulas in float64 and central differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from tests.contracts.arrays import Array, blank, close, draw, get, lay, put, scalar, slopes


def loss(x: Array, labels: Array, e: float) -> Array:
    """Return the loss of scores, with label smoothing."""
    nll = np.log(np.exp(x).sum(axis=1, keepdims=True)) - x
    made: Array = ((1 - e) * nll[np.arange(len(x)), labels] + e * nll.mean(axis=1)).mean()
    return made


@pytest.mark.parametrize("layout", ["plain", "sliced"])
@pytest.mark.parametrize("shape", [(6, 4), (1, 1), (300, 513), (2500, 3)])
@pytest.mark.parametrize("e", [0.1, 0.9])
def test_label_smoothing(ops: NumpyOps, dtype: Any, random: Any, e: float, shape: Any, layout: str) -> None:
    n, d = shape
    x, labels = lay(draw(random, shape, dtype), layout), random.integers(0, d, n)
    wide = x.astype(np.float64)
    wanted_p = np.exp(wide) / np.exp(wide).sum(axis=1, keepdims=True)
    wanted = wanted_p - (1 - e) * np.eye(d)[labels] - e / d
    wanted_loss = loss(wide, labels, e)
    p, gx = (put(ops, blank(shape, dtype, layout)) for _ in range(2))
    ops.softmax(put(ops, x), p)
    assert scalar(ops, ops.cross_entropy(p, labels, smoothing=e)) == pytest.approx(wanted_loss, rel=1e-5, abs=1e-7)
    ops.cross_entropy_grad(p, labels, 2.0, gx, smoothing=e)
    close(get(ops, gx), 2.0 / n * wanted)
    ops.cross_entropy_grad(p, labels, 2.0, p, smoothing=e)
    np.testing.assert_array_equal(get(ops, p), get(ops, gx))


def test_its_gradient_is_that_of_central_differences(ops: NumpyOps, random: Any) -> None:
    x, labels, e = draw(random, (4, 5), np.float64), random.integers(0, 5, 4), 0.2
    p = ops.empty(x.shape, np.float64)
    ops.softmax(put(ops, x), p)
    assert scalar(ops, ops.cross_entropy(p, labels, e)) == pytest.approx(float(loss(x, labels, e)), rel=1e-12)
    ops.cross_entropy_grad(p, labels, 1.0, p, e)
    wanted = slopes(lambda values: loss(values, labels, e), x, np.ones(()))
    np.testing.assert_allclose(get(ops, p), wanted, rtol=1e-7, atol=1e-9)


def test_no_smoothing_changes_no_bit(ops: NumpyOps, dtype: Any, random: Any) -> None:
    x, labels = draw(random, (7, 5), dtype), random.integers(0, 5, 7)
    p, gx, other = (ops.empty(x.shape, dtype) for _ in range(3))
    ops.softmax(put(ops, x), p)
    assert scalar(ops, ops.cross_entropy(p, labels)) == scalar(ops, ops.cross_entropy(p, labels, smoothing=0.0))
    ops.cross_entropy_grad(p, labels, 0.7, gx)
    ops.cross_entropy_grad(p, labels, 0.7, other, smoothing=0.0)
    np.testing.assert_array_equal(get(ops, gx), get(ops, other))


@pytest.mark.parametrize("shape", [(6, 4), (300, 13)])
@pytest.mark.parametrize("e", [0.0, 0.3])
def test_weights_of_rows(ops: NumpyOps, dtype: Any, random: Any, e: float, shape: Any) -> None:
    n, d = shape
    x, labels = draw(random, shape, dtype), random.integers(0, d, n)
    weights = random.integers(0, 4, n).astype(dtype)
    wide = x.astype(np.float64)
    nll = np.log(np.exp(wide).sum(axis=1, keepdims=True)) - wide
    wanted = (weights * ((1 - e) * nll[np.arange(n), labels] + e * nll.mean(axis=1))).mean()
    given, factors = put(ops, x), put(ops, weights)
    p, scaled = (ops.empty(shape, dtype) for _ in range(2))
    ops.softmax(given, p)
    assert scalar(ops, ops.cross_entropy(p, labels, e, factors)) == pytest.approx(wanted, rel=1e-5)
    squares = float((weights[:, None] * wide**2).sum())
    assert scalar(ops, ops.sum_squares(given, factors)) == pytest.approx(squares, rel=1e-5)
    ops.scale_rows(given, factors, scaled)
    close(get(ops, scaled), wide * weights[:, None])
    ops.scale_rows(given, factors, given)
    np.testing.assert_array_equal(get(ops, given), get(ops, scaled))


@pytest.mark.parametrize("layout", ["plain", "sliced"])
@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_focal_factors(ops: NumpyOps, dtype: Any, random: Any, gamma: float, layout: str) -> None:
    x, labels = lay(draw(random, (300, 5), dtype), layout), random.integers(0, 5, 300)
    x[0] = [-40, 40, -40, -40, -40]  # a probability of 1
    labels[0] = 1
    p, factors = put(ops, blank(x.shape, dtype, layout)), put(ops, np.full((2, 300), 3, dtype))
    ops.softmax(put(ops, x), p)
    ops.focal_factors(p, labels, gamma, factors)
    q = np.exp(x.astype(np.float64))[np.arange(300), labels] / np.exp(x.astype(np.float64)).sum(axis=1)
    # the gradient of a focal loss is -q times its slope in q, times that of the cross entropy over (1 - q)
    near = np.minimum(q, 1 - 1e-6)
    slope = ((1 - near * 1.0000001) ** gamma * np.log(near * 1.0000001) - (1 - near) ** gamma * np.log(near)) / 1e-7
    np.testing.assert_allclose(get(ops, factors[0]), 3 * (1 - q) ** gamma, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(get(ops, factors[1])[1:], 3 * slope[1:], rtol=1e-3, atol=1e-3)
    assert abs(get(ops, factors[1])[0]) < 1e-2


def test_a_label_of_minus_one_is_no_hit(ops: NumpyOps, dtype: Any) -> None:
    scores = put(ops, np.arange(6, dtype=dtype).reshape(2, 3))
    assert [scalar(ops, ops.count_in_top(scores, np.array([2, label]), 3)) for label in (2, -1)] == [2, 1]
