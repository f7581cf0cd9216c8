"""NumpyRandom: random numbers, and normal ones of uniform ones, in numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops import philox
from singa_dask.ops.numpy.memory import NumpyMemory
from singa_dask.ops.types import Key

SQRT_HALF = 0.5**0.5
INVERSE_SQRT_PI = 0.56418958354775628695

# erf(y) = y P(y^2) / Q(y^2) up to SMALL; coefficients from the highest power down.
SMALL = 0.46875
ERF_P = (
    1.85777706184603153e-1,
    3.16112374387056560,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
ERF_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
# erfc(y) = exp(-y^2) P(y) / Q(y) up to LARGE
LARGE = 4.0
MIDDLE_P = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
MIDDLE_Q = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
# erfc(y) = exp(-y^2) / y (1 / sqrt(pi) - z P(z) / Q(z)), z = 1 / y^2, beyond it
TAIL_P = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
TAIL_Q = (
    1.0,
    2.56852019228982242,
    1.87295284992346047,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)
# From here on erfc is 0 in float64.
ZERO = 28.0


def normal_cdf(x: Array) -> Array:
    """Return ``(1 + erf(x / sqrt(2))) / 2``, value by value, to the precision of the dtype; also its small values."""
    y = np.abs(x)
    np.multiply(y, SQRT_HALF, out=y)
    np.minimum(y, ZERO, out=y)
    cdf = np.empty_like(y)
    small, tail = y <= SMALL, y > LARGE
    near = x[small] * SQRT_HALF
    cdf[small] = 0.5 + 0.5 * near * _ratio(near * near, ERF_P, ERF_Q)
    # a NaN is in neither of the others
    for chosen, erfc in ((~(small | tail), _erfc_middle), (tail, _erfc_tail)):
        half = 0.5 * erfc(y[chosen])
        cdf[chosen] = np.where(x[chosen] < 0, half, 1 - half)
    return cdf


def normal_density(x: Array) -> Array:
    """Return ``exp(-x^2 / 2) / sqrt(2 pi)``."""
    density = np.multiply(x, x)
    np.multiply(density, -0.5, out=density)
    np.exp(density, out=density)
    return np.multiply(density, INVERSE_SQRT_PI * SQRT_HALF, out=density)


def _erfc_middle(y: Array) -> Array:
    return _exp_square(y) * _ratio(y, MIDDLE_P, MIDDLE_Q)


def _erfc_tail(y: Array) -> Array:
    z = 1 / (y * y)
    return _exp_square(y) / y * (INVERSE_SQRT_PI - z * _ratio(z, TAIL_P, TAIL_Q))


def _exp_square(y: Array) -> Array:
    """Return exp(-y^2); the square of the first bits of y is exact."""
    first = np.trunc(y * 16) / 16
    value: Array = np.exp(-first * first) * np.exp(-(y - first) * (y + first))
    return value


def _ratio(y: Array, above: Sequence[float], below: Sequence[float]) -> Array:
    return _polynomial(y, above) / _polynomial(y, below)


def _polynomial(y: Array, coefficients: Sequence[float]) -> Array:
    total = np.full_like(y, coefficients[0])
    for coefficient in coefficients[1:]:
        np.multiply(total, y, out=total)
        np.add(total, coefficient, out=total)
    return total


class NumpyRandom(NumpyMemory):
    """Random numbers by address, the same on every device; see `singa_dask.ops.philox`.

    ``first_row`` is the number of the first row of ``out`` in the batch of the whole worker group.
    """

    def random_words(self, key: Key, low: Array, high: Array) -> Array:
        """Return four words in [0, 2^32) for each address, (4, N) int64, as a host array; see `philox.words`."""
        return philox.words(key, low, high)

    def dropout_mask(self, key: Key, keep: float, out: Array, first_row: int = 0) -> None:
        """``out`` (N, ...) = ``1 / keep`` with probability ``keep``, else 0."""
        for mask, draws in self._draws(key, out, first_row):
            np.less(draws, np.float32(keep), out=mask)
            np.multiply(mask, 1 / keep, out=mask)

    def uniform(self, key: Key, out: Array, low: float = 0.0, high: float = 1.0, first_row: int = 0) -> None:
        """``out`` (N, ...) = draws from [low, high)."""
        for part, draws in self._draws(key, out, first_row):
            np.multiply(draws, high - low, out=part)
            np.add(part, low, out=part)

    def bernoulli(self, key: Key, p: Array, out: Array, first_row: int = 0) -> None:
        """``out`` (N, ...) = 1 with probability ``p``, value by value, else 0; ``out`` may be ``p``."""
        # starting a generator costs more than reading draws from outside the cache
        for drawn, chance in self.pieces(out, p, n_values=1 << 17):
            np.less(philox.uniform(key, drawn.shape, first_row), chance, out=drawn)
            first_row += len(drawn)

    def gaussian(self, key: Key, out: Array, mean: float = 0.0, std: float = 1.0, first_row: int = 0) -> None:
        """``out`` (N, ...) = draws from the normal distribution N(mean, std)."""
        np.multiply(philox.gaussian(key, out.shape, first_row), std, out=out)
        np.add(out, mean, out=out)

    def _draws(self, key: Key, out: Array, first_row: int) -> Iterator[tuple[Array, Array]]:
        """Yield (rows of out, draws from [0, 1) for them), in pieces that stay in cache."""
        for (part,) in self.pieces(out):
            yield part, philox.uniform(key, part.shape, first_row)
            first_row += len(part)
