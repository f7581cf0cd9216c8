"""Random numbers by address: the same for any split of the rows, apart for other keys, of the right distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps, philox


@pytest.mark.parametrize("draw", [philox.uniform, philox.gaussian])
@pytest.mark.parametrize("shape", [(12, 5), (12, 8), (12, 3, 3), (12,)])
def test_rows_are_the_same_however_they_are_split(draw: Any, shape: tuple[int, ...]) -> None:
    key = (1, "drop1", 7)
    whole = draw(key, shape)
    assert whole.shape == shape
    for n_workers in (2, 3, 4):
        rows = 12 // n_workers
        parts = [draw(key, (rows, *shape[1:]), first_row=worker * rows) for worker in range(n_workers)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_keys_are_apart() -> None:
    keys = [(1, "a", 0), (2, "a", 0), (1, "b", 0), (1, "a", 1), ("1", "a", 0)]
    drawn = [philox.uniform(key, (4, 4)) for key in keys]
    for i, one in enumerate(drawn):
        for other in drawn[i + 1 :]:
            assert not np.array_equal(one, other)


def test_distributions() -> None:
    u, g = philox.uniform((0,), (1000, 100)), philox.gaussian((0,), (1000, 100))
    assert 0 <= u.min() and u.max() < 1
    assert u.mean() == pytest.approx(0.5, abs=0.005)
    assert g.mean() == pytest.approx(0, abs=0.01)
    assert g.std() == pytest.approx(1, abs=0.01)
    assert np.isfinite(g).all()


def test_dropout_mask(ops: NumpyOps, dtype: Any) -> None:
    mask = np.empty((500, 40), dtype)
    ops.dropout_mask((3, "drop", 0), 0.75, out=mask)
    np.testing.assert_allclose(np.unique(mask), [0, 1 / 0.75], rtol=1e-6)
    assert mask.mean() == pytest.approx(1, abs=0.02)
    part = np.empty((100, 40), dtype)
    ops.dropout_mask((3, "drop", 0), 0.75, out=part, first_row=200)
    np.testing.assert_array_equal(part, mask[200:300])


def test_bounds_and_moments(ops: NumpyOps, dtype: Any) -> None:
    out = np.empty((500, 40), dtype)
    ops.uniform((3, "u"), out=out, low=-2, high=4)
    assert -2 <= out.min() and out.max() < 4
    assert out.mean() == pytest.approx(1, abs=0.05)
    ops.gaussian((3, "g"), out=out, mean=5, std=2)
    assert out.mean() == pytest.approx(5, abs=0.05)
    assert out.std() == pytest.approx(2, abs=0.05)
