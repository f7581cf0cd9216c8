"""Memory maps of files, ranges of bytes as file objects, and CRC32C (Castagnoli) checksums."""

from __future__ import annotations

import io
import mmap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt
from google_crc32c import extend
from google_crc32c import value as crc_of


def checksum_of(data: bytes | memoryview, before: int = 0) -> int:
    """Return the CRC32C of bytes, without copying them; ``before`` is the checksum of the preceding bytes."""
    return int(extend(before, np.frombuffer(data, np.uint8)))


def crc32c(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the CRC32C of each row of (n, length) bytes."""
    return np.array([crc_of(np.ascontiguousarray(row)) for row in rows], np.uint32)


def masked(crc: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Mask checksums as TFRecord does; a CRC of data that contains CRCs would be a weak one."""
    return ((crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)).astype(np.uint32)


# RangeFile: a source that is read by ranges, as a Python file object.


class RangeFile(io.RawIOBase):
    """A readable, seekable file object; each read is one range of the source.

    Parameters
    ----------
    read : callable
        (offset, length) -> bytes.
    size : int
        Bytes.
    """

    def __init__(self, read: Callable[[int, int], bytes | memoryview], size: int) -> None:
        self._read, self._size, self._at = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._next(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return bytes(self._next(self._size))

    def _next(self, length: int) -> bytes | memoryview:
        n = min(length, self._size - self._at)
        if n <= 0:
            return b""
        data = self._read(self._at, n)
        self._at += len(data)
        return data


# Memory maps of files, whose pages do not pile up in the memory of the process.
#
# Pages of a map count as memory of the process once they are read, though the system can take them back at any time.
# Dask's nanny counts them too, and ends a worker that has read more of a store than its memory limit. So the maps
# give their pages back now and then: the pages stay in the page cache of the system, and views of a map stay valid.


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
