"""Sources of bytes with a common interface: files, ranges of files, memory, and read-ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from singa_dask.errors import DataError
from singa_dask.fs.io_threads import MAX_READS, io_threads, map_ahead

AHEAD_BYTES = 1 << 22
# maximum bytes of chunks that are requested and not yet used
SCANNED_BYTES = 1 << 25


class Bytes(Protocol):
    """A source of bytes that is read by ranges.

    Attributes
    ----------
    url : str
    size : int
        Length in bytes.
    is_local : bool
        Whether the bytes are mapped or in memory, so that reading needs no request.
    origin : (int, int) or None
        Length and CRC32C of the original file. Set only if the bytes are derived from it by a method that may change.
    common_version : str
        Version of a remote file that is the same on all hosts; empty if unknown.
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
        """Read a range again over another connection, bypassing any cache. Use it if a read is late."""

    def is_cached(self, offset: int, length: int) -> bool:
        """Return whether `read` needs no request."""

    def check_unchanged(self) -> None:
        """Raise a `DataError` if bytes were read and the file was changed or replaced since it was opened."""

    def close(self) -> None:
        """Close the source."""


class Range(NamedTuple):
    """A range of a source."""

    source: Bytes
    offset: int
    length: int


class BytesInMemory:
    """Bytes of a URL in memory."""

    is_local = True
    common_version = ""

    def __init__(self, url: str, data: bytes | bytearray | memoryview, origin: tuple[int, int] | None = None) -> None:
        self.url, self.origin = url, origin
        self.size = len(data)
        self._data = memoryview(data).toreadonly()

    def read(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``offset`` on."""
        if not 0 <= offset <= offset + length <= self.size:
            where = f"bytes {offset} to {offset + length}"
            raise DataError(f"{self.url}: cannot read {where} of a file of {self.size} bytes.")
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
    """Yield a range of a file in chunks of ``n_bytes``, bypassing any cache.

    A remote file is read ahead.

    Raises
    ------
    DataError
        The file cannot be read.
    """

    def read(offset: int) -> memoryview:
        return source.scan(offset, min(n_bytes, stop - offset))

    offsets = range(start, stop, n_bytes)
    if source.is_local:
        return map(read, offsets)
    return map_ahead(read, offsets, io_threads(source.url), min(MAX_READS, SCANNED_BYTES // n_bytes))


def read_ranges(ranges: Sequence[Range], again: bool = False) -> list[memoryview]:
    """Read the bytes of ranges; ``again`` uses other connections and bypasses the cache."""
    return [(each.source.reread if again else each.source.read)(each.offset, each.length) for each in ranges]
