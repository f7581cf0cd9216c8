"""Findings: what in the records of a store is likely to make trouble in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.cli.field_statistics import FieldStatistics
from singa_dask.data import Arrays
from singa_dask.data.stores.class_names import show_names

__all__ = ["Ids", "Repeats", "label_findings", "value_findings"]

# labels up to the number of distinct ones times this are class numbers
MAX_SPARSE = 10
# ratio of standard deviations from which on features are of very different scales
MAX_RATIO = 1000.0
MAX_NAMED = 5
MAX_COMPARED = 1 << 14
# of so many records nearly all have another number, if they are numbered: float32 makes some of large numbers equal
MIN_NUMBERED, NUMBERED = 20, 0.99


def label_findings(labels: Mapping[int, int], names: Sequence[str], n_records: int) -> list[str]:
    """Return what is wrong with labels.

    Parameters
    ----------
    labels : mapping of int to int
        Number of records of each label that was looked at.
    names : sequence of str
        Class names, may be empty.
    n_records : int
        Number of records of the store.
    """
    low, high, n_seen = min(labels), max(labels), sum(labels.values())
    if n_seen >= MIN_NUMBERED and len(labels) >= NUMBERED * n_seen:
        return [f"{len(labels)} different labels in {n_seen} records: like ids, which number records. Set label"]
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
    shown = show_names([f"{label} ({names[label]})" if names else str(label) for label in absent])
    if n_seen < n_records:
        return [f"not among the {n_seen} records looked at: class {shown}"]
    return [f"no record of class {shown}"]


def value_findings(field: str, found: FieldStatistics, names: Mapping[int, str], is_picture: bool) -> list[str]:
    """Return what is wrong with the values of a field.

    Parameters
    ----------
    field : str
    found : FieldStatistics
    names : mapping of int to str
        Names of features, by index, where they have some.
    is_picture : bool
        Whether values are pixels: some of these may well be constant.
    """
    said = []
    if found.n_nan:
        said.append(f"{field}: {found.n_nan} values are NaN")
    if found.n_infinite:
        said.append(f"{field}: {found.n_infinite} values are infinite")
    empty = np.flatnonzero(found.counts == 0)
    if len(empty):
        said.append(f"{field}: no numbers in {_features(empty, names)}")
    constant = np.flatnonzero((found.low == found.high) & (found.counts > 1))
    if len(constant) == len(found.counts):
        return [*said, f"{field}: all records are equal"] if found.by_feature else said
    if is_picture or not found.by_feature:
        return said
    if len(constant):
        said.append(f"{field}: constant: {_features(constant, names)}")
    deviations = np.sqrt(found.variance)
    varied = np.flatnonzero((deviations > 0) & (found.low < found.high))
    if len(varied) and deviations[varied].max() > MAX_RATIO * deviations[varied].min():
        least, most = (varied[pick(deviations[varied])] for pick in (np.argmin, np.argmax))
        said.append(
            f"{field}: very different scales: standard deviation {deviations[least]:.3g} of {_name(least, names)}, "
            f"{deviations[most]:.3g} of {_name(most, names)}. Scale features, e.g. by mean_file and std_file"
        )
    return said


def _features(indices: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int64]], names: Mapping[int, str]) -> str:
    shown = ", ".join(_name(index, names) for index in indices[:MAX_NAMED])
    return f"{shown} and {len(indices) - MAX_NAMED} more" if len(indices) > MAX_NAMED else shown


def _name(index: int, names: Mapping[int, str]) -> str:
    return names.get(int(index), f"value {index}")


class Ids:
    """Finds features that are another whole number in nearly each record, as ids are; of many records, in the first.

    Parameters
    ----------
    names : mapping of int to str
        Names of features, by index, where they have some.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names, self._blocks, self._n = names, list[npt.NDArray[Any]](), 0

    def add(self, values: npt.NDArray[Any]) -> None:
        """Look at the values of some records, (n, *shape)."""
        if values.ndim == 2 and self._n < MAX_COMPARED:
            self._blocks.append(values[: MAX_COMPARED - self._n])
            self._n += len(self._blocks[-1])

    def found(self) -> str:
        """Return the names of such features; empty if there are none."""
        if self._n < MIN_NUMBERED:
            return ""
        columns = np.concatenate(self._blocks).T
        found = [i for i, each in enumerate(columns) if (each == each.round()).all() and _differ(each)]
        return _features(found, self._names) if found else ""


def _differ(values: npt.NDArray[Any]) -> bool:
    return len(np.unique(values)) >= NUMBERED * len(values)


class Repeats:
    """Counts records that are equal to an earlier one. Of many records, the first ones are compared."""

    def __init__(self) -> None:
        self._labels: dict[bytes, int] = {}
        self._n = self._n_equal = self._n_relabelled = 0

    def add(self, arrays: Arrays) -> None:
        """Compare the records of a block with all earlier ones."""
        values = next((array for name, array in arrays.items() if name != "label"), None)
        if values is None:
            return
        values = np.ascontiguousarray(values[: MAX_COMPARED - self._n])
        labels = arrays.get("label")
        known = [0] * len(values) if labels is None or labels.ndim != 1 else labels.tolist()
        for row, label in zip(values.reshape(len(values), -1), known, strict=False):
            first = self._labels.setdefault(row.tobytes(), label)
            self._n_relabelled += first != label
        self._n += len(values)
        self._n_equal = self._n - len(self._labels)

    def findings(self) -> list[str]:
        """Return what was found."""
        if not self._n_equal:
            return []
        others = f", {self._n_relabelled} of them with another label" if self._n_relabelled else ""
        return [f"{self._n_equal} of {self._n} records compared are equal to an earlier one{others}"]
