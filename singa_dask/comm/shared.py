"""Shared memory: a segment through which two processes of one host exchange arrays.

The process that connects offers a segment in its hello. The listener maps the segment and writes a mark into it, which
proves that both processes have the same memory. Equal host names would not prove this, because containers may be
separate.

A segment is an anonymous Linux file, which the listener opens through ``/proc``. Therefore the system frees it however
its processes end, and the limit of ``/dev/shm`` does not apply. On systems without such files, arrays are sent
over the socket.
"""

from __future__ import annotations

import mmap
import os
import uuid
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

_LINE = 64
"""Bytes of a cache line. Pieces are aligned to cache lines."""

_MAX_BYTES = 8 << 20
_MIN_BYTES = 1 << 18
_PROCESS_BYTES = 64 << 20
_PROCESS_PART = 32
"""All segments of a process together take at most ``_PROCESS_BYTES``, and at most 1/32 of its memory limit."""


def segment_bytes(n_peers: int, memory_limit: int | None) -> int:
    """Return the size of each segment of a process that has ``n_peers`` peers on its host.

    The size is 0 if the process uses no shared memory.
    """
    if not n_peers:
        return 0
    limits = [_PROCESS_BYTES, *([memory_limit // _PROCESS_PART] if memory_limit else [])]
    size = min(_MAX_BYTES, min(limits) // n_peers)
    return size - size % mmap.PAGESIZE if size >= _MIN_BYTES else 0


class Segment:
    """Memory that one process writes and another process reads, piece by piece.

    The writer reserves memory for a piece, writes the piece, and sends its position. The reader answers once it has
    read the piece; then the writer releases the memory.

    Parameters
    ----------
    fd : int
        File descriptor of the segment. The caller may close it afterwards.
    """

    def __init__(self, fd: int) -> None:
        mapped = np.frombuffer(mmap.mmap(fd, 0), np.uint8)
        self.is_taken = mapped[:1]
        """One byte of the segment itself, which the reader sets when it has mapped the segment."""
        self._memory = mapped[mmap.PAGESIZE :]
        self.max_piece = self._memory.size // 2
        """Size of the largest piece in bytes: half of the memory, so that one is written while another is read."""
        self._pieces: deque[tuple[int, int]] = deque()  # start and stop of each unreleased piece

    def pieces(self, arrays: Iterable[np.ndarray]) -> Iterator[list[np.ndarray]]:
        """Divide arrays of bytes into pieces, each a list of array views.

        All but the last have the maximum size.
        """
        piece, left = list[np.ndarray](), self.max_piece
        for array in arrays:
            while array.size:
                piece.append(array[:left])
                array, left = array[left:], left - piece[-1].size
                if not left:
                    yield piece
                    piece, left = [], self.max_piece
        if piece:
            yield piece

    def write(self, piece: list[np.ndarray]) -> int | None:
        """Write a piece, and return its position; None if there is no room until earlier pieces are released."""
        size = sum(part.size for part in piece)
        start = self._claim(size + -size % _LINE)
        if start is not None:
            for part, place in self._places(start, piece):
                np.copyto(place, part)
        return start

    def _claim(self, size: int) -> int | None:
        """Reserve ``size`` bytes of free memory, and return their start.

        Return None if there is too little free memory.

        If all memory is free, return the beginning of the segment, because it is most likely in the CPU's caches.
        """
        start = 0
        if self._pieces:
            oldest, start = self._pieces[0][0], self._pieces[-1][1]
            if start > oldest and start + size > self._memory.size:
                start = 0
            if start <= oldest < start + size or start == oldest:
                return None
        self._pieces.append((start, start + size))
        return start

    def release(self) -> bool:
        """Free the memory of the oldest piece; return False if there is no piece."""
        return bool(self._pieces and self._pieces.popleft())

    def read(self, start: int, piece: list[np.ndarray]) -> None:
        """Read a piece that begins at ``start``; raise `ValueError` if it is not within the segment."""
        for part, place in self._places(start, piece):
            np.copyto(part, place)

    def _places(self, start: int, piece: list[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for part in piece:
            yield part, self._memory[start : start + part.size]
            start += part.size

    def close(self) -> None:
        """Unmap the memory."""
        self._memory = self.is_taken = np.empty(0, np.uint8)


class Offer:
    """A segment that a process offers to a peer.

    Parameters
    ----------
    size : int
        Number of bytes for arrays; a multiple of the page size.

    Attributes
    ----------
    name : str
        Name of the segment, which the peer passes to `take`.

    Raises
    ------
    OSError
        The size is 0, or the system does not support such files or has too little memory.
    """

    def __init__(self, size: int) -> None:
        if not size or not hasattr(os, "memfd_create"):
            raise OSError("no memory to share, or a system without anonymous files in memory")
        name = f"singa-dask-{uuid.uuid4().hex}"
        self._fd = os.memfd_create(name)
        self._size = mmap.PAGESIZE + size
        self._segment: Segment | None = None
        try:
            os.posix_fallocate(self._fd, 0, mmap.PAGESIZE)
            os.ftruncate(self._fd, self._size)
            self._segment = Segment(self._fd)
        except BaseException:
            self.close()
            raise
        self.name = f"/proc/{os.getpid()}/fd/{self._fd} {name}"

    def taken(self) -> Segment | None:
        """Return the segment if the peer has mapped it and its memory can be allocated; else None.

        Only the first successful call returns the segment.
        """
        if self._segment is None or not self._segment.is_taken[0]:
            return None
        try:
            # allocate now, because a later write to memory that is not available would kill the process
            os.posix_fallocate(self._fd, 0, self._size)
        except OSError:
            return None
        segment, self._segment = self._segment, None
        return segment

    def close(self) -> None:
        """Close the file, and unmap the segment unless `taken` has returned it."""
        os.close(self._fd)
        if self._segment is not None:
            self._segment.close()


def take(name: str) -> Segment | None:
    """Map a segment that a peer has offered; return None if this process cannot map it."""
    path, _, expected = name.partition(" ")
    try:
        if os.readlink(path) != f"/memfd:{expected} (deleted)":
            return None  # the file belongs to another process on this host or in this container
        fd = os.open(path, os.O_RDWR)
        try:
            segment = Segment(fd)
        finally:
            os.close(fd)
    except (OSError, ValueError):
        return None
    segment.is_taken[0] = True
    return segment
