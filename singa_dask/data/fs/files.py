"""Files at URLs: the one place that knows fsspec.

Everything that reads or writes a file, records or checkpoints or run directories, names it by a URL and
comes here. Local files are memory-mapped, others are read by ranges; those on HDFS by a client of our own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import secrets
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from singa_dask.data.fs import hdfs_clients
from singa_dask.errors import DataError

__all__ = [
    "CACHE",
    "Options",
    "absolute",
    "errors_name",
    "exists",
    "get_block_locations",
    "has_locations",
    "is_dir",
    "join",
    "local_path",
    "ls",
    "makedirs",
    "modified",
    "move",
    "open",
    "read_bytes",
    "remove_tree",
    "resolve",
    "size",
    "staged",
    "write_atomic",
]

Options = Mapping[str, Any] | None

# key of the options that asks `range_reader.RangeReader` for a cache, and is none of the filesystem's
CACHE = "singa_dask.cache"


@contextlib.contextmanager
def errors_name(url: str) -> Iterator[None]:
    """Turn what a filesystem raises into a `DataError` that names the URL."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{url}: no such file or directory.") from error
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(f"{url}: a file is in the way where a directory is expected.") from error
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
    options.pop(CACHE, None)
    with errors_name(url):
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
    with errors_name(url):
        return bool(filesystem.exists(path))


def is_dir(url: str, storage_options: Options = None) -> bool:
    """Say whether a directory is there."""
    filesystem, path = resolve(url, storage_options)
    with errors_name(url):
        return bool(filesystem.isdir(path))


def size(url: str, storage_options: Options = None) -> int:
    """Return the length of a file in bytes."""
    filesystem, path = resolve(url, storage_options)
    with errors_name(url):
        return int(filesystem.size(path))


def ls(url: str, storage_options: Options = None) -> list[str]:
    """Return the names (last part of the path) of what a directory holds, sorted."""
    filesystem, path = resolve(url, storage_options)
    with errors_name(url):
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
    with errors_name(url):
        found: list[dict[str, Any]] = filesystem.get_block_locations(path, start, length)
    return found


def has_locations(url: str, storage_options: Options = None) -> bool:
    """Say whether a filesystem has block locations to tell, not whether it will."""
    return hasattr(resolve(url, storage_options)[0], "get_block_locations")


def makedirs(url: str, storage_options: Options = None) -> None:
    """Make a directory and its parents, where they are missing."""
    filesystem, path = resolve(url, storage_options)
    with errors_name(url):
        filesystem.makedirs(path, exist_ok=True)


def remove_tree(url: str, storage_options: Options = None) -> None:
    """Delete a file, or a directory with all that is in it; nothing happens if it is not there."""
    filesystem, path = resolve(url, storage_options)
    with errors_name(url):
        if filesystem.exists(path):
            filesystem.rm(path, recursive=True)


def modified(url: str, storage_options: Options = None) -> str:
    """Say when a file was last written, empty where the filesystem does not tell."""
    filesystem, path = resolve(url, storage_options)
    with errors_name(url):
        try:
            return str(filesystem.modified(path))
        except (NotImplementedError, KeyError, OSError):
            return ""


def move(source: str, target: str, storage_options: Options = None) -> None:
    """Rename a file, or each file of a directory, on one filesystem; a file at the target is replaced at once."""
    if is_dir(source, storage_options):
        for name in ls(source, storage_options):
            move(join(source, name), join(target, name), storage_options)
        return
    here, there = local_path(source), local_path(target)
    filesystem, path = resolve(target, storage_options)
    with errors_name(target):
        filesystem.makedirs(filesystem._parent(path), exist_ok=True)
        if here and there:
            _rename_durably(here, there)
        else:
            filesystem.mv(resolve(source, storage_options)[1], path)


def open(url: str, mode: str = "rb", storage_options: Options = None) -> IO[Any]:
    """Open a file; parents of a file to be written are made. Use it in a ``with`` statement."""
    filesystem, path = resolve(url, storage_options)
    with errors_name(url):
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
    with errors_name(url):
        data = bytes(filesystem.cat_file(path, start=offset, end=end)) if length != 0 else b""
    if length is not None and len(data) != length:
        raise DataError(f"{url}: {len(data)} bytes at offset {offset}, expected {length}: the file is cut short.")
    return data


@contextlib.contextmanager
def staged(url: str, storage_options: Options = None) -> Iterator[Path]:
    """Write a file as a whole or not at all.

    Yields the path of a local file to be made. When the block ends well it takes the place of ``url`` (on a disk
    that is not local it is uploaded under another name first) by a rename; when it raises, ``url`` is as it was.
    What killed processes of this host have left of the same file is removed.
    """
    target = local_path(url)
    filesystem, path = resolve(url, storage_options)
    with errors_name(url):
        filesystem.makedirs(filesystem._parent(path), exist_ok=True)
    folder = target.parent if target else Path(tempfile.gettempdir())
    # names the file, and who writes it
    prefix = f".{posixpath.basename(path)}.{hashlib.sha256(f'{socket.gethostname()} {path}'.encode()).hexdigest()[:8]}"
    _remove_leftovers(folder, prefix)
    temporary = folder / f"{prefix}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        yield temporary
        with errors_name(url):
            if target:
                _rename_durably(temporary, target)
            else:
                _upload(filesystem, temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_leftovers(folder: Path, prefix: str) -> None:
    for entry in os.scandir(folder):
        if not (entry.name.startswith(prefix) and entry.name.endswith(".tmp")):
            continue
        pid = entry.name.removeprefix(prefix).split(".")[1]
        if pid.isdigit() and not _is_alive(int(pid)):
            Path(entry.path).unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _upload(filesystem: Any, source: Path, path: str) -> None:
    temporary = posixpath.join(filesystem._parent(path), source.name)
    try:
        filesystem.put_file(str(source), temporary)
        filesystem.mv(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.rm(temporary)
        raise


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
        with errors_name(url):
            path.write_bytes(data)
