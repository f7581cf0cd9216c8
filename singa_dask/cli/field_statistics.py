"""FieldStatistics: range, mean, variance and missing values of a field, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data import Field

__all__ = ["FieldStatistics"]

# fields of more values have one range for all of them
MAX_FEATURES = 1 << 12

Values = npt.NDArray[Any]


class FieldStatistics:
    """Statistics of each value of a field; of all of them together if there are many.

    Attributes
    ----------
    low, high, mean, variance : (n_features,) float64
        NaN where a feature has no finite value. Infinite values and NaN do not count.
    counts : (n_features,) int64
        Number of finite values.
    n_nan, n_infinite : int
    """

    def __init__(self, field: Field) -> None:
        size = int(np.prod(field.shape, dtype=np.int64))
        n = size if size <= MAX_FEATURES else 1
        self.by_feature = n == size
        self.low, self.high = np.full(n, np.inf), np.full(n, -np.inf)
        self.mean, self._squares = np.zeros(n), np.zeros(n)
        self.counts = np.zeros(n, np.int64)
        self.n_nan = self.n_infinite = 0

    def add(self, block: Values) -> None:
        """Add the values of some records, (n, *shape)."""
        values = block.reshape(-1, len(self.counts)).astype(np.float64)
        finite = np.isfinite(values)
        if finite.all():
            counts = np.full(len(self.counts), len(values))
            low, high = values.min(axis=0), values.max(axis=0)
        else:
            n_nan = int(np.isnan(values).sum())
            self.n_nan += n_nan
            self.n_infinite += int((~finite).sum()) - n_nan
            counts = finite.sum(axis=0)
            low, high = np.where(finite, values, np.inf).min(axis=0), np.where(finite, values, -np.inf).max(axis=0)
            values = np.where(finite, values, 0.0)
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        self._merge(values, finite, counts)

    def _merge(self, values: Values, finite: Values, counts: Values) -> None:
        """Merge means and sums of squared differences (Chan, Golub and LeVeque 1979)."""
        some, total = np.maximum(counts, 1), np.maximum(self.counts + counts, 1)
        mean = values.sum(axis=0) / some
        squares = (np.square(values - mean) * finite).sum(axis=0)
        step = mean - self.mean
        self._squares += squares + np.square(step) * self.counts * counts / total
        self.mean += np.where(counts > 0, step * counts / total, 0.0)
        self.counts += counts

    @property
    def variance(self) -> Values:
        """Variance of each feature."""
        return np.asarray(self._squares / np.maximum(self.counts, 1))

    def summary(self) -> dict[str, Any]:
        """Return ``min``, ``max``, ``mean`` of all values, None if none is finite, and ``nan``, their number."""
        n = int(self.counts.sum())
        if not n:
            return {"nan": self.n_nan}
        mean = float((self.mean * self.counts).sum() / n)
        return {"min": float(self.low.min()), "max": float(self.high.max()), "mean": mean, "nan": self.n_nan}
