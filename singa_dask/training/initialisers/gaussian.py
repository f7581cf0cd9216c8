"""Gaussian: normal draws, and those scaled by the number of inputs."""

from __future__ import annotations

import math

import numpy as np

from singa_dask.training.initialisers.initialiser import INITIALISERS, Array, Initialiser

__all__ = ["Gaussian", "GaussianSqrtFanIn"]


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
