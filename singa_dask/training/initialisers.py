"""Initialisers: how the initial values of params are drawn, and their registry; after SINGA's src/utils/param.cc.

Rows and columns are those of a matrix (outputs, inputs).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import Conf, InitConf
from singa_dask.registry import Registry

__all__ = [
    "INITIALISERS",
    "Array",
    "Constant",
    "Gaussian",
    "GaussianSqrtFanIn",
    "Initialiser",
    "Orthogonal",
    "Uniform",
    "UniformSqrtFanIn",
    "UniformSqrtFanInOut",
]


INITIALISERS: Registry[Initialiser] = Registry("initialiser")

Array = np.ndarray[Any, Any]


class Initialiser:
    """Draws the initial values of one param.

    Parameters
    ----------
    conf : InitConf
        Its ``user_conf`` is for initialisers of the user's own.

    Attributes
    ----------
    block : type of Conf or None
        The block of ``init`` that it reads, ``conf.block(XConf)``.
    needs_matrix : bool
        Whether it is for params with rows and columns only.
    """

    block: ClassVar[type[Conf] | None] = None
    needs_matrix = False

    def __init__(self, conf: InitConf) -> None:
        self.conf = conf

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Return values of ``shape``, floats; draw from ``random`` alone."""
        raise TypeError(f"{type(self).__name__} draws nothing: it has no fill()")


INITIALISERS.base = Initialiser


@INITIALISERS.register()
class Constant(Initialiser):
    """``value`` everywhere."""

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.full(shape, self.conf.value)


@INITIALISERS.register()
class Gaussian(Initialiser):
    """``value`` times N(``mean``, ``std``)."""

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        values = random.standard_normal(shape, np.float32)
        values *= self.conf.std * self.conf.value
        values += self.conf.mean * self.conf.value
        return values


@INITIALISERS.register()
class GaussianSqrtFanIn(Gaussian):
    """Gaussian / sqrt(columns)."""

    needs_matrix = True

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return super().fill(random, shape) * (1 / math.sqrt(shape[1]))


@INITIALISERS.register()
class Uniform(Initialiser):
    """``value`` times a uniform draw between ``low`` and ``high``."""

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        values = random.random(shape, np.float32)
        values *= (self.conf.high - self.conf.low) * self.conf.value
        values += self.conf.low * self.conf.value
        return values


@INITIALISERS.register()
class UniformSqrtFanIn(Uniform):
    """Uniform sqrt(3 / columns)."""

    needs_matrix = True

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return super().fill(random, shape) * math.sqrt(3 / shape[1])


@INITIALISERS.register()
class UniformSqrtFanInOut(Uniform):
    """Uniform / sqrt(rows + columns); for Glorot's bounds say low -2.449, high 2.449 (the root of 6), as with SINGA."""

    needs_matrix = True

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return super().fill(random, shape) * (1 / math.sqrt(shape[0] + shape[1]))


@INITIALISERS.register()
class Orthogonal(Initialiser):
    """``value`` times a random matrix whose rows, or columns where there are fewer of these, are orthonormal.

    It is cut from three rounds of random signs and a Hartley transform, after Yu et al. (2016), Orthogonal random
    features: the same bits for any number of threads, which a QR decomposition does not promise.
    """

    needs_matrix = True

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        n = max(shape)
        values = np.eye(n)
        for _ in range(3):
            values *= random.choice([-1.0, 1.0], (n, 1))
            found = np.fft.fft(values, axis=0)
            values = (found.real - found.imag) / math.sqrt(n)
        return values[: shape[0], : shape[1]] * self.conf.value
