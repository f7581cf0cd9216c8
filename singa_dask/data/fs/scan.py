"""Reading a range of a file from its begin to its end, many requests at a time."""

from __future__ import annotations

from collections.abc import Iterator

from singa_dask.data.fs.byte_source import Bytes
from singa_dask.data.fs.io_threads import MAX_READS, io_threads, map_ahead

__all__ = ["scan_ahead"]

# of chunks that are requested and not yet used
AHEAD_BYTES = 1 << 25


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
    return map_ahead(read, offsets, io_threads(source.url), min(MAX_READS, AHEAD_BYTES // n_bytes))
