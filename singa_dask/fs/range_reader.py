"""Sources of bytes that are read by ranges: files, local or remote, and bytes in memory; and limits on decompression.

A small file that is damaged or made to harm must not fill the memory. Everything that decompresses data of a user
compares the decompressed size with one limit: what `limit_of` returns, 8192 MB unless the job or the storage options
give another. A gzipped file is compared as a whole, other formats block by block, as they are decompressed so.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import logging
import os
import posixpath
import re
import tempfile
import threading
import time
import urllib.parse
import weakref
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol

from singa_dask import fs
from singa_dask.cancellation import check_cancelled
from singa_dask.errors import DataError
from singa_dask.fs.cache import Cache, key_of, open_cache
from singa_dask.fs.hdfs_errors import with_errno
from singa_dask.fs.host_files import cache_of
from singa_dask.fs.io_threads import MAX_READS, io_threads, map_ahead
from singa_dask.fs.mapped_file import map_file, note_read, read_ahead
from singa_dask.fs.range_file import RangeFile
from singa_dask.fs.retry import repeated
from singa_dask.texts import decode

logger = logging.getLogger(__name__)

DEFAULT_LIMIT_MB = 8192
# decompressed files of this process beyond these bytes are temporary files, not memory
IN_MEMORY_BYTES = 1 << 28
READ_BYTES = 1 << 22
PIECE_BYTES = 1 << 18
CHUNK_BYTES = 1 << 20


class _Held(bytearray):
    """Decompressed bytes in memory, which can be counted."""

    __slots__ = ("__weakref__",)


_HELD: weakref.WeakValueDictionary[int, _Held] = weakref.WeakValueDictionary()
# several files are decompressed at the same time
_ADDING = threading.Lock()


def limit_of(storage_options: fs.Options) -> int:
    """Return the maximum number of bytes that a file, or a block of it, may decompress to."""
    return int((storage_options or {}).get(fs.MAX_DECOMPRESSED, DEFAULT_LIMIT_MB) * 1_000_000)


def check_decompressed(where: str, n_bytes: int, limit: int) -> None:
    """Raise a `DataError` if decompressed data is larger than the limit.

    Parameters
    ----------
    where : str
        URL, and block or array, for the error.
    n_bytes : int
        Decompressed size as a header states it, or the bytes decompressed so far.
    limit : int
        What `limit_of` returns.
    """
    if n_bytes > limit:
        text = f"{where}: decompresses to {n_bytes / 1e6:,.0f} MB or more, the limit is {limit / 1e6:,.0f} MB."
        advice = "If it is right, raise max_decompressed_mb, or decompress it first."
        raise DataError(f"{text} The file is damaged, or made to fill the memory. {advice}")


def gunzip(source: Bytes, limit: int) -> memoryview:
    """Return the decompressed bytes of a gzip file of one or more members.

    They are in memory as long as all such files of the process together have at most `IN_MEMORY_BYTES`; otherwise in a
    temporary file, which is mapped. It has no name: it is gone when the view is.

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
    """Append decompressed bytes; if all in memory are too many then, return False, and count these no longer."""
    with _ADDING:
        data += chunk
        _HELD[id(data)] = data
        if sum(map(len, list(_HELD.values()))) <= IN_MEMORY_BYTES:
            return True
        del _HELD[id(data)]
        return False


def _to_file(url: str, begin: bytearray, chunks: Iterator[bytes], limit: int) -> memoryview:
    """Write decompressed bytes to a temporary file, and return its map."""
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
        text = f"{url}: {n} bytes of it cannot be decompressed to {tempfile.gettempdir()}: {error.strerror or error}."
        raise DataError(f"{text} Set TMPDIR to a directory with more space, or convert the file.") from error


def _inflate(source: Bytes) -> Iterator[bytes]:
    """Yield the decompressed bytes of all members of a gzip file, at most `CHUNK_BYTES` at a time."""
    try:
        with gzip.GzipFile(fileobj=io.BufferedReader(RangeFile(source.read, source.size), READ_BYTES)) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{source.url}: a damaged gzip file: {error}.") from error


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str, limit: int) -> bytearray:
    """Return the decompressed bytes of a file in a zip archive, never holding more than its header states.

    Raises
    ------
    DataError
        It is larger than the limit.
    EOFError, OSError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error
        It is damaged.
    """
    check_decompressed(where, member.file_size, limit)
    data = bytearray()
    with archive.open(member) as file:
        # zipfile decompresses a multiple of what is asked for in some formats
        while chunk := file.read(PIECE_BYTES):
            data += chunk
    return data


