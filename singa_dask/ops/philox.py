"""Random numbers by address: a function of a key and a row, not of what was drawn before.

A key is (seed, name, step, ...). Rows are those of the batch of a whole worker group, so workers that
hold different rows draw what one worker with all of them would, and a checkpoint has nothing to save.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["gaussian", "generator", "uniform"]

Key = Sequence[int | str]

# One step of Philox's counter gives four 64-bit words: eight float32 values.
VALUES_PER_COUNT = 8


def generator(key: Key, count: int = 0) -> np.random.Generator:
    """Return the generator of a key, ``count`` steps of its counter ahead.

    Parameters
    ----------
    key : sequence of int or str
        E.g. ``(seed, param_name)``.
    count : int
        Where in the stream to start, in units of eight float32 values.
    """
    digest = hashlib.blake2b(repr(tuple(key)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little"), counter=count))


def uniform(key: Key, shape: Sequence[int], first_row: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Draw from [0, 1) for rows ``first_row ...`` of a batch.

    Parameters
    ----------
    key : sequence of int or str
    shape : (N, ...)
        Of the rows wanted.
    first_row : int
        Number of the first of them in the batch of the whole group.

    Returns
    -------
    ndarray, shape ``shape``, float32
        Drawn in float32 for every precision, so that a float64 run sees the same numbers.
    """
    size = int(np.prod(shape[1:], dtype=np.int64))
    counts = -(-size // VALUES_PER_COUNT)
    drawn = generator(key, first_row * counts).random((shape[0], counts * VALUES_PER_COUNT), dtype=np.float32)
    return drawn[:, :size].reshape(tuple(shape))


def gaussian(key: Key, shape: Sequence[int], first_row: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Draw from N(0, 1) for rows ``first_row ...`` of a batch; parameters as in `uniform`.

    Notes
    -----
    Box and Muller's transform: unlike rejection methods it uses a fixed number of draws a value.
    """
    angle = uniform((*key, "angle"), shape, first_row) * np.float32(2 * np.pi)
    radius = np.sqrt(-2 * np.log1p(-uniform((*key, "radius"), shape, first_row)))
    drawn: np.ndarray[Any, np.dtype[np.float32]] = np.cos(angle) * radius
    return drawn
