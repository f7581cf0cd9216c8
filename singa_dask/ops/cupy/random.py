"""CupyRandom: random numbers on a GPU, by address as `singa_dask.ops.philox` describes.

Uniform numbers, masks and Bernoulli draws have the same bits as on a CPU. Kernels read a key from device memory, not
from their arguments, so a captured kernel can be replayed with another key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from singa_dask.arrays import Array as HostArray
from singa_dask.ops import philox
from singa_dask.ops.contract import Key
from singa_dask.ops.cupy.device import Array, CupyDevice
from singa_dask.ops.cupy.launch import THREADS, blocks, strides_of
from singa_dask.ops.cupy.memory import CupyMemory

# Words per draw: two for the first key, two for the second key (or again the first), and one for the first row.
WORDS = 5
# Maximum number of draws in a capture.
MAX_DRAWS = 256


class Draws:
    """The random draws of captured kernels. The key of each draw has its own memory on the device."""

    def __init__(self, ops: CupyMemory) -> None:
        self._memory = ops.empty((MAX_DRAWS, WORDS), np.uint64)
        self._keys: list[tuple[list[Any], int]] = []

    def add(self, keys: list[Any], first_row: int) -> Array:
        """Return memory on the device for the key of a draw, as words."""
        if len(self._keys) == MAX_DRAWS:
            raise RuntimeError(f"more than {MAX_DRAWS} draws of random numbers")
        self._keys.append((keys, first_row))
        return self._memory[len(self._keys) - 1]

    def put(self, gpu: CupyDevice, key_now: Callable[[Any], Any]) -> None:
        """Write the keys of all draws to the device; ``key_now`` returns the new key for a key of the capture."""
        if self._keys:
            words = [_words([key_now(key) for key in keys], first_row) for keys, first_row in self._keys]
            gpu.put(np.stack(words), self._memory[: len(words)])


def _words(keys: list[Any], first_row: int) -> HostArray:
    """Return the words of a draw with one or two keys."""
    return np.array([*philox.words_of(keys[0]), *philox.words_of(keys[-1]), first_row], np.uint64)


class CupyRandom(CupyMemory):
    """Mixin of `CupyOps` with random numbers.

    NumPy computes `random_words`, because its result is a host array.
    """

    def __init__(self, gpu: CupyDevice, precision: str = "float32") -> None:
        super().__init__(gpu, precision)
        self.draws: Draws | None = None

    def uniform(self, key: Key, out: Array, low: float = 0.0, high: float = 1.0, first_row: int = 0) -> None:
        self._draw("uniform", [key], first_row, (out,), np.float64(low), np.float64(high - low))

    def dropout_mask(self, key: Key, keep: float, out: Array, first_row: int = 0) -> None:
        self._draw("dropout_mask", [key], first_row, (out,), np.float64(keep))

    def bernoulli(self, key: Key, p: Array, out: Array, first_row: int = 0) -> None:
        self._draw("bernoulli", [key], first_row, (p, out))

    def gaussian(self, key: Key, out: Array, mean: float = 0.0, std: float = 1.0, first_row: int = 0) -> None:
        keys = [(*key, part) for part in ("angle", "radius")]
        self._draw("gaussian", keys, first_row, (out,), np.float64(mean), np.float64(std))

    def _draw(self, kernel: str, keys: list[Any], first_row: int, arrays: tuple[Array, ...], *numbers: Any) -> None:
        """Run a kernel of ``cuda/random.cu``.

        ``keys`` has one or two keys. ``arrays`` are (out,) or (p, out), where both arrays have the same shape.
        """
        words = self._taken_words(keys, first_row)
        views = [_as_images(x) for x in arrays]
        n_rows, *sizes = views[-1].shape
        n_counts = n_rows * -(-math.prod(sizes) // philox.VALUES_PER_COUNT)
        function = self.gpu.function("random", kernel, T=arrays[-1].dtype, P=arrays[0].dtype)
        shape = (np.int64(size) for size in (n_rows, *sizes))
        steps = (step for view in views for step in strides_of(view))
        function((blocks(n_counts),), (THREADS,), (words, *views, *shape, *steps, *numbers))

    def _taken_words(self, keys: list[Any], first_row: int) -> Array:
        """Return device memory with the key of a draw; in a capture, each replay writes a new key to it."""
        if self.draws is not None:
            return self.draws.add(keys, first_row)
        words = self.scratch("words", (WORDS,), np.uint64)
        self.gpu.put(_words(keys, first_row), words)
        return words


def _as_images(x: Array) -> Array:
    """Return a view (N, A, B, C) of an array (N, ...), which has at most four axes."""
    return x.reshape(x.shape[:1] + (1,) * (4 - x.ndim) + x.shape[1:])
