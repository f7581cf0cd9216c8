"""Moments of columns, computed in one pass in 64 bits, and the scaling that they determine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask.arrays import Array

BLOCK = 1 << 17
MAX_SCALED = 100.0
"""Maximum of scaled values in the training data. Values of other data can be larger, because nothing is clipped."""
MAX_OF_RARE, RARE = 10.0, 0.01
"""Maximum of scaled values in a column whose share of nonzero values is below ``RARE``."""


class Moments(NamedTuple):
    """The number of records, and statistics of each column.

    The statistics are mean, sum of squared deviations, minimum and maximum, float64. ``filled`` is the number of
    nonzero values of each column, int64.
    """

    n: int
    mean: Array
    squares: Array
    low: Array
    high: Array
    filled: Array

    @classmethod
    def of(cls, values: Array) -> Moments:
        """Return the moments of an array (N, ...), computed block by block."""
        table = values.reshape(len(values), math.prod(values.shape[1:]))
        rows = max(1, BLOCK // max(1, table.shape[1]))
        blocks = [cls._of_block(table[first : first + rows]) for first in range(0, max(1, len(table)), rows)]
        return reduce(cls.merged, blocks)

    @classmethod
    def _of_block(cls, values: Array) -> Moments:
        if not len(values):
            return cls(0, *(np.full(values.shape[1], value) for value in (0.0, 0.0, np.inf, -np.inf, 0)))
        filled = np.count_nonzero(values, axis=0)
        wide = values.astype(np.float64)
        low, high = wide.min(axis=0), wide.max(axis=0)
        # subtract the first record, so that the moments of constant columns are exact
        first = wide[0].copy()
        with np.errstate(over="ignore", invalid="ignore"):
            wide -= first
            mean = wide.mean(axis=0)
            wide -= mean
            return cls(len(wide), first + mean, np.einsum("ij,ij->j", wide, wide), low, high, filled)

    def merged(self, other: Moments) -> Moments:
        """Return the moments of both sets of records together (Chan et al. 1979)."""
        n = self.n + other.n
        if not self.n or not other.n:
            return self if self.n else other
        with np.errstate(over="ignore", invalid="ignore"):
            difference = other.mean - self.mean
            squares = self.squares + other.squares + difference**2 * (self.n * other.n / n)
            mean = self.mean + difference * (other.n / n)
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Moments(n, mean, squares, low, high, self.filled + other.filled)


@dataclass(frozen=True)
class Scaling:
    """Scaling of columns: ``mean`` is subtracted, then the result is divided by ``std``.

    Attributes
    ----------
    mean, std : (D,) ndarray of float64
        Mean and standard deviation of each column, with three exceptions.

        ``std`` is larger if values of the training data would otherwise be scaled to more than `MAX_SCALED`. If the
        share of nonzero values is below `RARE`, this limit is `MAX_OF_RARE`, because such a column has a small
        deviation and values far beyond it.

        A column of zeros and ones, such as the column of a one-hot category, has mean 0 and ``std`` 1. Divided by a
        small deviation, rare categories would weigh more than frequent categories, and the net would memorise them.

        ``std`` is 0 for a constant column. Its values are scaled to 0, also in other data.
    """

    mean: Array
    std: Array

    @classmethod
    def of(cls, moments: Moments) -> Scaling:
        """Return the scaling of columns, given their moments over at least one record."""
        std = np.sqrt(moments.squares / moments.n)
        # a column whose deviation is within the rounding error counts as constant
        constant = std <= 10 * np.finfo(np.float64).eps * np.abs(moments.mean)
        farthest = np.maximum(moments.high - moments.mean, moments.mean - moments.low)
        most = np.where(moments.filled < RARE * moments.n, MAX_OF_RARE, MAX_SCALED)
        std = np.where(constant, 0.0, np.maximum(std, farthest / most))
        # the mean of values from 0 to 1 is smaller than the share of nonzero values, unless all nonzero values are 1
        are_ones = moments.mean >= (1 - 1e-9) * moments.filled / moments.n
        are_flags = (moments.low == 0) & (moments.high == 1) & are_ones
        return cls(np.where(are_flags, 0.0, moments.mean), np.where(are_flags, 1.0, std))

    @cached_property
    def divisor(self) -> Array:
        """``std``, with infinity for constant columns, so that their values become 0."""
        return np.where(self.std > 0, self.std, np.inf)

    @property
    def needs_digits(self) -> npt.NDArray[np.bool_]:
        """Mask of the columns that lose too many digits in 32-bit floats.

        A column does if its mean is much larger than its deviation.
        """
        return (self.std > 0) & (self.std < 256 * np.finfo(np.float32).eps * np.abs(self.mean))

    def scale(self, values: Any, dtype: npt.DTypeLike = np.float32) -> Any:
        """Scale columns. The result is computed in 64 bits."""
        with np.errstate(over="ignore"):
            return ((values - self.mean) / self.divisor).astype(dtype)

    def undo(self, values: Array) -> Array:
        """Return the original values of scaled columns, in 64-bit floats."""
        return values.astype(np.float64) * self.std + self.mean

    def of_shape(self, shape: Sequence[int]) -> Scaling | None:
        """Return a scaling for records of this shape: by value, or for images by channel.

        Images are (channels, height, width). If the number of columns does not fit the shape, the result is None.
        """
        if len(self.mean) != columns_of(shape):
            return None
        to = (-1, 1, 1) if len(shape) == 3 else tuple(shape)
        return Scaling(*(np.broadcast_to(each.reshape(to), shape) for each in (self.mean, self.std)))

    def to_dict(self) -> dict[str, Any]:
        """Return mean and deviation as lists for JSON, with all digits."""
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Scaling:
        """Return the scaling in the result of `to_dict`."""
        return cls(np.array(described["mean"], np.float64), np.array(described["std"], np.float64))


def columns_of(shape: Sequence[int]) -> int:
    """Return the number of columns to scale, for records of this shape.

    For images (channels, height, width), this is the number of channels, otherwise the number of values.
    """
    return int(shape[0]) if len(shape) == 3 else math.prod(shape)