# RangeReader: reads ranges of a file, memory-mapped if it is local, otherwise by (optionally cached) ranged reads.


# seconds before a read is repeated, if a web server is busy, silent or has cut the connection; and of all attempts
BACK_OFF_S, ATTEMPTS_S = (0.1, 0.4, 1.6, 4.0, 8.0), 60.0
LOOK_S, ASK_S = 0.1, 5.0
"""Seconds between two looks whether a file was changed: a local one, and a remote one. HDFS is asked only where a file
is opened again."""
# shorter reads are not cached
MIN_CACHED_BYTES = 1 << 16
# keys of `info` that change if a file is overwritten, in various filesystems
VERSIONS = (
    "Content-MD5",
    "Digest",
    "ETag",
    "Last-Modified",
    "LastModified",
    "created",
    "etag",
    "last_modified",
    "modificationTime",
    "modify",
    "mtime",
    "updated",
)


# how often a web server is asked for the ETag of its first file, to see whether it is always the same
ASK_TIMES = 4
# whether the ETags of a web server change from request to request, by scheme and host
_CHANGING: dict[str, bool] = {}


def version(url: str, storage_options: fs.Options = None) -> str:
    """Return a string that changes if a file is overwritten; empty if the filesystem reports nothing but the length."""
    return version_of(_info(url, *fs.resolve(url, storage_options)))


def version_of(info: Mapping[str, Any]) -> str:
    """Return the `version` of a file, of which a filesystem gave this ``info``."""
    values = {name: str(info[name]) for name in VERSIONS if info.get(name)}
    if "ETag" in values:
        # S3 says it to the second for an object, and more precisely in a list
        values.pop("LastModified", None)
        # a web server calls an ETag weak in the second after a change
        values["ETag"] = values["ETag"].removeprefix("W/")
    return repr((info.get("size"), values)) if values else ""


