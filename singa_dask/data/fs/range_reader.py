"""RangeReader: reads ranges of a file, memory-mapped if it is local, otherwise by (optionally cached) ranged reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from singa_dask.data.fs import files
from singa_dask.data.fs.cache import Cache, key_of, open_cache
from singa_dask.data.fs.host_files import cache_of
from singa_dask.data.fs.mapped_file import map_file, note_read, read_ahead
from singa_dask.errors import DataError
from singa_dask.gate import check_gate

__all__ = ["RangeReader", "version", "version_of", "with_cache"]

# shorter reads are not cached
MIN_CACHED_BYTES = 1 << 16
# keys of `info` that change if a file is overwritten, in various filesystems
VERSIONS = (
    "ETag",
    "Last-Modified",
    "LastModified",
    "created",
    "etag",
    "last_modified",
    "modificationTime",
    "mtime",
    "updated",
)


def version(url: str, storage_options: files.Options = None) -> str:
    """Return a string that changes if a file is overwritten; empty if the filesystem reports nothing but the length."""
    filesystem, path = files.resolve(url, storage_options)
    with files.errors_name(url):
        return version_of(filesystem.info(path))


def version_of(info: Mapping[str, Any]) -> str:
    """Return the `version` of a file, of which a filesystem gave this ``info``."""
    found = {name: str(info[name]) for name in VERSIONS if info.get(name) is not None}
    return repr((info["size"], found)) if found else ""


def with_cache(storage_options: files.Options, cache: Mapping[str, Any] | None) -> files.Options:
    """Return storage options that enable a cache for remote reads; unchanged if ``cache`` is None."""
    return storage_options if cache is None else {**(storage_options or {}), files.CACHE: dict(cache)}


class RangeReader:
    """Reads ranges of a file: views of a memory map if it is local, ranged reads otherwise.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
        The key `files.CACHE` holds the settings of a `Cache` for remote reads; part files of a dataset have one
        without.

    Attributes
    ----------
    size : int
        Bytes.
    is_local : bool
        Whether the file is mapped.
    cache : Cache or None
    version : str
        Changes if the file is overwritten, see `version`; only set if there is a cache.
    """

    def __init__(self, url: str, storage_options: files.Options = None) -> None:
        self.url = url
        self.cache: Cache | None = None
        self.version = ""
        local = files.local_path(url)
        settings = (storage_options or {}).get(files.CACHE) or cache_of(url)
        self.is_local = local is not None
        if settings is not None and local is None:
            self.cache, self.version = open_cache(settings), version(url, storage_options)
        self._filesystem, self._path = files.resolve(url, storage_options)
        self._view: memoryview | None = None
        self._reader: Any = None
        if local is not None:
            self._open_map(local)
        elif hasattr(self._filesystem, "reader"):
            # one request to the NameNode, not one per read
            with files.errors_name(url):
                self._reader = self._filesystem.reader(self._path)
            self.size: int = self._reader.size
        else:
            self.size = files.size(url, storage_options)

    def _open_map(self, path: Path) -> None:
        with files.errors_name(self.url), path.open("rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            # an empty file cannot be mapped
            self._view = map_file(file) if self.size else memoryview(b"")

    def read(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``offset`` on. Long reads go through the cache, if there is one.

        Raises
        ------
        DataError
            The range is not within the file.
        Aborted
            The job that this thread works for has ended.
        """
        if self.cache is None or not self._can_cache(length):
            return self.scan(offset, length)
        return self.cache.read(self._key(offset, length), length, lambda: self.scan(offset, length))

    def is_cached(self, offset: int, length: int) -> bool:
        """Return whether `read` takes no request: the file is mapped, or the cache holds the range."""
        if self.cache is None or not self._can_cache(length):
            return self.is_local
        return self.cache.holds(self._key(offset, length))

    def _can_cache(self, length: int) -> bool:
        # without a version, an entry could be of an older file
        return bool(self.version) and length >= MIN_CACHED_BYTES

    def _key(self, offset: int, length: int) -> str:
        return key_of(self.url, self.size, self.version, offset, length)

    def scan(self, offset: int, length: int) -> memoryview:
        """Read bypassing the cache, for reads that do not repeat."""
        if not 0 <= offset <= offset + length <= self.size:
            raise DataError(f"{self.url}: bytes {offset} to {offset + length} of a file of {self.size} bytes.")
        check_gate()
        if self._view is not None:
            note_read(length)
            read_ahead(self._view, offset, length)
            return self._view[offset : offset + length]
        with files.errors_name(self.url):
            data = self._read(offset, length) if length else b""
        if len(data) != length:
            raise DataError(f"{self.url}: {len(data)} bytes at offset {offset}, expected {length}.")
        return memoryview(data)

    def reread(self, offset: int, length: int) -> memoryview:
        """Read by a reader of its own, bypassing the cache: for a read that takes too long.

        A filesystem with replicas can choose another one.
        """
        check_gate()
        with files.errors_name(self.url):
            reader = self._reader and self._filesystem.reader(self._path)
            data = self._read(offset, length, reader)
        if len(data) != length or (reader and reader.size != self.size):
            raise DataError(f"{self.url}: {len(data)} bytes at offset {offset}, expected {length}.")
        return memoryview(data)

    def _read(self, offset: int, length: int, reader: Any = None) -> bytes:
        reader = reader or self._reader
        if reader is not None:
            return bytes(reader.read(offset, length))
        return bytes(self._filesystem.cat_file(self._path, start=offset, end=offset + length))

    def close(self) -> None:
        """Close the file. Arrays that are views of the map keep the map alive."""
        self._view = self._reader = None
