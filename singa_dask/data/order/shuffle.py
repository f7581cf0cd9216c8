"""Random numbers for data: pure functions of a seed and a purpose.

Only the raw output of Philox is used, which NumPy guarantees not to change, so orders are stable across versions.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["draw", "permutation", "random_skip"]

# numbers at a time, where temporary arrays would take much memory
CHUNK = 1 << 20


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
    """Return the indices that sort numbers; equal ones keep their order.

    Faster than np.argsort, with less memory: numbers are sorted with their index in place of their lowest bits.
    """
    n = len(numbers)
    bits = np.uint64(max(n - 1, 1).bit_length())
    packed = numbers >> bits
    packed <<= bits
    for first in range(0, n, CHUNK):
        packed[first : first + CHUNK] |= np.arange(first, min(first + CHUNK, n), dtype=np.uint64)
    packed.sort()
    ties = _ties(packed, bits)
    packed &= (np.uint64(1) << bits) - np.uint64(1)
    order = packed.view(np.int64)
    if len(ties):
        # the lowest bits decide; groups of ties are in order
        order[ties] = order[ties][np.argsort(numbers[order[ties]], kind="stable")]
    return order


def _ties(packed: npt.NDArray[np.uint64], bits: np.uint64) -> npt.NDArray[np.int64]:
    """Return the positions of sorted numbers that are equal, but for their lowest bits, to the one before or after."""
    found = []
    for first in range(0, len(packed) - 1, CHUNK):
        part = packed[first : first + CHUNK + 1]
        equal = part[1:] ^ part[:-1] < np.uint64(1) << bits
        if equal.any():
            found.append(first + np.flatnonzero(equal))
    if not found:
        return np.empty(0, np.int64)
    positions = np.concatenate(found)
    return np.union1d(positions, positions + 1)


def draw(n: int, seed: int, purpose: str, *numbers: int) -> int:
    """Return a uniform random integer from 0 to n-1; other arguments as in `permutation`."""
    return int(_raw(1, seed, purpose, *numbers)[0]) % n


def random_skip(seed: int, layer: str, group: int, max_skip: int) -> int:
    """Return the number of records that an input layer skips at the start, uniformly from 0 to ``max_skip``."""
    return draw(max_skip + 1, seed, f"skip {layer}", group)