def _is_web(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _server(url: str) -> str:
    return "://".join(urllib.parse.urlsplit(url)[:2])


@cache
def _warn_of(server: str) -> None:
    """Warn once of a server that gives no versions."""
    logger.warning(
        "%s: gives neither Last-Modified nor an ETag that stays the same, so a file that is replaced by another one of "
        "the same length is not noticed, and nothing is cached. Do not change files while they are read.", server
    )  # fmt: skip


def _info(url: str, filesystem: Any, path: str) -> dict[str, Any]:
    """Return what a filesystem knows of a file; without ETags of web servers that change from answer to answer.

    Several servers behind one address may each make ETags of their own.
    """
    with fs.errors_name(url):
        info = dict(filesystem.info(path))
        if "ETag" in info and _is_web(url):
            if (server := _server(url)) not in _CHANGING:
                _CHANGING[server] = len({filesystem.info(path).get("ETag") for _ in range(ASK_TIMES)}) > 1
            if _CHANGING[server]:
                del info["ETag"]
    return info


def _version_of_local(found: os.stat_result) -> str:
    return repr((found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))


class RangeReader:
    """Reads ranges of a file: views of a memory map if it is local, ranged reads otherwise.

    A file that changes while it is read is an error: one that is written in place, and a remote one that is replaced. A
    local file that is replaced by another one stays what it was.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
        The key `fs.CACHE` holds the settings of a `Cache` for remote reads; part files of a dataset have one
        without.

    Attributes
    ----------
    size : int
        Bytes.
    is_local : bool
        Whether the file is mapped.
    cache : Cache or None
    version : str
        Changes if the file is overwritten, see `version`; also that of a local file.
    """

    origin: tuple[int, int] | None = None
    common_version = ""

    def __init__(self, url: str, storage_options: fs.Options = None) -> None:
        self.url = url
        self.cache: Cache | None = None
        self.version = ""
        local = fs.local_path(url)
        settings = (storage_options or {}).get(fs.CACHE) or cache_of(url)
        self.is_local = local is not None
        if settings is not None and local is None:
            self.cache = open_cache(settings)
        self._filesystem, self._path = fs.resolve(url, storage_options)
        self._look_s = ASK_S if local is None else LOOK_S
        self._check_at = time.monotonic() + self._look_s
        # whether something was read that `check_unchanged` has not confirmed
        self._is_unconfirmed = False
        self._local = local
        self._view: memoryview | None = None
        self._reader: Any = None
        if local is not None:
            with fs.errors_name(url), fs.open_local(local) as file:
                self._opened = os.fstat(file.fileno())
                self.size: int = self._opened.st_size
                self.version = _version_of_local(self._opened)
                # an empty file cannot be mapped
                self._view = map_file(file) if self.size else memoryview(b"")
        elif hasattr(self._filesystem, "reader"):
            # one request to the NameNode, not one per read
            with fs.errors_name(url):
                self._reader = self._filesystem.reader(self._path)
            self.size = self._reader.size
            self.version = self.common_version = repr((self.size, self._reader.modified))
        else:
            info = self._info()
            if info.get("size") is None:
                raise DataError(f"{url}: the server does not say how long the file is. Copy the file first.")
            self.size, self.version = int(info["size"]), version_of(info)
            # each of several web servers behind one address may make ETags of its own
            self.common_version = version_of({**info, "ETag": None}) if _is_web(url) else self.version
            if not self.version:
                _warn_of(_server(url))

    def read(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``offset`` on. Long reads go through the cache, if there is one.

        Raises
        ------
        DataError
            The range is not within the file.
        Aborted
            The job that this thread works for has ended.
        """
        cached = self._cached(offset, length)
        if cached is None:
            return self.scan(offset, length)
        cache, key = cached
        return cache.read(key, length, lambda: self.scan(offset, length))

    def is_cached(self, offset: int, length: int) -> bool:
        """Return whether `read` takes no request: the file is mapped, or the cache holds the range."""
        cached = self._cached(offset, length)
        return self.is_local if cached is None else cached[0].holds(cached[1])

    def _cached(self, offset: int, length: int) -> tuple[Cache, str] | None:
        """Return the cache and the key of a range there; None if the range does not go through a cache."""
        # without a version, an entry could be of an older file
        if self.cache is None or not self.version or length < MIN_CACHED_BYTES:
            return None
        return self.cache, key_of(self.url, self.size, self.version, offset, length)

    def scan(self, offset: int, length: int) -> memoryview:
        """Read bypassing the cache, for reads that do not repeat."""
        if not 0 <= offset <= offset + length <= self.size:
            raise DataError(f"{self.url}: bytes {offset} to {offset + length} of a file of {self.size} bytes.")
        check_cancelled()
        if self._view is not None:
            self._look()
            note_read(length)
            read_ahead(self._view, offset, length)
            return self._view[offset : offset + length]
        with fs.errors_name(self.url):
            data = self._read(offset, length) if length else b""
        self._look()
        if len(data) == self.size > length:
            raise DataError(f"{self.url}: {fs.NO_RANGES}")
        if len(data) != length:
            raise DataError(f"{self.url}: {len(data)} bytes at offset {offset}, expected {length}.")
        return memoryview(data)

    def reread(self, offset: int, length: int) -> memoryview:
        """Read by a reader of its own, bypassing the cache: for a read that takes too long.

        A filesystem with replicas can choose another one.
        """
        check_cancelled()
        with fs.errors_name(self.url):
            reader = self._reader and self._filesystem.reader(self._path)
            data = self._read(offset, length, reader)
        if reader and (reader.size, reader.modified) != (self._reader.size, self._reader.modified):
            raise DataError(f"{self.url}: the file was replaced while it was read.")
        if len(data) != length:
            raise DataError(f"{self.url}: {len(data)} bytes at offset {offset}, expected {length}.")
        return memoryview(data)

    def _read(self, offset: int, length: int, reader: Any = None) -> bytes:
        reader = reader or self._reader
        if reader is not None:
            return bytes(reader.read(offset, length))
        self._is_unconfirmed = True
        return repeated(lambda attempt: self._cat(offset, length), BACK_OFF_S, ATTEMPTS_S, logging.WARNING)

    def _cat(self, offset: int, length: int) -> bytes:
        try:
            return bytes(self._filesystem.cat_file(self._path, start=offset, end=offset + length))
        except Exception as error:
            if fs.may_pass(error):
                raise with_errno(OSError, errno.EIO, f"{self.url}: {fs.said(error)}") from error
            raise

    def _info(self) -> Mapping[str, Any]:
        return _info(self.url, self._filesystem, self._path)

    def _look(self) -> None:
        """Check the file, unless that was done a short time ago."""
        if time.monotonic() > self._check_at:
            self.check_unchanged()

    def check_unchanged(self) -> None:
        """Raise `DataError` if the file is not the one that was opened, from which bytes were read.

        That is a local file that was written in place, or a remote one that was replaced; of a filesystem that knows
        neither versions nor times, one of another length. HDFS is asked only where a file is opened again.
        """
        self._check_at = time.monotonic() + self._look_s
        if self._local is not None:
            try:
                now = os.stat(self._local)
            except OSError:
                return  # removed: its bytes are still mapped
            is_same_file = (now.st_ino, now.st_dev) == (self._opened.st_ino, self._opened.st_dev)
            if is_same_file and _version_of_local(now) != self.version:
                raise DataError(f"{self.url}: the file was changed while it was read.")
        elif self._is_unconfirmed:
            # reads of other threads meanwhile set it again
            self._is_unconfirmed = False
            self._filesystem.invalidate_cache(self._path)  # of listings
            try:
                info = self._info()
            except DataError:
                self._is_unconfirmed = True
                return  # who does not answer now is asked again
            if (info.get("size"), version_of(info)) != (self.size, self.version):
                self._is_unconfirmed = True
                raise DataError(f"{self.url}: the file was replaced while it was read.")

    def close(self) -> None:
        """Close the file. Arrays that are views of the map keep the map alive."""
        self._view = self._reader = None


def versions(urls: Iterable[str], storage_options: fs.Options = None) -> dict[str, str]:
    """Return the `version` of each file; of a directory, those of all files in it.

    Directories of many of the files are listed once, so that a file of theirs costs no request.

    Raises
    ------
    DataError
        A file is missing.
    """
    folders: dict[str, list[str]] = {}
    for url in urls:
        folders.setdefault(posixpath.dirname(url), []).append(url)
    known: dict[str, str] = {}
    for folder, members in folders.items():
        listed = _listed(folder, storage_options) if len(members) > 1 else {}
        for url in members:
            known.update(_below(url, storage_options, listed.get(posixpath.basename(url))))
    return known


def _listed(folder: str, storage_options: fs.Options) -> dict[str, Mapping[str, Any]]:
    """Return the entries of a directory by name; those of symbolic links are left out."""
    filesystem, path = fs.resolve(folder or ".", storage_options)
    with fs.errors_name(folder):
        entries = filesystem.ls(path, detail=True)
    return {posixpath.basename(entry["name"].rstrip("/")): entry for entry in entries if not entry.get("islink")}


def _below(url: str, storage_options: fs.Options, info: Mapping[str, Any] | None) -> dict[str, str]:
    filesystem, path = fs.resolve(url, storage_options)
    with fs.errors_name(url):
        info = info or _info(url, filesystem, path)
        if info["type"] != "directory":
            return {url: version_of(info)}
        entries = filesystem.find(path, detail=True)
    return {fs.join(url, posixpath.relpath(name, path)): version_of(entries[name]) for name in sorted(entries)}


# Sources of bytes with a common interface: a file, memory, or another source with read-ahead; and scans of them.


GZIP_MAGIC = b"\x1f\x8b"
# what begins files of other compressors, which are not read
OTHER_COMPRESSORS = {
    "bzip2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
}
# these bytes tell the program that compressed a file
MARK_BYTES = 10
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
        """Do the same, bypassing any cache."""

    def reread(self, offset: int, length: int) -> memoryview:
        """Do the same by another connection, bypassing any cache: for a read that takes too long."""

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


def open_bytes(url: str, storage_options: fs.Options = None) -> Bytes:
    """Open a file; a gzipped one is decompressed, see `gunzip`.

    Raises
    ------
    DataError
        The file is missing, its gzip is damaged, it decompresses to more than the limit, or another program
        compressed it.
    """
    reader = RangeReader(url, storage_options)
    try:
        head = bytes(reader.read(0, min(MARK_BYTES, reader.size)))
        refuse_compressed(url, head)
    except BaseException:
        reader.close()
        raise
    if not head.startswith(GZIP_MAGIC):
        return reader
    try:
        data = BytesInMemory(url, gunzip(reader, limit_of(storage_options)))
        data.common_version = reader.common_version
        return data
    finally:
        reader.close()


def refuse_compressed(url: str, head: bytes) -> None:
    """Raise a `DataError` if a file begins as one that is compressed, and not with gzip."""
    for name, begin in OTHER_COMPRESSORS.items():
        if begin.match(head):
            raise DataError(f"{url}: compressed with {name}. Decompress it, or compress it with gzip.")


def decode_text(url: str, storage_options: fs.Options = None) -> str:
    """Read a text file, gzipped or not, see `singa_dask.texts.decode`; line ends are kept."""
    with contextlib.closing(open_bytes(url, storage_options)) as source:
        return decode(bytes(source.read(0, source.size)), url)


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
