"""Facts of features and targets that a fit needs before it trains, from one pass over them, and their scaling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from dask.base import compute

from singa_dask.jobs.datasets.partitions import map_parts

__all__ = ["Facts", "Moments", "Scaling", "facts_of_both", "facts_of_parts"]

Array = npt.NDArray[Any]

BLOCK = 1 << 17


class Moments(NamedTuple):
    """Number of records, mean and sum of squared deviations of each column, float64."""

    n: int
    mean: Array
    squares: Array

    @classmethod
    def of(cls, values: Array) -> Moments:
        """Return those of an array (N, ...), block by block."""
        table = values.reshape(len(values), math.prod(values.shape[1:]))
        rows = max(1, BLOCK // max(1, table.shape[1]))
        blocks = [cls._of_block(table[first : first + rows]) for first in range(0, max(1, len(table)), rows)]
        return reduce(cls.merged, blocks)

    @classmethod
    def _of_block(cls, values: Array) -> Moments:
        if not len(values):
            return cls(0, np.zeros(values.shape[1]), np.zeros(values.shape[1]))
        wide = values.astype(np.float64)
        # relative to the first record, those of constant columns are exact
        first = wide[0].copy()
        wide -= first
        mean = wide.mean(axis=0)
        wide -= mean
        return cls(len(wide), first + mean, np.einsum("ij,ij->j", wide, wide))

    def merged(self, other: Moments) -> Moments:
        """Return those of both together (Chan et al. 1979)."""
        n = self.n + other.n
        if not self.n:
            return other
        apart = other.mean - self.mean
        squares = self.squares + other.squares + apart**2 * (self.n * other.n / n)
        return Moments(n, self.mean + apart * (other.n / n), squares)


@dataclass(frozen=True)
class Scaling:
    """Mean and standard deviation of columns; that of a constant column counts as 1.

    Attributes
    ----------
    mean, std : (D,) ndarray of float64
    """

    mean: Array
    std: Array

    @classmethod
    def of(cls, moments: Moments) -> Scaling:
        """Return that of columns (N, D), of which there is a record."""
        std = np.sqrt(moments.squares / moments.n)
        # what rounding makes of a constant column
        constant = std <= 10 * np.finfo(np.float64).eps * np.abs(moments.mean)
        return cls(moments.mean, np.where(constant, 1.0, std))

    def scale(self, values: Any) -> Any:
        """Return scaled columns as 32-bit floats."""
        return ((values - self.mean) / self.std).astype(np.float32)

    def undo(self, values: Array) -> Array:
        """Return columns as they were, in 64-bit floats."""
        return values.astype(np.float64) * self.std + self.mean


class Facts(NamedTuple):
    """What is known of an array.

    Attributes
    ----------
    lengths : tuple of int
        Number of records of each partition.
    is_finite : bool
        Whether it has neither NaN nor infinity; the others are None if it has.
    moments : Moments or None
        Of each column, if they were asked for.
    distinct : (n,) ndarray or None
        Distinct values, sorted, if they were asked for.
    """

    lengths: tuple[int, ...]
    is_finite: bool
    moments: Moments | None = None
    distinct: Any = None

    def merged(self, other: Facts) -> Facts:
        """Return those of both together."""
        lengths = self.lengths + other.lengths
        if not (self.is_finite and other.is_finite):
            return Facts(lengths, False)
        moments, distinct = self.moments, self.distinct
        if moments is not None and other.moments is not None:
            moments = moments.merged(other.moments)
        if distinct is not None and other.distinct is not None:
            distinct = _distinct(np.concatenate([distinct, other.distinct]))
        return Facts(lengths, True, moments, distinct)


def facts_of_both(x: Any, y: Any, moments: bool, distinct: bool) -> tuple[Facts, Facts]:
    """Return the facts of features and targets in memory; see `facts_of_parts`."""
    return _facts_of(x, moments, False), _facts_of(y, not distinct, distinct)


def facts_of_parts(x: list[Any], y: list[Any], moments: bool, distinct: bool) -> tuple[Facts, Facts]:
    """Return the facts of features and targets of Dask, whose partitions are computed once, in any order.

    Parameters
    ----------
    x, y : list of Delayed
        Their partitions.
    moments : bool
        Whether those of the features are needed.
    distinct : bool
        Whether the distinct values of the targets are needed, else their moments.

    Raises
    ------
    ValueError
        Values are no numbers, or cannot be sorted.
    """
    found: tuple[Facts, Facts] = compute(  # type: ignore[no-untyped-call]
        _reduced(map_parts(partial(_facts_of, moments=moments, distinct=False), x)),
        _reduced(map_parts(partial(_facts_of, moments=not distinct, distinct=distinct), y)),
    )
    return found


def _facts_of(part: Any, moments: bool, distinct: bool) -> Facts:
    values = np.asarray(part)
    lengths = (len(values),)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return Facts(lengths, False)
    return Facts(lengths, True, Moments.of(values) if moments else None, _distinct(values) if distinct else None)


def _distinct(values: Array) -> Array:
    try:
        return np.unique(values)
    except TypeError as error:
        raise ValueError(
            "y has missing values, or values of several types. Expected numbers or texts: leave out or fill in others."
        ) from error


def _reduced(parts: list[Any]) -> Any:
    """Return facts together, merged two by two in a fixed order."""
    while len(parts) > 1:
        parts = map_parts(Facts.merged, parts[::2], parts[1::2]) + parts[len(parts) // 2 * 2 :]
    return parts[0]
