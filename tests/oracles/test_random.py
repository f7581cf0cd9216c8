"""Random numbers against their distributions: what SciPy's tests say of dropout masks and of draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps

stats = pytest.importorskip("scipy.stats")

# Of numbers from a fixed seed a test passes always or never; one in ten thousand good seeds would fail.
LEAST_P = 1e-4
SHAPE = (2000, 50)


def drawn(kind: str, *numbers: Any, shape: tuple[int, ...] = SHAPE, key: tuple[int, ...] = (7, 1, 0)) -> Any:
    out = np.empty(shape)
    getattr(NumpyOps(), kind)(key, *numbers, out=out)
    return out


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.8])
def test_a_dropout_mask(keep: float) -> None:
    mask = drawn("dropout_mask", keep)
    assert set(np.unique(mask)) == {0, 1 / keep}
    kept = mask > 0
    assert stats.binomtest(int(kept.sum()), kept.size, keep).pvalue > LEAST_P
    # by row and by column as many as a binomial distribution has
    for axis, n in ((1, SHAPE[1]), (0, SHAPE[0])):
        counts = kept.sum(axis=axis)
        scores = (counts - n * keep) ** 2 / (n * keep * (1 - keep))
        assert stats.chi2(len(counts)).sf(scores.sum()) > LEAST_P
        assert stats.chi2(len(counts)).cdf(scores.sum()) > LEAST_P


def test_neighbours_in_a_mask_are_independent() -> None:
    kept = drawn("dropout_mask", 0.4) > 0
    other = drawn("dropout_mask", 0.4, key=(7, 1, 1)) > 0
    for one, two in ((kept[1:], kept[:-1]), (kept[:, 1:], kept[:, :-1]), (kept, other)):
        table = [[np.sum((one == a) & (two == b)) for b in (False, True)] for a in (False, True)]
        assert stats.chi2_contingency(table).pvalue > LEAST_P


def test_uniform_draws() -> None:
    values = drawn("uniform", shape=(100_000,))
    assert stats.kstest(values, "uniform").pvalue > LEAST_P
    assert stats.chisquare(np.histogram(values, 100, (0, 1))[0]).pvalue > LEAST_P


def test_gaussian_draws() -> None:
    values = drawn("gaussian", shape=(100_000,))
    assert stats.kstest(values, "norm").pvalue > LEAST_P
    # the tails, and moments that a test of the whole hardly sees
    assert stats.binomtest(int((np.abs(values) > 3).sum()), values.size, 2 * stats.norm.sf(3)).pvalue > LEAST_P
    assert stats.skewtest(values).pvalue > LEAST_P and stats.kurtosistest(values).pvalue > LEAST_P


def test_bernoulli_draws() -> None:
    p = np.full(SHAPE, 0.0)
    p[...] = np.linspace(0, 1, SHAPE[1])
    values = drawn("bernoulli", p)
    assert not values[:, 0].any() and values[:, -1].all()
    for column in range(1, SHAPE[1] - 1):
        found = int(values[:, column].sum())
        assert stats.binomtest(found, SHAPE[0], p[0, column]).pvalue > LEAST_P / SHAPE[1]
