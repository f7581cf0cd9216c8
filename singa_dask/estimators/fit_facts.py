"""ArrayFacts: statistics for a fit, computed in one pass over features and targets before training."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from distributed import Client

from singa_dask.arrays import Array
from singa_dask.data.tables.scaling import Moments
from singa_dask.estimators.not_numbers import naming_values
from singa_dask.jobs.cluster import compute_on
from singa_dask.jobs.datasets.lazy_parts import map_parts


class ArrayFacts(NamedTuple):
    """Statistics of an array: if requested, mean and variance of each column, and sorted distinct values.

    ``lengths`` are the numbers of records in the partitions of the array. If the array has NaN or infinity, the other
    statistics are missing.
    """

    lengths: tuple[int, ...]
    is_finite: bool
    moments: Moments | None = None
    distinct: Any = None

    def merged(self, other: ArrayFacts) -> ArrayFacts:
        """Return the statistics of both arrays together."""
        lengths = self.lengths + other.lengths
        if not (self.is_finite and other.is_finite):
            return ArrayFacts(lengths, False)
        moments, distinct = self.moments, self.distinct
        if moments is not None and other.moments is not None:
            moments = moments.merged(other.moments)
        if distinct is not None and other.distinct is not None:
            distinct = _distinct(np.concatenate([distinct, other.distinct]))
        return ArrayFacts(lengths, True, moments, distinct)


def facts_of_both(x: Any, y: Any, moments: bool, distinct: bool) -> tuple[ArrayFacts, ArrayFacts]:
    """Return the statistics of features and targets in memory; see `facts_of_parts`."""
    return _facts_of(x, "X", moments, False), _facts_of(y, "y", not distinct, distinct)


def facts_of_parts(
    x: list[Any], y: list[Any], moments: bool, distinct: bool, client: Client | str | None = None
) -> tuple[ArrayFacts, ArrayFacts]:
    """Return the statistics of features and targets in Dask collections.

    Each partition is computed once, in any order. ``moments`` requests the moments of the features. ``distinct``
    requests the distinct values of the targets instead of their moments.
    """
    x_facts, y_facts = compute_on(
        client,
        _reduced(map_parts(partial(_facts_of, name="X", moments=moments, distinct=False), x)),
        _reduced(map_parts(partial(_facts_of, name="y", moments=not distinct, distinct=distinct), y)),
    )
    return x_facts, y_facts


def _facts_of(part: Any, name: str, moments: bool, distinct: bool) -> ArrayFacts:
    values = np.asarray(part)
    lengths = (len(values),)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return ArrayFacts(lengths, False)
    with naming_values(**({name: part} if moments else {})):
        if moments and values.dtype.kind in "mM":
            raise TypeError(values.dtype)
        found = Moments.of(values) if moments else None
    return ArrayFacts(lengths, True, found, _distinct(values) if distinct else None)


def _distinct(values: Array) -> Array:
    try:
        return np.unique(values)
    except TypeError as error:
        raise ValueError(
            "y has missing values, or values of several types. Expected numbers or texts. Leave out records without y."
        ) from error


def _reduced(parts: list[Any]) -> Any:
    """Merge statistics pairwise, in a fixed order."""
    while len(parts) > 1:
        parts = map_parts(ArrayFacts.merged, parts[::2], parts[1::2]) + parts[len(parts) // 2 * 2 :]
    return parts[0]
