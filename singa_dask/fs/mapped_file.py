"""Memory maps of files, whose pages do not pile up in the memory of the process.

Pages of a map count as memory of the process once they are read, though the system can take them back at any time.
Dask's nanny counts them too, and ends a worker that has read more of a store than its memory limit. So the maps
give their pages back now and then: the pages stay in the page cache of the system, and views of a map stay valid.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from pathlib import Path
from typing import IO, cast

# pages that all maps of the process keep, in bytes
RESIDENT_BYTES = 1 << 28
# bytes read between two looks at what the process holds
CHECK_BYTES = 1 << 24
# bytes that Linux maps at least where one byte is read
FAULT_BYTES = 1 << 16
# maps from this size on may not be in the page cache, so ranges of them from that length on are requested as a whole
LARGE_BYTES = 1 << 31
MIN_AHEAD_BYTES = 1 << 17
# size, resident and shared pages of this process; shared ones are those of files
STATM = Path("/proc/self/statm")

_MAPS: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


class _Resident:
    """How much of files this process holds in memory."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.unchecked = 0
        # what it holds beside our maps, as its libraries
        self.floor = -1


_RESIDENT = _Resident()


def map_file(file: IO[bytes]) -> memoryview:
    """Return the bytes of an open file as a read-only map, which outlives the file object.

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
    """Request a range of a large map from the disk at once, rather than page by page as it is read."""
    if len(data) >= LARGE_BYTES and length >= MIN_AHEAD_BYTES:
        start = offset - offset % mmap.PAGESIZE
        cast(mmap.mmap, data.obj).madvise(mmap.MADV_WILLNEED, start, offset + length - start)


def note_read(n_bytes: int) -> None:
    """Count bytes of maps that are read, and give pages back from time to time."""
    _RESIDENT.unchecked += max(n_bytes, FAULT_BYTES)
    if _RESIDENT.unchecked >= CHECK_BYTES:
        limit_resident()


def limit_resident() -> None:
    """Give the pages of all maps back if the process has more than `RESIDENT_BYTES` of files in memory."""
    resident = _resident_bytes()
    with _RESIDENT.lock:
        _RESIDENT.unchecked = 0
        if _RESIDENT.floor >= 0 and resident - _RESIDENT.floor > RESIDENT_BYTES:
            for data in list(_MAPS):
                data.madvise(mmap.MADV_DONTNEED)
            _RESIDENT.floor = _resident_bytes()


def _resident_bytes() -> int:
    """Return the bytes of files in the memory of this process; 0 if the system does not tell."""
    try:
        return int(STATM.read_bytes().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0
