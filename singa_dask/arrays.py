"""The types of arrays, and a pool that reuses their memory."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

# An array of any shape and dtype. On a GPU it is a CuPy array, which has no type stubs.
Array: TypeAlias = np.ndarray[Any, Any]
DType: TypeAlias = npt.DTypeLike


class ArrayPool:
    """A thread-safe pool of host arrays that reuses the memory of arrays nobody refers to.

    Allocating new memory takes several times as long as writing an array.

    Parameters
    ----------
    limit : int
        Maximum number of unused bytes to keep.
    """

    def __init__(self, limit: int = 64 << 20) -> None:
        self._limit = limit
        # unused memory, keyed by its number of bytes
        self._kept: defaultdict[int, list[Array]] = defaultdict(list)
        self._n_kept = 0
        self._lock = threading.RLock()

    def empty(self, size: int, dtype: DType) -> Array:
        """Return an uninitialised 1-D array of ``size`` values. Views of the array keep its memory alive."""
        n_bytes = size * np.dtype(dtype).itemsize
        with self._lock:
            kept = self._kept[n_bytes]
            self._n_kept -= n_bytes * bool(kept)
            memory = kept.pop() if kept else np.empty(n_bytes, np.uint8)
        # views have this array as their base, so it lives as long as its views
        array: Array = np.frombuffer(memoryview(memory), dtype)
        weakref.finalize(array, self._release, memory).atexit = False
        return array

    def _release(self, memory: Array) -> None:
        with self._lock:
            if self._n_kept + memory.nbytes <= self._limit:
                self._kept[memory.nbytes].append(memory)
                self._n_kept += memory.nbytes
