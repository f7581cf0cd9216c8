"""Constant: one value everywhere."""

from __future__ import annotations

import numpy as np

from singa_dask.training.initialisers.initialiser import INITIALISERS, Array, Initialiser

__all__ = ["Constant"]


@INITIALISERS.register()
class Constant(Initialiser):
    """``value`` everywhere."""

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.full(shape, self.conf.value)
