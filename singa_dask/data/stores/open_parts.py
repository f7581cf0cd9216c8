"""OpenParts: the files of a table that are open."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from singa_dask.data.stores.table_part import Part

__all__ = ["OpenParts"]

# local files, which are mapped, and files that are held in memory
MAX_LOCAL = 8
MAX_REMOTE = 256


class _Slot:
    """A file, and the lock of the thread that opens it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.part: Part | None = None


class OpenParts:
    """The parts of a table that were used last. Any thread may use it; several can open files at the same time.

    Parts that are no longer kept are closed when nobody uses them or views of them.

    Parameters
    ----------
    open_part : callable
        Index of a file -> `Part`.
    """

    def __init__(self, open_part: Callable[[int], Part]) -> None:
        self._open = open_part
        self._lock = threading.Lock()
        self._slots: OrderedDict[int, _Slot] = OrderedDict()

    def __call__(self, file: int) -> Part:
        """Return a part, opened if it is not open."""
        with self._lock:
            slot = self._slots.setdefault(file, _Slot())
            self._slots.move_to_end(file)
        with slot.lock:
            if slot.part is None:
                slot.part = self._open(file)
                self._limit(MAX_LOCAL if slot.part.source.is_local else MAX_REMOTE)
            return slot.part

    def find(self, file: int) -> Part | None:
        """Return a part if it is open; does not wait."""
        with self._lock:
            slot = self._slots.get(file)
        return slot.part if slot else None

    def _limit(self, n: int) -> None:
        with self._lock:
            while len(self._slots) > n:
                self._slots.popitem(last=False)

    def close(self) -> None:
        """Keep no part."""
        with self._lock:
            self._slots.clear()
