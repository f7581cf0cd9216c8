"""Random: random numbers that depend on a key and a row alone."""

from __future__ import annotations

from typing import Protocol

from singa_dask.ops.contract.device import Array, Key


class Random(Protocol):
    """Random numbers by address, the same on every device; see `singa_dask.ops.philox`.

    ``first_row`` is the number of the first row of ``out`` in the batch of the whole worker group.
    """

    def random_words(self, key: Key, low: Array, high: Array) -> Array:
        """Return four words in [0, 2^32) for each address, (4, N) int64, as a host array; see `philox.words`."""

    def dropout_mask(self, key: Key, keep: float, out: Array, first_row: int = 0) -> None:
        """``out`` (N, ...) = ``1 / keep`` with probability ``keep``, else 0."""

    def uniform(self, key: Key, out: Array, low: float = 0.0, high: float = 1.0, first_row: int = 0) -> None:
        """``out`` (N, ...) = draws from [low, high)."""

    def bernoulli(self, key: Key, p: Array, out: Array, first_row: int = 0) -> None:
        """``out`` (N, ...) = 1 with probability ``p``, value by value, else 0; ``out`` may be ``p``."""

    def gaussian(self, key: Key, out: Array, mean: float = 0.0, std: float = 1.0, first_row: int = 0) -> None:
        """``out`` (N, ...) = draws from the normal distribution N(mean, std)."""
