"""Backlog: limit the memory of received arrays."""

from __future__ import annotations

from collections.abc import Callable

from singa_dask.arrays import Array, ArrayPool, DType


class Backlog(ArrayPool):
    """Counts the bytes of received arrays that are in use.

    The transport reads no arrays while the backlog is full.

    To avoid a deadlock, code that uses an array must release it before it waits for another message.

    Parameters
    ----------
    limit : int
        Number of bytes above which the backlog is full.

    Attributes
    ----------
    on_room : callable
        Called when the backlog is no longer full, in the thread that released an array.
    """

    def __init__(self, limit: int = 64 << 20) -> None:
        super().__init__(limit)
        self.on_room: Callable[[], None] = lambda: None
        self._n_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether so many bytes are in use that no more arrays should be read."""
        return self._n_bytes > self._limit

    def empty(self, size: int, dtype: DType) -> Array:
        """Return an array of ``size`` values. Its bytes count until the array is freed; see `ArrayPool.empty`."""
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
