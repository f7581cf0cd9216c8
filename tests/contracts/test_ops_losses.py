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
