"""Files at URLs: the one place that knows fsspec.

Everything that reads or writes a file, records or checkpoints or run directories, names it by a URL and
comes here. Local files are memory-mapped, others are read by ranges; those on HDFS by a client of our own.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import posixpath
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from singa_dask.data import hdfs_clients
from singa_dask.errors import DataError

__all__ = [
    "Options",
    "Ranges",
    "absolute",
    "exists",
    "get_block_locations",
    "is_dir",
    "join",
    "local_path",
    "ls",
    "makedirs",
    "open",
    "read_bytes",
    "remove_tree",
    "resolve",
    "size",
    "staged",
    "write_atomic",
]

Options = Mapping[str, Any] | None


@contextlib.contextmanager
def _errors_name(url: str) -> Iterator[None]:
    """Turn what a filesystem raises into a `DataError` that names the URL."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{url}: no such file or directory.") from error
    except (OSError, ValueError, ImportError) as error:
        text = str(error)
        raise DataError(text if text.startswith(url) else f"{url}: {text}") from error


def resolve(url: str, storage_options: Options = None) -> tuple[Any, str]:
    """Return the fsspec filesystem of a URL and the path on it.

    Parameters
    ----------
    url : str
        A path, or ``protocol://...``.
    storage_options : mapping, optional
        Passed to the filesystem. Those of HDFS: `hdfs_clients.connect`.

    Raises
    ------
    DataError
        The protocol is unknown, or its package is missing.
    """
    options = dict(storage_options or {})
    with _errors_name(url):
        if url.startswith(hdfs_clients.SCHEMES):
            return hdfs_clients.connect(url, options)
        filesystem, path = fsspec.core.url_to_fs(url, **options)
    return filesystem, path


def local_path(url: str) -> Path | None:
    """Return the path of a local URL, None for any other."""
    filesystem, path = resolve(url) if "://" not in url or url.startswith(("file:", "local:")) else (None, "")
    return Path(path) if isinstance(filesystem, LocalFileSystem) else None


def absolute(url: str) -> str:
    """Make a relative local path absolute, so that it means the same in every process; leave URLs alone."""
    return url if "://" in url or not url else os.path.abspath(url)


def join(url: str, *parts: str) -> str:
    """Append path parts to a URL."""
    return posixpath.join(url, *parts)


def exists(url: str, storage_options: Options = None) -> bool:
    """Say whether a file or directory is there."""
    filesystem, path = resolve(url, storage_options)
    with _errors_name(url):
        return bool(filesystem.exists(path))


def is_dir(url: str, storage_options: Options = None) -> bool:
    """Say whether a directory is there."""
    filesystem, path = resolve(url, storage_options)
    with _errors_name(url):
        return bool(filesystem.isdir(path))


def size(url: str, storage_options: Options = None) -> int:
    """Return the length of a file in bytes."""
    filesystem, path = resolve(url, storage_options)
    with _errors_name(url):
        return int(filesystem.size(path))


def ls(url: str, storage_options: Options = None) -> list[str]:
    """Return the names (last part of the path) of what a directory holds, sorted."""
    filesystem, path = resolve(url, storage_options)
    with _errors_name(url):
        return sorted(posixpath.basename(str(name).rstrip("/")) for name in filesystem.ls(path, detail=False))


def get_block_locations(
    url: str, start: int = 0, length: int | None = None, storage_options: Options = None
) -> list[dict[str, Any]]:
    """Say which hosts hold which bytes of a file, as hdfs3 says it.

    Parameters
    ----------
    url : str
    start, length : int, optional
        A range in bytes; to the end of the file if there is no ``length``.

    Returns
    -------
    list of dict
        ``hosts`` (list of str), ``offset`` and ``length`` of each block that holds a part of the range. Empty where
        the filesystem has no such thing or does not tell.
    """
    filesystem, path = resolve(url, storage_options)
    if not hasattr(filesystem, "get_block_locations"):
        return []
    with _errors_name(url):
        found: list[dict[str, Any]] = filesystem.get_block_locations(path, start, length)
    return found


def makedirs(url: str, storage_options: Options = None) -> None:
    """Make a directory and its parents, where they are missing."""
    filesystem, path = resolve(url, storage_options)
    with _errors_name(url):
        filesystem.makedirs(path, exist_ok=True)


