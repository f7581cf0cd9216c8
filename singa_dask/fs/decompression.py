"""Decompression with size limits, so that a damaged or malicious file cannot fill the memory.

All code that decompresses user data checks the size against `limit_of`, which is 8192 MB by default. The limit applies
to a gzipped file as a whole, and in other formats to each block.
"""

from __future__ import annotations

import gzip
import io
import tempfile
import threading
import weakref
import zipfile
import zlib
from collections.abc import Iterator

from singa_dask.errors import DataError
from singa_dask.fs.mapped_file import map_file
from singa_dask.fs.range_file import RangeFile
from singa_dask.fs.sources import Bytes
from singa_dask.fs.urls import MAX_DECOMPRESSED, Options

DEFAULT_LIMIT_MB = 8192
# maximum total bytes of decompressed files in the memory of this process; more are stored in temporary files
IN_MEMORY_BYTES = 1 << 28
READ_BYTES = 1 << 22
PIECE_BYTES = 1 << 18
CHUNK_BYTES = 1 << 20


class _Held(bytearray):
    """A bytearray that allows weak references, to count the decompressed bytes in memory."""

    __slots__ = ("__weakref__",)


_HELD: weakref.WeakValueDictionary[int, _Held] = weakref.WeakValueDictionary()
# lock for the total, because several threads decompress files
_ADDING = threading.Lock()


def limit_of(storage_options: Options) -> int:
    """Return the maximum number of decompressed bytes of a file, or of a block of it."""
    return int((storage_options or {}).get(MAX_DECOMPRESSED, DEFAULT_LIMIT_MB) * 1_000_000)


def check_decompressed(where: str, n_bytes: int, limit: int) -> None:
    """Raise a `DataError` if decompressed data exceeds the limit.

    Parameters
    ----------
    where : str
        URL, and block or array, for the error message.
    n_bytes : int
        Decompressed size according to a header, or number of bytes decompressed so far.
    limit : int
        See `limit_of`.
    """
    if n_bytes > limit:
        text = f"{where}: the data decompress to {n_bytes / 1e6:,.0f} MB or more; the limit is {limit / 1e6:,.0f} MB."
        advice = "If you trust the file, raise max_decompressed_mb, or decompress it first."
        raise DataError(f"{text} The file may be damaged or malicious. {advice}")


def gunzip(source: Bytes, limit: int) -> memoryview:
    """Return the decompressed bytes of a gzip file of one or more members.

    The bytes are in memory if all decompressed files of the process together have at most `IN_MEMORY_BYTES`. Otherwise
    they are in a mapped, unnamed temporary file, which exists as long as the view.

    Raises
    ------
    DataError
        The file is damaged, decompresses to more than the limit, or the disk of temporary files is full.
    """
    data = _Held()
    chunks = _inflate(source)
    for chunk in chunks:
        has_room = _add(data, chunk)
        check_decompressed(source.url, len(data), limit)
        if not has_room:
            return _to_file(source.url, data, chunks, limit)
    return memoryview(data).toreadonly()


def _add(data: _Held, chunk: bytes) -> bool:
    """Append bytes; return False if all decompressed files in memory together exceed the limit.

    If they exceed it, this file is no longer counted.
    """
    with _ADDING:
        data += chunk
        _HELD[id(data)] = data
        if sum(map(len, list(_HELD.values()))) <= IN_MEMORY_BYTES:
            return True
        del _HELD[id(data)]
        return False


def _to_file(url: str, begin: bytearray, chunks: Iterator[bytes], limit: int) -> memoryview:
    """Write decompressed bytes to a temporary file and return its map."""
    n = len(begin)
    try:
        with tempfile.TemporaryFile(prefix="singa-dask-") as file:
            file.write(begin)
            begin.clear()
            for chunk in chunks:
                n += len(chunk)
                check_decompressed(url, n, limit)
                file.write(chunk)
            file.flush()
            return map_file(file)
    except OSError as error:
        text = f"{url}: cannot decompress {n} bytes to {tempfile.gettempdir()}: {error.strerror or error}."
        raise DataError(f"{text} Set TMPDIR to a directory with more space, or convert the file.") from error


def _inflate(source: Bytes) -> Iterator[bytes]:
    """Yield the decompressed bytes of all members of a gzip file, at most `CHUNK_BYTES` at a time."""
    try:
        with gzip.GzipFile(fileobj=io.BufferedReader(RangeFile(source.read, source.size), READ_BYTES)) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{source.url}: the gzip file is damaged: {error}.") from error


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str, limit: int) -> bytearray:
    """Return the decompressed bytes of a file in a zip archive. The size in its header is checked first.

    Raises
    ------
    DataError
        The file exceeds the limit.
    EOFError, OSError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error
        The archive is damaged.
    """
    check_decompressed(where, member.file_size, limit)
    data = bytearray()
    with archive.open(member) as file:
        # read in pieces, because zipfile decompresses more than the requested bytes for some formats
        while chunk := file.read(PIECE_BYTES):
            data += chunk
    return data
