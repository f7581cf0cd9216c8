"""Random numbers by address: each number is a function of a key and a row, not of earlier draws.

A key is (seed, name, step, ...). Rows are counted in the batch of the whole worker group, so that several workers draw
the same numbers as one worker would. Checkpoints therefore need not save the state of a random generator.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.ops.contract import Key

# One step of Philox's counter gives four 64-bit words: eight float32 values.
VALUES_PER_COUNT = 8

# Constants of Philox 4x32, after Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
KEY_STEPS = np.array([[0x9E3779B9], [0xBB67AE85]], np.uint64)
ROUNDS = 10
LOW_HALF = np.uint64(0xFFFFFFFF)
HALF_BITS = np.uint64(32)


class _Drawing(threading.local):
    """A random generator that `uniform` reuses in each thread, because a new one takes five times as long."""

    def __init__(self) -> None:
        self.bits: Any = np.random.Philox(0)
        self.generator = np.random.Generator(self.bits)
        self.state: Any = self.bits.state

    def at(self, key: Key, count: int) -> np.random.Generator:
        """Return the reused generator, in the state of a new one that `generator` would return."""
        self.state["state"]["key"][:] = words_of(key)
        self.state["state"]["counter"][:] = count, 0, 0, 0
        self.bits.state = self.state
        return self.generator


_DRAWING = _Drawing()


def generator(key: Key, count: int = 0) -> np.random.Generator:
    """Return a random generator for a key, whose counter starts at ``count``.

    Parameters
    ----------
    key : sequence of int or str
        Values that determine the numbers, e.g. ``(seed, param_name)``.
    count : int
        Position in the stream at which to start, counted in groups of eight float32 values.
    """
    return np.random.Generator(np.random.Philox(key=words_of(key), counter=count))


def words_of(key: Key) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return a key as the two integers that Philox 4x64 takes."""
    digest = hashlib.blake2b(repr(tuple(key)).encode(), digest_size=16).digest()
    return np.frombuffer(digest, "<u8")


def uniform(key: Key, shape: Sequence[int], first_row: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Draw from [0, 1) for rows ``first_row ...`` of a batch.

    Parameters
    ----------
    key : sequence of int or str
    shape : (N, ...)
        Shape of the rows to draw.
    first_row : int
        Index of the first row in the batch of the whole group.

    Returns
    -------
    ndarray, shape ``shape``, float32
        The numbers, in float32 at every precision of a job, so that a float64 job draws the same numbers.
    """
    size = int(np.prod(shape[1:], dtype=np.int64))
    counts = -(-size // VALUES_PER_COUNT)
    drawn = _DRAWING.at(key, first_row * counts).random((shape[0], counts * VALUES_PER_COUNT), dtype=np.float32)
    return drawn[:, :size].reshape(tuple(shape))


def gaussian(key: Key, shape: Sequence[int], first_row: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Draw from N(0, 1) for rows ``first_row ...`` of a batch; takes the same parameters as `uniform`.

    Notes
    -----
    The numbers are computed by the Box-Muller transform. Unlike rejection methods, this transform needs the same
    number of uniform draws for every value.
    """
    angle = uniform((*key, "angle"), shape, first_row) * np.float32(2 * np.pi)
    radius = np.sqrt(-2 * np.log1p(-uniform((*key, "radius"), shape, first_row)))
    drawn: np.ndarray[Any, np.dtype[np.float32]] = np.cos(angle) * radius
    return drawn


def words(
    key: Key, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Draw four words for each address; the words of an address are always the same.

    Parameters
    ----------
    key : sequence of int or str
    low, high : (N,) non-negative int64
        The two parts of each address, e.g. the index of a record and the epoch.

    Returns
    -------
    ndarray, shape (4, N), int64
        Each in [0, 2^32).
    """
    digest = hashlib.blake2b(repr(tuple(key)).encode(), digest_size=8).digest()
    address = np.stack([low, high]).astype(np.uint64)
    counter = np.stack([address & LOW_HALF, address >> HALF_BITS], axis=1).reshape(4, -1)
    return philox4x32(counter, np.frombuffer(digest, "<u4")).astype(np.int64)


def philox4x32(
    counter: np.ndarray[Any, Any], key: np.ndarray[Any, Any]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    """Compute Philox 4x32 with ten rounds from counters (4, N) and a key (2,).

    Returns words below 2^32, (4, N).
    """
    even, odd = counter[::2].astype(np.uint64), counter[1::2].astype(np.uint64)
    key = key.astype(np.uint64)[:, None]
    for _ in range(ROUNDS):
        product = even * MULTIPLIERS
        even = (product >> HALF_BITS)[::-1] ^ odd ^ key
        odd = (product & LOW_HALF)[::-1]
        key = (key + KEY_STEPS) & LOW_HALF
    return np.stack([even, odd], axis=1).reshape(4, -1)
