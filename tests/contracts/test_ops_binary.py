"""The contract of binary cross entropy and its metric, against formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from tests.contracts.arrays import Array, draw, lay, put, scalar


def drawn(random: Any, shape: tuple[int, int], dtype: Any) -> tuple[Array, Array]:
    """Return scores, some far from 0, and targets, some between 0 and 1."""
    x = 20 * draw(random, shape, dtype)
    return x, random.choice([0.0, 0.25, 1.0], shape).astype(dtype)


@pytest.mark.parametrize("layout", ["plain", "sliced"])
@pytest.mark.parametrize("shape", [(6, 4), (1, 1), (300, 513)])
def test_binary_cross_entropy(ops: NumpyOps, dtype: Any, random: Any, shape: Any, layout: str) -> None:
    x, t = (lay(values, layout) for values in drawn(random, shape, dtype))
    wide, targets = x.astype(np.float64), t.astype(np.float64)
    wanted = targets * np.logaddexp(0, -wide) + (1 - targets) * np.logaddexp(0, wide)
    found = scalar(ops, ops.binary_cross_entropy(put(ops, x), put(ops, t)))
    assert found == pytest.approx(wanted.sum(), rel=1e-6 if dtype == np.float32 else 1e-12)
    weights = random.random(len(x)).astype(dtype)
    found = scalar(ops, ops.binary_cross_entropy(put(ops, x), put(ops, t), put(ops, weights)))
    assert found == pytest.approx((weights[:, None] * wanted).sum(), rel=1e-6 if dtype == np.float32 else 1e-12)
    matches = scalar(ops, ops.count_binary_matches(put(ops, x), put(ops, t)))
    assert matches == ((wide > 0) == (targets > 0.5)).sum()


def test_its_limits(ops: NumpyOps, dtype: Any) -> None:
    x, t = (put(ops, np.array([values], dtype)) for values in ([1e4, -1e4, 1e4, -1e4, 0], [1, 0, 0, 1, 1]))
    assert scalar(ops, ops.binary_cross_entropy(x, t)) == pytest.approx(2e4 + np.log(2), rel=1e-6)
    assert scalar(ops, ops.count_binary_matches(x, t)) == 2


@pytest.mark.parametrize("wrong", [-0.5, 1.5, np.nan])
def test_a_target_out_of_range_is_not_a_number(ops: NumpyOps, dtype: Any, wrong: float) -> None:
    x, t = (put(ops, np.array([values], dtype)) for values in ([1, 2, 3], [1, wrong, 0]))
    assert np.isnan(scalar(ops, ops.binary_cross_entropy(x, t)))


def test_a_score_that_is_not_a_number(ops: NumpyOps, dtype: Any) -> None:
    x, t = (put(ops, np.array([values], dtype)) for values in ([1, np.nan, np.nan], [1, 1, 0]))
    assert np.isnan(scalar(ops, ops.binary_cross_entropy(x, t)))
    assert scalar(ops, ops.count_binary_matches(x, t)) == 1
