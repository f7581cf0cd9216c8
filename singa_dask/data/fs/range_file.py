"""RangeFile: a source that is read by ranges, as a Python file object."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Protocol


class _Source(Protocol):
    @property
    def size(self) -> int: ...

    @property
    def read(self) -> Callable[[int, int], bytes | memoryview]: ...


class RangeFile(io.RawIOBase):
    """A readable, seekable file object; each read is one range of the source.

    Parameters
    ----------
    source : object
        With ``size``, in bytes, and ``read(offset, length)``.
    """

    def __init__(self, source: _Source) -> None:
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._next(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return bytes(self._next(self._source.size))

    def _next(self, length: int) -> bytes | memoryview:
        n = min(length, self._source.size - self._at)
        if n <= 0:
            return b""
        data = self._source.read(self._at, n)
        self._at += len(data)
        return data
