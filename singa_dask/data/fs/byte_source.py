"""Sources of bytes with a common interface: a file, memory, or another source with read-ahead."""

from __future__ import annotations

import gzip
import zlib
from typing import Protocol

from singa_dask.data.fs import files
from singa_dask.data.fs.range_reader import RangeReader
from singa_dask.errors import DataError

__all__ = ["Bytes", "Memory", "ReadAhead", "open_bytes"]

GZIP_MAGIC = b"\x1f\x8b"
AHEAD_BYTES = 1 << 22


class Bytes(Protocol):
    """A source of bytes that is read by ranges."""

    url: str
    size: int

    def read(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``offset`` on, or raise a `DataError`."""

    def scan(self, offset: int, length: int) -> memoryview:
        """Do the same, bypassing any cache."""

    def close(self) -> None:
        """Close the source."""


class Memory:
    """Bytes in memory that came from a URL."""

    def __init__(self, url: str, data: bytes) -> None:
        self.url = url
        self.size = len(data)
        self._data = memoryview(data)

    def read(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``offset`` on."""
        if not 0 <= offset <= offset + length <= self.size:
            raise DataError(f"{self.url}: bytes {offset} to {offset + length} of a file of {self.size} bytes.")
        return self._data[offset : offset + length]

    scan = read

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

    def close(self) -> None:
        """Release the last large read."""
        self._chunk = memoryview(b"")


def open_bytes(url: str, storage_options: files.Options = None) -> Bytes:
    """Open a file; a gzipped one is decompressed into memory.

    Raises
    ------
    DataError
        The file is missing, or its gzip is damaged.
    """
    reader = RangeReader(url, storage_options)
    if bytes(reader.read(0, min(2, reader.size))) != GZIP_MAGIC:
        return reader
    try:
        return Memory(url, gzip.decompress(reader.read(0, reader.size)))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{url}: a damaged gzip file: {error}.") from error
    finally:
        reader.close()
