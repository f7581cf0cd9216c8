"""Percents: find plain numbers in a percent column that look like fractions, such as 0.56 for 56 %."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from singa_dask.data.tables.column_values import as_floats, column_kind, whole
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.scaling import Scaling
from singa_dask.data.tables.spelling import PERCENT, Spelling
from singa_dask.wording import listed

# a single value looks like a fraction if it is more than LOW standard deviations of the training data below the mean,
# and 100 times the value is within NEAR standard deviations of the mean
LOW, NEAR = 1.5, 3.0


class Percents(NamedTuple):
    """Counts of values: all values, between 0 and 1, below 0 or above 1, and far too small.

    A value between 0 and 1 is far too small if it is unusual in the training data, but 100 times the value is usual.
    """

    n: int = 0
    n_between: int = 0
    n_beyond: int = 0
    n_too_small: int = 0

    @classmethod
    def of(cls, column: pa.ChunkedArray, mean: float = 0.0, std: float = np.inf) -> Percents:
        """Count the values of a column of numbers, without missing values.

        ``mean`` and ``std`` are the mean and deviation of the training data, if known.
        """
        values = as_floats(whole(column))
        values = values[~np.isnan(values)]
        between, beyond = (values > 0) & (values < 1), (values < 0) | (values > 1)
        are_near = np.abs(100 * values - mean) <= NEAR * std
        too_small = between & (values < mean - LOW * std) & are_near
        return cls(len(values), int(between.sum()), int(beyond.sum()), int(too_small.sum()))

    def plus(self, other: Percents) -> Percents:
        """Return the sum of both counts."""
        return Percents(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def are_fractions(self) -> bool:
        """Whether all values are from 0 to 1, and some in between.

        A single value is compared with the training data.
        """
        return self.n_between > 0 and not self.n_beyond and (self.n > 1 or self.n_too_small > 0)


def percent_columns(facts: TableFacts) -> list[str]:
    """Return the percent columns of the training data, without columns whose known mean is at most 1."""
    forms = facts.spelling.numbers
    return [
        name
        for name in facts.features
        if name in forms and forms[name].unit == PERCENT and facts.means.get(name, np.inf) > 1
    ]


def count_percents(
    table: pa.Table, facts: TableFacts, spelling: Spelling, kinds: Mapping[str, str], scaling: Scaling | None = None
) -> dict[str, Percents]:
    """Count the plain numbers in percent columns of a table.

    Values with a percent sign are not counted, because their meaning is clear. Columns whose mean in training is at
    most 1 are left out.

    Parameters
    ----------
    table : pyarrow.Table
        Columns of numbers.
    facts : TableFacts
        Facts of the training data.
    spelling : Spelling
        How this table writes its numbers.
    kinds : mapping of str to str
        Kinds of the columns before texts became numbers.
    scaling : Scaling, optional
        Mean and deviation of each value of a record in the training data.
    """
    forms = spelling.numbers
    signed = {name for name, form in forms.items() if form.unit == PERCENT and kinds.get(name) == "string"}
    names = [name for name in percent_columns(facts) if name not in signed]
    moments = _moments(facts, scaling)
    return {
        name: Percents.of(table.column(name), *moments.get(name, ()))
        for name in names
        if column_kind(table.column(name).type) == "number"
    }


def _moments(facts: TableFacts, scaling: Scaling | None) -> dict[str, tuple[float, float]]:
    """Return mean and deviation of each feature that is one value of a record."""
    values = [name for feature in facts.features for name in facts.values_of(feature)]
    if scaling is None or scaling.mean.size != len(values):
        return {}
    return dict(zip(values, zip(scaling.mean.flat, scaling.std.flat, strict=True), strict=True))


def percent_warnings(counts: Mapping[str, Percents]) -> list[str]:
    """Return a warning if all values of a percent column look like fractions; else []."""
    names = [name for name, each in counts.items() if each.are_fractions]
    if not names:
        return []
    columns = f"column{'s' * (len(names) > 1)} {listed(names)}"
    return [
        f"{columns}: all values are from 0 to 1, but the training data has percent: 0.56 is read as 0.56 %. Multiply "
        "the values by 100 if they are fractions."
    ]
