"""Sources of bytes with a common interface: a file, a range of it, memory, or another source with read-ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from singa_dask.errors import DataError
from singa_dask.fs.io_threads import MAX_READS, io_threads, map_ahead

AHEAD_BYTES = 1 << 22
# of chunks that are requested and not yet used
SCANNED_BYTES = 1 << 25


class Bytes(Protocol):
    """A source of bytes that is read by ranges.

    Attributes
    ----------
    url : str
    size : int
        Bytes.
    is_local : bool
        Whether reading takes no request: the bytes are mapped, or in memory.
    origin : (int, int) or None
        Length and CRC32C of the file that the bytes were made of, where other versions of a library make others of it.
    common_version : str
        Version of a remote file that is the same on all hosts; empty if it is not known.
    """

    url: str
    size: int
    is_local: bool
    origin: tuple[int, int] | None
    common_version: str

    def read(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``offset`` on, or raise a `DataError`."""

    def scan(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``offset`` on, bypassing any cache."""

    def reread(self, offset: int, length: int) -> memoryview:
        """Return these bytes by another connection, bypassing any cache: for a read that takes too long."""

    def is_cached(self, offset: int, length: int) -> bool:
        """Return whether `read` takes no request."""

    def check_unchanged(self) -> None:
        """Raise a `DataError` if the file was changed or replaced since it was opened, and bytes of it were read."""

    def close(self) -> None:
        """Close the source."""


class Range(NamedTuple):
    """A range of a source."""

    source: Bytes
    offset: int
    length: int


class BytesInMemory:
    """Bytes in memory that came from a URL."""

    is_local = True
    common_version = ""

    def __init__(self, url: str, data: bytes | bytearray | memoryview, origin: tuple[int, int] | None = None) -> None:
        self.url, self.origin = url, origin
        self.size = len(data)
        self._data = memoryview(data).toreadonly()

    def read(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``offset`` on."""
        if not 0 <= offset <= offset + length <= self.size:
            raise DataError(f"{self.url}: bytes {offset} to {offset + length} of a file of {self.size} bytes.")
        return self._data[offset : offset + length]

    scan = reread = read

    def is_cached(self, offset: int, length: int) -> bool:
        """Return True."""
        return True

    def check_unchanged(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Release the memory."""
        self._data = memoryview(b"")


class ReadAhead:
    """Serves small sequential reads from large ones."""

    def __init__(self, source: Bytes) -> None:
        self.url, self.size = source.url, source.size
        self._source = source
        self._start, self._chunk = 0, memoryview(b"")

    def read(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``offset`` on."""
        at = offset - self._start
        if not 0 <= at <= at + length <= len(self._chunk):
            ahead = max(length, min(AHEAD_BYTES, self.size - offset))
            self._start, self._chunk = offset, self._source.scan(offset, ahead)
            at = 0
        return self._chunk[at : at + length]


def scan_ahead(source: Bytes, start: int, stop: int, n_bytes: int) -> Iterator[memoryview]:
    """Yield a range of a file in chunks of ``n_bytes``, of a remote file read ahead; bypasses any cache.

    Raises
    ------
    DataError
        It cannot be read.
    """

    def read(offset: int) -> memoryview:
        return source.scan(offset, min(n_bytes, stop - offset))

    offsets = range(start, stop, n_bytes)
    if source.is_local:
        return map(read, offsets)
    return map_ahead(read, offsets, io_threads(source.url), min(MAX_READS, SCANNED_BYTES // n_bytes))
