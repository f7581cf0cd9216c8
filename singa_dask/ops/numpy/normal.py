"""The normal distribution: its density and its cumulative distribution function, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_dask.arrays import Array

SQRT_HALF = 0.5**0.5
INVERSE_SQRT_PI = 0.56418958354775628695

# For y up to SMALL, erf(y) = y P(y^2) / Q(y^2); coefficients are listed from the highest power down.
SMALL = 0.46875
ERF_P = (
    1.85777706184603153e-1,
    3.16112374387056560,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
ERF_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
# For y up to LARGE, erfc(y) = exp(-y^2) P(y) / Q(y).
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
# For y beyond LARGE, erfc(y) = exp(-y^2) / y (1 / sqrt(pi) - z P(z) / Q(z)) with z = 1 / y^2.
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
# For y beyond ZERO, erfc(y) is 0 in float64.
ZERO = 28.0


def normal_cdf(x: Array) -> Array:
    """Return ``(1 + erf(x / sqrt(2))) / 2``, accurate to the precision of the dtype, small values too."""
    y = np.abs(x)
    np.multiply(y, SQRT_HALF, out=y)
    np.minimum(y, ZERO, out=y)
    cdf = np.empty_like(y)
    small, tail = y <= SMALL, y > LARGE
    near = x[small] * SQRT_HALF
    cdf[small] = 0.5 + 0.5 * near * _ratio(near * near, ERF_P, ERF_Q)
    # the first mask also selects NaNs
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
    """Return exp(-y^2), accurate for large y: y is split so that the square of its leading bits is exact."""
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
