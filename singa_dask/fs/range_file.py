"""RangeFile: a Python file object that reads ranges of a source."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any


class RangeFile(io.RawIOBase):
    """A readable and seekable file object. Each read requests one range of the source.

    Parameters
    ----------
    read : callable
        Called as ``read(offset, length)``. Returns the bytes.
    size : int
        Length of the source in bytes.
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
