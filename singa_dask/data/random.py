"""Random permutations and numbers that depend only on a seed and a purpose.

They are the same in every version of NumPy, because only the raw output of Philox is used. NumPy guarantees that this
output does not change.
"""

from __future__ import annotations

import threading
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

# shorter arrays are sorted without packing indices into the numbers
MIN_PACKED = 64


class _Philox(threading.local):
    """A generator for each thread.

    The generator is reused, because creating one takes longer than drawing a few numbers.
    """

    def __init__(self) -> None:
        self.bits: Any = np.random.Philox(0)
        self.state: Any = self.bits.state


_PHILOX = _Philox()


def _raw(n: int, seed: int, purpose: str, *numbers: int) -> npt.NDArray[np.uint64]:
    bits, state = _PHILOX.bits, _PHILOX.state
    state["state"]["key"][:] = seed & (1 << 64) - 1, zlib.crc32(purpose.encode())
    # the first word of the counter counts the draws; the other words identify the purpose of the numbers
    state["state"]["counter"][:] = (0, *numbers, 0, 0, 0)[:4]
    bits.state = state
    return np.asarray(bits.random_raw(n), np.uint64)


def permutation(n: int, seed: int, purpose: str, *numbers: int) -> npt.NDArray[np.int64]:
    """Return a random permutation of 0..n-1.

    Parameters
    ----------
    n, seed : int
    purpose : str
        What the permutation is for, as any text. Permutations for different purposes are independent.
    numbers : up to three ints, not negative
        E.g. epoch, stream and window.

    Returns
    -------
    (n,) int64
    """
    return _argsort(_raw(n, seed, purpose, *numbers))


def _argsort(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the indices that sort numbers. Equal numbers, which are rare, keep their order."""
    if len(numbers) < MIN_PACKED:
        return np.argsort(numbers, kind="stable")
    # packing indices into the low bits and sorting takes a third of the time of argsort
    bits = len(numbers).bit_length()
    mask = np.uint64((1 << bits) - 1)
    keys = numbers & ~mask
    keys |= np.arange(len(numbers), dtype=np.uint64)
    keys.sort()
    high = keys >> np.uint64(bits)
    keys &= mask
    order = keys.view(np.int64)
    tied = np.flatnonzero(high[1:] == high[:-1])
    if len(tied):
        tied = np.union1d(tied, tied + 1)
        order[tied] = order[tied][np.argsort(numbers[order[tied]], kind="stable")]
    return order


def draw(n: int, seed: int, purpose: str, *numbers: int) -> int:
    """Return a uniform random integer from 0 to n-1. See `permutation` for the other arguments."""
    return int(_raw(1, seed, purpose, *numbers)[0]) % n


def random_skip(seed: int, layer: str, group: int, max_skip: int) -> int:
    """Draw the number of records that an input layer skips at the start, from 0 to ``max_skip``."""
    return draw(max_skip + 1, seed, f"skip {layer}", group)
