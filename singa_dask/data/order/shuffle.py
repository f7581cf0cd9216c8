"""Random numbers of the data layer: pure functions of a seed and of what they are for.

Only the raw output of Philox is used, which numpy promises never to change: an order made today is the same
after any upgrade.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["draw", "permutation", "random_skip"]

# numbers that 32 random bits tell apart nearly always
FEW = 1 << 13


def _raw(n: int, seed: int, purpose: str, *numbers: int) -> npt.NDArray[np.uint64]:
    key = np.array([seed & (1 << 64) - 1, zlib.crc32(purpose.encode())], np.uint64)
    # the first word counts the numbers drawn, so the others may say what they are drawn for
    counter = np.array([0, *numbers, 0, 0, 0][:4], np.uint64)
    bits: Any = np.random.Philox(key=key, counter=counter)
    return np.asarray(bits.random_raw(n), np.uint64)


def permutation(n: int, seed: int, purpose: str, *numbers: int) -> npt.NDArray[np.int64]:
    """Return 0..n-1 in random order.

    Parameters
    ----------
    n : int
    seed : int
    purpose : str
        What the order is for; orders for different purposes have nothing to do with each other.
    numbers : up to three ints, not negative
        E.g. epoch, stream and window.

    Returns
    -------
    (n,) int64
    """
    return _argsort(_raw(n, seed, purpose, *numbers))


def _argsort(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return what np.argsort does, sooner: by their highest bits, 16 at a time, which numpy sorts by counting."""
    words = numbers.astype("<u8", copy=False).view("<u2").reshape(-1, 4)
    n_words = 2 if len(numbers) < FEW else 3
    order = np.argsort(words[:, 4 - n_words], kind="stable")
    for i in range(5 - n_words, 4):
        order = order[np.argsort(words[order, i], kind="stable")]
    ordered = numbers[order]
    # hardly ever do two of them have the same highest bits
    return order if (ordered[:-1] <= ordered[1:]).all() else np.argsort(numbers)


def draw(n: int, seed: int, purpose: str, *numbers: int) -> int:
    """Return a number from 0 to n-1, each as likely; the other arguments are those of `permutation`."""
    return int(_raw(1, seed, purpose, *numbers)[0]) % n


def random_skip(seed: int, layer: str, group: int, max_skip: int) -> int:
    """Return how many records an input layer passes over at the start: 0 to ``most``, each as likely."""
    return draw(max_skip + 1, seed, f"skip {layer}", group)