def remove_tree(url: str, storage_options: Options = None) -> None:
    """Delete a file, or a directory with all that is in it; nothing happens if it is not there."""
    filesystem, path = resolve(url, storage_options)
    with _errors_name(url):
        if filesystem.exists(path):
            filesystem.rm(path, recursive=True)


def open(url: str, mode: str = "rb", storage_options: Options = None) -> IO[Any]:
    """Open a file; parents of a file to be written are made. Use it in a ``with`` statement."""
    filesystem, path = resolve(url, storage_options)
    with _errors_name(url):
        if "r" not in mode:
            filesystem.makedirs(filesystem._parent(path), exist_ok=True)
        file: IO[Any] = filesystem.open(path, mode)
    return file


def read_bytes(url: str, offset: int = 0, length: int | None = None, storage_options: Options = None) -> bytes:
    """Read a range of a file, or all from ``offset`` on.

    Raises
    ------
    DataError
        The file is missing, or shorter than ``offset + length``.
    """
    filesystem, path = resolve(url, storage_options)
    end = None if length is None else offset + length
    with _errors_name(url):
        data = bytes(filesystem.cat_file(path, start=offset, end=end)) if length != 0 else b""
    if length is not None and len(data) != length:
        raise DataError(f"{url}: {len(data)} bytes at offset {offset}, expected {length}: the file is cut short.")
    return data


@contextlib.contextmanager
def staged(url: str, storage_options: Options = None) -> Iterator[Path]:
    """Write a file as a whole or not at all.

    Yields the path of a local file to be made. When the block ends well it takes the place of ``url`` (by a
    rename on a local disk, else by an upload); when it raises, ``url`` is as it was.
    """
    target = local_path(url)
    filesystem, path = resolve(url, storage_options)
    with _errors_name(url):
        filesystem.makedirs(filesystem._parent(path), exist_ok=True)
    folder = target.parent if target else Path(tempfile.gettempdir())
    temporary = folder / f".{posixpath.basename(path)}.{secrets.token_hex(8)}.tmp"
    try:
        yield temporary
        with _errors_name(url):
            if target:
                _rename_durably(temporary, target)
            else:
                filesystem.put_file(str(temporary), path)
    finally:
        temporary.unlink(missing_ok=True)


def _rename_durably(source: Path, target: Path) -> None:
    _fsync(source)
    os.replace(source, target)
    # the new name is durable only when its directory is written too
    _fsync(target.parent)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(url: str, data: bytes | bytearray | memoryview, storage_options: Options = None) -> None:
    """Write a whole file at once: a reader sees all of the old one or all of the new one."""
    with staged(url, storage_options) as path:
        with _errors_name(url):
            path.write_bytes(data)


class Ranges:
    """A file that is read by ranges: views of a memory map if it is local, ranged reads if it is not.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional

    Attributes
    ----------
    size : int
        Bytes.
    """

    def __init__(self, url: str, storage_options: Options = None) -> None:
        self.url = url
        self._filesystem, self._path = resolve(url, storage_options)
        self._view: memoryview | None = None
        self._reader: Any = None
        if isinstance(self._filesystem, LocalFileSystem):
            self._open_map()
        elif hasattr(self._filesystem, "reader"):
            # asks the NameNode once, not at each read
            with _errors_name(url):
                self._reader = self._filesystem.reader(self._path)
            self.size: int = self._reader.size
        else:
            self.size = size(url, storage_options)

    def _open_map(self) -> None:
        with _errors_name(self.url), Path(self._path).open("rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            # an empty file cannot be mapped
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
        self._view = memoryview(data)

    def read(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``offset`` on.

        Raises
        ------
        DataError
            The range does not lie in the file.
        """
        if not 0 <= offset <= offset + length <= self.size:
            raise DataError(f"{self.url}: bytes {offset} to {offset + length} of a file of {self.size} bytes.")
        if self._view is not None:
            return self._view[offset : offset + length]
        with _errors_name(self.url):
            data = self._read(offset, length) if length else b""
        if len(data) != length:
            raise DataError(f"{self.url}: {len(data)} bytes at offset {offset}, expected {length}.")
        return memoryview(data)

    def _read(self, offset: int, length: int) -> bytes:
        if self._reader is not None:
            return bytes(self._reader.read(offset, length))
        return bytes(self._filesystem.cat_file(self._path, start=offset, end=offset + length))

    def close(self) -> None:
        """Let go of the file. Arrays that look into its map keep the map alive."""
        self._view = self._reader = None
