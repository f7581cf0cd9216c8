"""Uniform: even draws, and those scaled by the number of inputs and outputs."""

from __future__ import annotations

import math

import numpy as np

from singa_dask.training.initialisers.initialiser import INITIALISERS, Array, Initialiser

__all__ = ["Uniform", "UniformSqrtFanIn", "UniformSqrtFanInOut"]


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
