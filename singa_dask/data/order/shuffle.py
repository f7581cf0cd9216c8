"""Random numbers for data: pure functions of a seed and a purpose.

Only the raw output of Philox is used, which NumPy guarantees not to change, so orders are stable across versions.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["draw", "permutation", "random_skip"]

# so few random numbers almost always differ in their highest 32 bits
FEW = 1 << 13


def _raw(n: int, seed: int, purpose: str, *numbers: int) -> npt.NDArray[np.uint64]:
    key = np.array([seed & (1 << 64) - 1, zlib.crc32(purpose.encode())], np.uint64)
    # the first word is the counter of the draws; the others identify what they are for
    counter = np.array([0, *numbers, 0, 0, 0][:4], np.uint64)
    bits: Any = np.random.Philox(key=key, counter=counter)
    return np.asarray(bits.random_raw(n), np.uint64)


def permutation(n: int, seed: int, purpose: str, *numbers: int) -> npt.NDArray[np.int64]:
    """Return a random permutation of 0..n-1.

    Parameters
    ----------
    n : int
    seed : int
    purpose : str
        Purpose of the permutation; those of different purposes are independent.
    numbers : up to three ints, not negative
        E.g. epoch, stream and window.

    Returns
    -------
    (n,) int64
    """
    return _argsort(_raw(n, seed, purpose, *numbers))


def _argsort(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Faster np.argsort: by the highest bits, 16 at a time, for which numpy has a radix sort."""
    words = numbers.astype("<u8", copy=False).view("<u2").reshape(-1, 4)
    n_words = 2 if len(numbers) < FEW else 3
    order = np.argsort(words[:, 4 - n_words], kind="stable")
    for i in range(5 - n_words, 4):
        order = order[np.argsort(words[order, i], kind="stable")]
    ordered = numbers[order]
    # equal highest bits are very rare
    return order if (ordered[:-1] <= ordered[1:]).all() else np.argsort(numbers)


def draw(n: int, seed: int, purpose: str, *numbers: int) -> int:
    """Return a uniform random integer from 0 to n-1; other arguments as in `permutation`."""
    return int(_raw(1, seed, purpose, *numbers)[0]) % n


def random_skip(seed: int, layer: str, group: int, max_skip: int) -> int:
    """Return the number of records that an input layer skips at the start, uniformly from 0 to ``max_skip``."""
    return draw(max_skip + 1, seed, f"skip {layer}", group)
