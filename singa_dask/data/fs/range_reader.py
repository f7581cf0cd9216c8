"""RangeReader: reads ranges of a file, memory-mapped if it is local, otherwise by (optionally cached) ranged reads."""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Iterable, Mapping
from typing import Any

from singa_dask.data import fs
from singa_dask.data.fs.cache import Cache, key_of, open_cache
from singa_dask.data.fs.host_files import cache_of
from singa_dask.data.fs.mapped_file import map_file, note_read, read_ahead
from singa_dask.errors import DataError
from singa_dask.gate import check_gate

LOOK_S, ASK_S = 0.1, 5.0
"""Seconds between two looks whether a file was changed: a local one, and a remote one. HDFS is asked only where a file
is opened again."""
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


def version(url: str, storage_options: fs.Options = None) -> str:
    """Return a string that changes if a file is overwritten; empty if the filesystem reports nothing but the length."""
    filesystem, path = fs.resolve(url, storage_options)
    with fs.errors_name(url):
        return version_of(filesystem.info(path))


def version_of(info: Mapping[str, Any]) -> str:
    """Return the `version` of a file, of which a filesystem gave this ``info``."""
    values = {name: str(info[name]) for name in VERSIONS if info.get(name) is not None}
    return repr((info["size"], values)) if values else ""


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
        Changes if the file is overwritten, see `version`.
    """

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
        self._check_at = time.monotonic() + (ASK_S if local is None else LOOK_S)
        self._local = local
        self._view: memoryview | None = None
        self._reader: Any = None
        if local is not None:
            with fs.errors_name(url), local.open("rb") as file:
                self._opened = os.fstat(file.fileno())
                self.size: int = self._opened.st_size
                # an empty file cannot be mapped
                self._view = map_file(file) if self.size else memoryview(b"")
        elif hasattr(self._filesystem, "reader"):
            # one request to the NameNode, not one per read
            with fs.errors_name(url):
                self._reader = self._filesystem.reader(self._path)
            self.size = self._reader.size
            self.version = version_of(self._info()) if self.cache else ""
        else:
            info = self._info()
            self.size, self.version = int(info["size"]), version_of(info)

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
        check_gate()
        if self._view is not None:
            self.check_unchanged()
            note_read(length)
            read_ahead(self._view, offset, length)
            return self._view[offset : offset + length]
        with fs.errors_name(self.url):
            data = self._read(offset, length) if length else b""
        self._check_version()
        if len(data) == self.size > length:
            raise DataError(f"{self.url}: the server sends whole files only, not ranges of bytes. Copy the file first.")
        if len(data) != length:
            raise DataError(f"{self.url}: {len(data)} bytes at offset {offset}, expected {length}.")
        return memoryview(data)

    def reread(self, offset: int, length: int) -> memoryview:
        """Read by a reader of its own, bypassing the cache: for a read that takes too long.

        A filesystem with replicas can choose another one.
        """
        check_gate()
        with fs.errors_name(self.url):
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

    def _info(self) -> Mapping[str, Any]:
        with fs.errors_name(self.url):
            return dict(self._filesystem.info(self._path))

    def _check_version(self) -> None:
        """Raise `DataError` if a remote file is another one than that which was opened."""
        if self._reader is None and self.version and time.monotonic() > self._check_at:
            self._check_at = time.monotonic() + ASK_S
            self._filesystem.invalidate_cache(self._path)  # of listings
            try:
                is_same = version_of(self._info()) == self.version
            except DataError:
                return  # who does not answer now is asked again
            if not is_same:
                raise DataError(f"{self.url}: the file was replaced while it was read.")

    def check_unchanged(self) -> None:
        """Raise `DataError` if the bytes of a local file, of which views were returned, are being changed."""
        if self._local is None or time.monotonic() <= self._check_at:
            return
        self._check_at = time.monotonic() + LOOK_S
        try:
            now = os.stat(self._local)
        except OSError:
            return  # removed: its bytes are still mapped
        before = self._opened
        is_same = (now.st_ino, now.st_dev) == (before.st_ino, before.st_dev)
        if is_same and (now.st_mtime_ns, now.st_size) != (before.st_mtime_ns, before.st_size):
            raise DataError(f"{self.url}: the file was changed while it was read.")

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
        info = info or filesystem.info(path)
        if info["type"] != "directory":
            return {url: version_of(info)}
        entries = filesystem.find(path, detail=True)
    return {fs.join(url, posixpath.relpath(name, path)): version_of(entries[name]) for name in sorted(entries)}
