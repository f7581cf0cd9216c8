"""NumpyRandom: random numbers, in NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops import philox
from singa_dask.ops.contract import Key
from singa_dask.ops.numpy.memory import NumpyMemory


class NumpyRandom(NumpyMemory):
    """Random numbers, each a function of a key and a row; see `singa_dask.ops.philox`.

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
        """``out`` (N, ...) = 1 with the probability in ``p`` (N, ...), else 0; ``out`` may be ``p``."""
        # use large pieces, because starting a generator costs more than missing the cache
        for drawn, chance in self.pieces(out, p, n_values=1 << 17):
            np.less(philox.uniform(key, drawn.shape, first_row), chance, out=drawn)
            first_row += len(drawn)

    def gaussian(self, key: Key, out: Array, mean: float = 0.0, std: float = 1.0, first_row: int = 0) -> None:
        """``out`` (N, ...) = draws from the normal distribution N(mean, std)."""
        np.multiply(philox.gaussian(key, out.shape, first_row), std, out=out)
        np.add(out, mean, out=out)

    def _draws(self, key: Key, out: Array, first_row: int) -> Iterator[tuple[Array, Array]]:
        """Yield (rows of out, their draws from [0, 1)) in pieces that stay in cache."""
        for (part,) in self.pieces(out):
            yield part, philox.uniform(key, part.shape, first_row)
            first_row += len(part)
