"""Memory maps of files that release their pages from time to time.

Mapped pages that were read count as memory of the process, although the system can reclaim them. Dask's nanny kills a
worker that exceeds its memory limit. Released pages stay in the page cache of the system, and views of a map stay
valid.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from pathlib import Path
from typing import IO, cast

# maximum resident bytes of all maps of this process
RESIDENT_BYTES = 1 << 28
# number of bytes read between two checks of the resident bytes
CHECK_BYTES = 1 << 24
# minimum number of bytes that Linux maps in when one byte is read
FAULT_BYTES = 1 << 16
# larger maps may not fit in the page cache, so ranges of at least MIN_AHEAD_BYTES are requested in one piece
LARGE_BYTES = 1 << 31
MIN_AHEAD_BYTES = 1 << 17
# file with the numbers of total, resident and shared pages of this process; shared pages belong to files
STATM = Path("/proc/self/statm")

_MAPS: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


class _Resident:
    """Counts the resident file pages of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.unchecked = 0
        # resident bytes that do not belong to these maps, e.g. libraries
        self.floor = -1


_RESIDENT = _Resident()


def map_file(file: IO[bytes]) -> memoryview:
    """Return the bytes of an open file as a read-only map. The map stays valid after the file is closed.

    Raises
    ------
    OSError, ValueError
        The file cannot be mapped, or is empty.
    """
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with _RESIDENT.lock:
        if _RESIDENT.floor < 0:
            _RESIDENT.floor = _resident_bytes()
        _MAPS.add(data)
    return memoryview(data)


def read_ahead(data: memoryview, offset: int, length: int) -> None:
    """Read a range of a large map from the disk as a whole, instead of page by page."""
    if len(data) >= LARGE_BYTES and length >= MIN_AHEAD_BYTES:
        start = offset - offset % mmap.PAGESIZE
        cast(mmap.mmap, data.obj).madvise(mmap.MADV_WILLNEED, start, offset + length - start)


def note_read(n_bytes: int) -> None:
    """Count bytes read from maps, and release pages from time to time."""
    _RESIDENT.unchecked += max(n_bytes, FAULT_BYTES)
    if _RESIDENT.unchecked >= CHECK_BYTES:
        limit_resident()


def limit_resident() -> None:
    """Release the pages of all maps if the process has more than `RESIDENT_BYTES` of files in memory."""
    resident = _resident_bytes()
    with _RESIDENT.lock:
        _RESIDENT.unchecked = 0
        if _RESIDENT.floor >= 0 and resident - _RESIDENT.floor > RESIDENT_BYTES:
            for data in list(_MAPS):
                data.madvise(mmap.MADV_DONTNEED)
            _RESIDENT.floor = _resident_bytes()


def _resident_bytes() -> int:
    """Return the resident bytes of files in this process; 0 if the system does not report them."""
    try:
        return int(STATM.read_bytes().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0
