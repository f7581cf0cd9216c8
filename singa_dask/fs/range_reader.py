"""RangeReader: read ranges of a file from a memory map, or by requests with an optional cache."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from singa_dask.cancellation import check_cancelled
from singa_dask.errors import DataError
from singa_dask.fs.cache import Cache, key_of, open_cache
from singa_dask.fs.client_errors import NO_RANGES, errors_name, may_pass, message_of, with_errno
from singa_dask.fs.files import open_local
from singa_dask.fs.host_files import cache_of
from singa_dask.fs.mapped_file import map_file, note_read, read_ahead
from singa_dask.fs.retry import repeated
from singa_dask.fs.urls import CACHE, Options, local_path, resolve
from singa_dask.fs.versions import is_web, look_up, server_of, version_of, version_of_local, warn_of

# seconds before each retry if a web server is busy or silent, and maximum seconds for all attempts together
BACK_OFF_S, ATTEMPTS_S = (0.1, 0.4, 1.6, 4.0, 8.0), 60.0
LOOK_S = 0.1
"""Seconds between two checks of whether a local file has changed."""
ASK_S = 5.0
"""Seconds between two checks of whether a remote file has changed; not for HDFS."""
# reads of fewer bytes are not cached
MIN_CACHED_BYTES = 1 << 16


class RangeReader:
    """Reads ranges of a file: views of a memory map for a local file, requests for a remote file.

    If a file changes while it is read, an error is raised. If a local file is replaced by another file, the old file
    can still be read.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
        Options of the filesystem. The key `fs.CACHE` has the settings of a `Cache` for remote reads. Part files of a
        dataset have a cache by default.

    Attributes
    ----------
    size : int
        Length of the file in bytes.
    is_local : bool
        Whether the file is mapped.
    cache : Cache or None
    version : str
        A string that changes if the file is overwritten; see `versions.version`.
    """

    origin: tuple[int, int] | None = None
    common_version = ""

    def __init__(self, url: str, storage_options: Options = None) -> None:
        self.url = url
        self.cache: Cache | None = None
        self.version = ""
        local = local_path(url)
        settings = (storage_options or {}).get(CACHE) or cache_of(url)
        self.is_local = local is not None
        if settings is not None and local is None:
            self.cache = open_cache(settings)
        self._filesystem, self._path = resolve(url, storage_options)
        self._look_s = ASK_S if local is None else LOOK_S
        self._check_at = time.monotonic() + self._look_s
        # whether bytes have been read since the last `check_unchanged`
        self._is_unconfirmed = False
        self._local = local
        self._view: memoryview | None = None
        self._reader: Any = None
        if local is not None:
            with errors_name(url), open_local(local) as file:
                self._opened = os.fstat(file.fileno())
                self.size: int = self._opened.st_size
                self.version = version_of_local(self._opened)
                # mmap does not accept an empty file
                self._view = map_file(file) if self.size else memoryview(b"")
        elif hasattr(self._filesystem, "reader"):
            # send one request to the NameNode, and reuse the reader for all reads
            with errors_name(url):
                self._reader = self._filesystem.reader(self._path)
            self.size = self._reader.size
            self.version = self.common_version = repr((self.size, self._reader.modified))
        else:
            info = self._info()
            if info.get("size") is None:
                raise DataError(f"{url}: the server does not report the length of the file. Copy the file first.")
            self.size, self.version = int(info["size"]), version_of(info)
            # several web servers behind one address may send different ETags
            self.common_version = version_of({**info, "ETag": None}) if is_web(url) else self.version
            if not self.version:
                warn_of(server_of(url))

    def read(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``offset`` on. Long remote reads use the cache, if there is one.

        Raises
        ------
        DataError
            The range is not within the file, or the file cannot be read.
        Aborted
            The job of this thread has ended.
        """
        cached = self._cached(offset, length)
        if cached is None:
            return self.scan(offset, length)
        cache, key = cached
        return cache.read(key, length, lambda: self.scan(offset, length))

    def is_cached(self, offset: int, length: int) -> bool:
        """Return whether `read` needs no request: the file is mapped, or the cache has the range."""
        cached = self._cached(offset, length)
        return self.is_local if cached is None else cached[0].holds(cached[1])

    def _cached(self, offset: int, length: int) -> tuple[Cache, str] | None:
        """Return the cache and the key for a range, or None if the range must not be cached."""
        # without a version, a cached entry could belong to an older file
        if self.cache is None or not self.version or length < MIN_CACHED_BYTES:
            return None
        return self.cache, key_of(self.url, self.size, self.version, offset, length)

    def scan(self, offset: int, length: int) -> memoryview:
        """Read a range without the cache. Use this method for ranges that are read only once."""
        if not 0 <= offset <= offset + length <= self.size:
            where = f"bytes {offset} to {offset + length}"
            raise DataError(f"{self.url}: cannot read {where} of a file of {self.size} bytes.")
        check_cancelled()
        if self._view is not None:
            self._look()
            note_read(length)
            read_ahead(self._view, offset, length)
            return self._view[offset : offset + length]
        with errors_name(self.url):
            data = self._read(offset, length) if length else b""
        self._look()
        if len(data) == self.size > length:
            raise DataError(f"{self.url}: {NO_RANGES}")
        if len(data) != length:
            raise DataError(f"{self.url}: read {len(data)} bytes at offset {offset}, expected {length}.")
        return memoryview(data)

    def reread(self, offset: int, length: int) -> memoryview:
        """Read a range again over another connection, after a late or a damaged read.

        HDFS may use another replica. The bytes replace a cached copy.
        """
        check_cancelled()
        with errors_name(self.url):
            reader = self._reader and self._filesystem.reader(self._path)
            data = self._read(offset, length, reader)
        if reader and (reader.size, reader.modified) != (self._reader.size, self._reader.modified):
            raise DataError(f"{self.url}: the file was replaced while it was read.")
        if len(data) != length:
            raise DataError(f"{self.url}: read {len(data)} bytes at offset {offset}, expected {length}.")
        if cached := self._cached(offset, length):
            cached[0].keep(cached[1], data)
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
            if may_pass(error):
                raise with_errno(OSError, errno.EIO, f"{self.url}: {message_of(error)}") from error
            raise

    def _info(self) -> Mapping[str, Any]:
        return look_up(self.url, self._filesystem, self._path)

    def _look(self) -> None:
        """Check whether the file has changed, unless it was checked recently."""
        if time.monotonic() > self._check_at:
            self.check_unchanged()

    def check_unchanged(self) -> None:
        """Raise `DataError` if bytes were read and the file was changed since it was opened.

        The check detects local files that were changed in place, and remote files that were replaced. On filesystems
        without versions, it detects only a change of the length. HDFS files are checked when they are opened again.
        """
        self._check_at = time.monotonic() + self._look_s
        if self._local is not None:
            try:
                now = os.stat(self._local)
            except OSError:
                return  # the file was removed, but its bytes are still mapped
            is_same_file = (now.st_ino, now.st_dev) == (self._opened.st_ino, self._opened.st_dev)
            if is_same_file and version_of_local(now) != self.version:
                raise DataError(f"{self.url}: the file was changed while it was read.")
        elif self._is_unconfirmed:
            # reset the flag before the check, because other threads may read, and set it again, during the check
            self._is_unconfirmed = False
            self._filesystem.invalidate_cache(self._path)  # drop cached listings
            try:
                info = self._info()
            except DataError:
                self._is_unconfirmed = True
                return  # the next call checks again
            if (info.get("size"), version_of(info)) != (self.size, self.version):
                self._is_unconfirmed = True
                raise DataError(f"{self.url}: the file was replaced while it was read.")

    def close(self) -> None:
        """Close the file. Arrays that are views of the map stay valid."""
        self._view = self._reader = None
