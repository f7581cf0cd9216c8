"""Find likely problems in the values and labels of records: ids, constants, gaps and duplicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data.types import Arrays, Field
from singa_dask.shown import plural
from singa_dask.wording import listed

# the highest class number may be at most this multiple of the number of distinct labels
MAX_SPARSE = 10
# if standard deviations differ by a larger ratio, features have very different scales
MAX_RATIO = 1000.0
MAX_NAMED = 5
MAX_COMPARED = 1 << 14
# a column of ids has at least MIN_NUMBERED records, and this share of distinct values; the share is below 1, because
# float32 rounds some large ids to equal values
MIN_NUMBERED, NUMBERED = 20, 0.99
# fields with more values report a single range for all values
MAX_FEATURES = 1 << 12

Values = npt.NDArray[Any]


class FieldStatistics:
    """Statistics of each value of a field, or of all values together if there are many.

    Attributes
    ----------
    low, high, mean, variance : (n_features,) float64
        Statistics of finite values; NaN for a feature without finite values.
    counts : (n_features,) int64
        Number of finite values.
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
        n_nan = int(np.isnan(values).sum())
        self.n_nan += n_nan
        self.n_infinite += int((~finite).sum()) - n_nan
        self.low = np.minimum(self.low, values.min(axis=0, where=finite, initial=np.inf))
        self.high = np.maximum(self.high, values.max(axis=0, where=finite, initial=-np.inf))
        self._merge(np.where(finite, values, 0.0), finite, finite.sum(axis=0))

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
        """Return ``min``, ``max`` and ``mean`` of the finite values, if any, and ``nan``, the count of NaN."""
        n = int(self.counts.sum())
        if not n:
            return {"nan": self.n_nan}
        mean = float((self.mean * self.counts).sum() / n)
        return {"min": float(self.low.min()), "max": float(self.high.max()), "mean": mean, "nan": self.n_nan}


def label_findings(labels: Mapping[int, int], names: Sequence[str], n_records: int) -> list[str]:
    """Return messages about likely problems of labels, given the number of records read per label.

    ``names`` are the class names, if any, and ``n_records`` the size of the store.
    """
    low, high, n_seen = min(labels), max(labels), sum(labels.values())
    if n_seen >= MIN_NUMBERED and len(labels) >= NUMBERED * n_seen:
        return [f"{len(labels)} different labels in {n_seen} records, like ids. Set label"]
    if low < 0:
        return [f"labels from {low} on. Expected classes from 0 on"]
    if names and high >= len(names):
        return [f"label {high} has no class name: there are names for 0 to {len(names) - 1}"]
    if high >= max(MAX_SPARSE * len(labels), 100):
        return [f"{len(labels)} different labels from {low} to {high}. Expected classes from 0 on, without gaps"]
    if len(labels) == 1:
        return [f"all labels are {low}"]
    if low and not names:
        return [f"labels from {low} to {high}. Expected classes from 0 on: subtract {low}, or have {high + 1} outputs"]
    absent = [label for label in range(max(high + 1, len(names))) if label not in labels]
    if not absent:
        return []
    shown = listed([f"{label} ({names[label]})" if names else str(label) for label in absent])
    if n_seen < n_records:
        return [f"not among the {n_seen} records looked at: class {shown}"]
    return [f"no record of class {shown}"]


def value_findings(field: str, statistics: FieldStatistics, names: Mapping[int, str], is_picture: bool) -> list[str]:
    """Return messages about likely problems of the values of a field.

    ``names`` are the names of features by index, where known. With ``is_picture``, constant values are not a problem.
    """
    texts = []
    if statistics.n_nan:
        texts.append(f"{field}: {plural(statistics.n_nan, 'value is', 'values are')} NaN")
    if statistics.n_infinite:
        texts.append(f"{field}: {plural(statistics.n_infinite, 'value is', 'values are')} infinite")
    empty = np.flatnonzero(statistics.counts == 0)
    if len(empty):
        texts.append(f"{field}: no numbers in {_features(empty, names)}")
    constant = np.flatnonzero((statistics.low == statistics.high) & (statistics.counts > 1))
    if len(constant) == len(statistics.counts):
        return [*texts, f"{field}: all records are equal"] if statistics.by_feature else texts
    if is_picture or not statistics.by_feature:
        return texts
    if len(constant):
        texts.append(f"{field}: constant: {_features(constant, names)}")
    deviations = np.sqrt(statistics.variance)
    varied = np.flatnonzero((deviations > 0) & (statistics.low < statistics.high))
    if len(varied) and deviations[varied].max() > MAX_RATIO * deviations[varied].min():
        least, most = (varied[pick(deviations[varied])] for pick in (np.argmin, np.argmax))
        texts.append(
            f"{field}: very different scales: standard deviation {deviations[least]:.3g} of {_name(least, names)}, "
            f"{deviations[most]:.3g} of {_name(most, names)}. Scale features: standardise: true in store_conf"
        )
    return texts


def _features(indices: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int64]], names: Mapping[int, str]) -> str:
    return listed([_name(int(index), names) for index in indices], MAX_NAMED)


def _name(index: int, names: Mapping[int, str]) -> str:
    return names.get(int(index), f"value {index}")


class Ids:
    """Finds features that look like ids: nearly each of the first records has a different whole number.

    ``names`` are the names of features by index, where known.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names, self._blocks, self._n = names, list[npt.NDArray[Any]](), 0

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add the values of some records, (n, *shape)."""
        if values.ndim == 2 and self._n < MAX_COMPARED:
            self._blocks.append(values[: MAX_COMPARED - self._n])
            self._n += len(self._blocks[-1])

    def names(self) -> str:
        """Return the names of the features that look like ids; empty if there are none."""
        if self._n < MIN_NUMBERED:
            return ""
        columns = np.concatenate(self._blocks).T
        like_ids = [
            i
            for i, values in enumerate(columns)
            if (values == values.round()).all() and len(np.unique(values)) >= NUMBERED * len(values)
        ]
        return _features(like_ids, self._names) if like_ids else ""


class Repeats:
    """Counts duplicates: records, among the first records, that are equal to an earlier record."""

    def __init__(self) -> None:
        self._labels: dict[bytes, int] = {}
        self._n = self._n_equal = self._n_relabelled = 0

    def add(self, arrays: Arrays) -> None:
        """Compare the records of a block with earlier records."""
        values = next((array for name, array in arrays.items() if name != "label"), None)
        if values is None:
            return
        values = np.ascontiguousarray(values[: MAX_COMPARED - self._n])
        labels = arrays.get("label")
        known = [0] * len(values) if labels is None or labels.ndim != 1 else labels.tolist()
        for row, label in zip(values, known, strict=False):
            first = self._labels.setdefault(row.tobytes(), label)
            self._n_relabelled += first != label
        self._n += len(values)
        self._n_equal = self._n - len(self._labels)

    def findings(self) -> list[str]:
        """Return a message about duplicates; an empty list if there are none."""
        if not self._n_equal:
            return []
        others = f", {self._n_relabelled} of them with another label" if self._n_relabelled else ""
        return [f"{self._n_equal} of {self._n} records compared are equal to an earlier one{others}"]
