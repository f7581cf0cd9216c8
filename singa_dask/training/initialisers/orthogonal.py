"""Orthogonal: random matrices with orthonormal rows or columns."""

from __future__ import annotations

import math

import numpy as np

from singa_dask.training.initialisers.initialiser import INITIALISERS, Array, Initialiser

__all__ = ["Orthogonal"]


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
