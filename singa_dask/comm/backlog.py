"""Backlog: the bytes of received arrays that are still in use, so that no more are read than the memory allows."""

from __future__ import annotations

from collections.abc import Callable

from singa_dask.arrays import Array, ArrayPool, DType


class Backlog(ArrayPool):
    """Counts the bytes of received arrays that are still in use, so that no more are read than there is room for.

    Its users may not need another message before they release an array, or they would wait for ever.

    Parameters
    ----------
    limit : int
        Bytes above which it is full.

    Attributes
    ----------
    on_room : callable
        Called, in any thread, when it is not full any more.
    """

    def __init__(self, limit: int = 64 << 20) -> None:
        super().__init__(limit)
        self.on_room: Callable[[], None] = lambda: None
        self._n_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether to wait before the next array is read."""
        return self._n_bytes > self._limit

    def empty(self, size: int, dtype: DType) -> Array:
        """Return an array of ``size`` values that counts until nobody refers to it; see `ArrayPool.empty`."""
        array = super().empty(size, dtype)
        self._add(array.nbytes)
        return array

    def _release(self, memory: Array) -> None:
        super()._release(memory)
        self._add(-memory.nbytes)

    def _add(self, n_bytes: int) -> None:
        with self._lock:
            was_full, self._n_bytes = self.is_full, self._n_bytes + n_bytes
        if was_full and not self.is_full:
            self.on_room()
