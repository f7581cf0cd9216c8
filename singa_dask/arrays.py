"""Types of arrays, and memory for them that is used again."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

# An array of any shape and dtype. In the memory of a worker's device it is CuPy's on a GPU, which has no types.
Array: TypeAlias = np.ndarray[Any, Any]
DType: TypeAlias = npt.DTypeLike


class ArrayPool:
    """Arrays on the host whose memory is used again once nobody refers to them; any thread may ask for them.

    The system takes several times as long to provide new memory as it takes to write an array.

    Parameters
    ----------
    limit : int
        Bytes of memory that is not in use that are kept.
    """

    def __init__(self, limit: int = 64 << 20) -> None:
        self._limit = limit
        # memory that is not in use, by its bytes
        self._kept: defaultdict[int, list[Array]] = defaultdict(list)
        self._n_kept = 0
        self._lock = threading.RLock()

    def empty(self, size: int, dtype: DType) -> Array:
        """Return an array of ``size`` values, 1-D and not initialised. Its views keep its memory, too."""
        n_bytes = size * np.dtype(dtype).itemsize
        with self._lock:
            kept = self._kept[n_bytes]
            self._n_kept -= n_bytes * bool(kept)
            memory = kept.pop() if kept else np.empty(n_bytes, np.uint8)
        # its views have it as their base, so it lives as long as they do
        array: Array = np.frombuffer(memoryview(memory), dtype)
        weakref.finalize(array, self._release, memory).atexit = False
        return array

    def _release(self, memory: Array) -> None:
        with self._lock:
            if self._n_kept + memory.nbytes <= self._limit:
                self._kept[memory.nbytes].append(memory)
                self._n_kept += memory.nbytes
