"""Moments and Scaling, compared with scikit-learn's StandardScaler."""

from __future__ import annotations

import json
import warnings
from functools import reduce

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from singa_dask.data.tables.scaling import MAX_OF_RARE, MAX_SCALED, Moments, Scaling


def columns(n: int = 5000) -> np.ndarray:
    """Columns of many scales: normal, skewed, Unix seconds, tiny, huge, of two values, and a constant."""
    rng = np.random.default_rng(3)
    return np.stack(
        [
            rng.normal(5, 2, n),
            rng.lognormal(0, 0.5, n),
            1.7e9 + rng.integers(0, 3600, n),
            rng.normal(0, 1e-30, n),
            rng.normal(-3e30, 1e28, n),
            (rng.random(n) < 0.05).astype(float),
            np.full(n, 0.1),
        ],
        axis=1,
    )


@pytest.mark.parametrize("cuts", [(), (1, 2, 700), tuple(range(100, 5000, 100))])
def test_it_is_the_standard_scaler_where_no_value_is_far_off(cuts: tuple[int, ...]) -> None:
    x = columns()
    found = Scaling.of(reduce(Moments.merged, [Moments.of(part) for part in np.split(x, cuts)]))
    expected = StandardScaler().fit(x)
    far = np.abs(expected.transform(x)).max(axis=0)
    assert (far < MAX_SCALED).all()
    std = expected.scale_
    # of the seconds, 64 bits hold no more digits of the mean
    within = np.where(np.arange(7) == 2, 1e-9, 1e-12)
    std[5], expected.mean_[5] = 1.0, 0.0  # zeros and ones
    assert (np.abs(found.std - std)[:-1] <= (within * std)[:-1]).all()
    scaled = (x - expected.mean_) / np.where(std > 0, std, 1)
    assert (np.abs(found.scale(x, np.float64) - scaled).max(axis=0) <= within).all()
    assert found.scale(x).dtype == np.float32


def test_only_zeros_and_ones_stay_as_they_are() -> None:
    x = (np.random.default_rng(2).random((1000, 4)) < [0.5, 0.002, 0.2, 0.2]).astype(float)
    x[:, 2] *= 2
    x[0, 3] = 0.5
    scaled = Scaling.of(Moments.of(x)).scale(x, np.float64)
    assert (scaled[:, :2] == x[:, :2]).all()
    np.testing.assert_allclose(scaled[:, 2:], StandardScaler().fit_transform(x[:, 2:]), atol=1e-12)


def test_values_far_off_are_scaled_to_the_limits() -> None:
    x = np.random.default_rng(1).normal(size=(40_000, 3))
    x[:, 0] = np.arange(40_000) % 400 == 3
    x[:, 0] *= 250
    x[5, 1] = -1e9
    x[:50, 2] = 60
    scaled, plain = Scaling.of(Moments.of(x)).scale(x, np.float64), StandardScaler().fit_transform(x)
    # rarely filled; an outlier; of the other column, which has some, nothing changes
    assert np.abs(plain).max(axis=0) == pytest.approx([19.97, 199.997, 25.6], rel=0.02)
    assert np.abs(scaled).max(axis=0)[:2] == pytest.approx([MAX_OF_RARE, MAX_SCALED])
    np.testing.assert_allclose(scaled[:, 2], plain[:, 2], rtol=0, atol=1e-12)
    for i in range(2):
        assert np.corrcoef(scaled[:, i], plain[:, i])[0, 1] == pytest.approx(1)
    # other data are not clipped
    found = Scaling.of(Moments.of(x)).scale(np.array([[500.0, 0, 0]]), np.float64)
    assert found[0, 0] == pytest.approx(2 * MAX_OF_RARE, rel=0.01)


def test_a_constant_column_is_zero_whatever_comes_later() -> None:
    found = Scaling.of(Moments.of(np.full((300_000, 2), [0.1, 3e20])))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found.scale(np.array([[0.1, 3e20], [5, -1e30]])).tolist() == [[0, 0], [0, 0]]


def test_json_keeps_all_digits() -> None:
    found = Scaling.of(Moments.of(columns()))
    same = Scaling.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert same.mean.tolist() == found.mean.tolist()
    assert same.std.tolist() == found.std.tolist()


def test_shapes_of_records() -> None:
    scaling = Scaling(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    image = scaling.of_shape((2, 5, 4))
    assert image is not None
    assert image.mean.shape == (2, 5, 4)
    assert image.mean[1].min() == image.mean[1].max() == 2
    flat = scaling.of_shape((1, 2))
    assert flat is not None
    assert flat.std.tolist() == [[3, 4]]
    assert scaling.of_shape((3,)) is None
