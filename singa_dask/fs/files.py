"""Files and directories at URLs: sizes and listings, reads, new directories, and deletion."""

from __future__ import annotations

import builtins
import contextlib
import os
import posixpath
import stat
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from fsspec.core import has_magic
from fsspec.implementations.local import LocalFileSystem

from singa_dask.errors import DataError, NoFileError, SingaError
from singa_dask.fs.client_errors import NO_RANGES, errors_name, refusal
from singa_dask.fs.hdfs.clients import is_webhdfs
from singa_dask.fs.urls import Options, local_path, resolve, resolved
from singa_dask.wording import nearest

# protocols of object stores, where only the bucket (the first part of a path) is a real directory
OBJECTS = frozenset(("s3", "gs"))
# maximum number of names in a directory to compare with the name of a missing file
MAX_BESIDE = 1000


def no_file(url: str, storage_options: Options = None) -> NoFileError:
    """Return the error about a file or directory that does not exist."""
    return NoFileError(f"{url}: no such file or directory.{question_beside(url, storage_options)}")


def question_beside(url: str, storage_options: Options = None) -> str:
    """Return a question that suggests a similar name in a missing file's directory; else empty."""
    folder, slash, name = url.rstrip("/").rpartition("/")
    names = list[str]()
    if not url.startswith(("http://", "https://")):
        with contextlib.suppress(SingaError, OSError):
            names = ls(folder or slash or ".", storage_options)[:MAX_BESIDE]
    close = nearest(name, names)
    if not close or close == name:
        return ""
    found = f"{folder}{slash}{close}"
    path = local_path(found)
    if path is not None and not (here := os.path.relpath(path)).startswith(".."):
        found = here
    return f" Did you mean {found!r}?"


def exists(url: str, storage_options: Options = None) -> bool:
    """Return whether a file or directory exists."""
    return look(url, storage_options) is not None


def is_dir(url: str, storage_options: Options = None) -> bool:
    """Return whether a URL is an existing directory."""
    with resolved(url, storage_options) as (filesystem, path):
        info = info_of(filesystem, path)
        # an HTTP page or a link can be a directory, which only `isdir` detects
        return info is not None and (info["type"] == "directory" or bool(filesystem.isdir(path)))


def size(url: str, storage_options: Options = None) -> int:
    """Return the length of a file in bytes."""
    with resolved(url, storage_options) as (filesystem, path):
        return int(filesystem.size(path))


def look(url: str, storage_options: Options = None) -> tuple[bool, int] | None:
    """Return whether a URL is a directory, and its length in bytes; None if it does not exist.

    This takes one request.
    """
    with resolved(url, storage_options) as (filesystem, path):
        info = info_of(filesystem, path)
    return None if info is None else (info["type"] == "directory", int(info.get("size") or 0))


def info_of(filesystem: Any, path: str) -> dict[str, Any] | None:
    """Return fsspec's ``info`` of a path; None if it does not exist.

    fsspec's ``exists`` is not used, because it treats every exception as a missing file, even a network failure.
    """
    try:
        info: dict[str, Any] = filesystem.info(path)
    except NotADirectoryError:
        return None
    except FileNotFoundError as error:
        # object stores answer 403 also for a missing object
        if refusal(error) and getattr(error.__cause__, "status", None) not in (401, 403):
            raise
        return None
    return info


def ls(url: str, storage_options: Options = None) -> list[str]:
    """Return the sorted names of the entries of a directory."""
    with resolved(url, storage_options) as (filesystem, path):
        return sorted(posixpath.basename(str(name).rstrip("/")) for name in filesystem.ls(path, detail=False))


def entries(url: str, storage_options: Options = None) -> list[tuple[str, bool, int]]:
    """Return (name, is a directory, length in bytes) of each entry of a directory, sorted by name.

    Raises
    ------
    DataError
        An entry is a broken link, a pipe, a socket or a device, and is not hidden.
    """
    members = []
    with resolved(url, storage_options) as (filesystem, path):
        if isinstance(filesystem, LocalFileSystem):  # os.scandir takes a quarter of the time of fsspec
            with os.scandir(path) as found:
                return sorted(_look_at(entry) for entry in found)
        for info in filesystem.ls(path, detail=True):
            name, is_folder, n_bytes = str(info["name"]).rstrip("/"), info["type"] == "directory", info.get("size")
            if info["type"] not in ("directory", "file"):  # the entry is a link
                is_folder, n_bytes = filesystem.isdir(name), filesystem.size(name)
            members.append((posixpath.basename(name), is_folder, int(n_bytes or 0)))
    return sorted(members)


def _look_at(entry: os.DirEntry[str]) -> tuple[str, bool, int]:
    """Return (name, is a directory, length in bytes) of an entry of a local directory."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        if entry.name.startswith(".") or not entry.is_symlink():
            return entry.name, False, 0
        raise DataError(f"{entry.path}: this is a link to {os.readlink(entry.path)}, which does not exist.") from None
    if not entry.name.startswith("."):
        _refuse_stream(entry.path, status)
    return entry.name, entry.is_dir(), status.st_size


def _refuse_stream(path: str, status: os.stat_result) -> None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise DataError(f"{path}: this is a pipe, a socket or a device, not a file.")


def is_stream(path: Path) -> bool:
    """Return whether a path is a device, a pipe, or an open file of this process, such as ``/dev/stdout``."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    is_open = path.is_symlink() and path.is_relative_to("/dev")
    return is_open or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def open_local(path: str | Path) -> BufferedReader:
    """Open a local file for reading; refuse pipes, because the process would wait for a writer."""
    _refuse_stream(str(path), os.stat(path))
    return builtins.open(path, "rb")


def open(url: str, mode: str = "rb", storage_options: Options = None) -> IO[Any]:
    """Open a file for use in a ``with`` statement. For writing, missing parent directories are created."""
    with resolved(url, storage_options) as (filesystem, path):
        if "r" not in mode:
            make_folder(filesystem, parent(filesystem, path))
        file: IO[Any] = filesystem.open(path, mode)
        return file


def read_bytes(url: str, offset: int = 0, length: int | None = None, storage_options: Options = None) -> bytes:
    """Return ``length`` bytes of a file from ``offset`` on; by default all bytes from ``offset`` on.

    Raises
    ------
    DataError
        The file is missing, or shorter than ``offset + length``.
    """
    filesystem, path = resolve(url, storage_options)
    end = None if length is None else offset + length
    with errors_name(url):
        if isinstance(filesystem, LocalFileSystem):
            # several times as fast as fsspec
            with open_local(path) as file:
                file.seek(offset)
                data = file.read(length)
        else:
            data = bytes(filesystem.cat_file(path, start=offset, end=end)) if length != 0 else b""
    if length is not None and len(data) > length:
        raise DataError(f"{url}: {NO_RANGES}")
    if length is not None and len(data) != length:
        raise DataError(f"{url}: read {len(data)} bytes at offset {offset}, expected {length}: the file is truncated.")
    return data


def get_block_locations(url: str, storage_options: Options = None) -> list[dict[str, Any]]:
    """Return the hosts that store each block of a file.

    Returns
    -------
    list of dict
        ``hosts`` (list of str), ``offset`` and ``length`` of each block, in bytes. Empty if the locations are unknown.
    """
    with resolved(url, storage_options) as (filesystem, path):
        if not hasattr(filesystem, "get_block_locations"):
            return []
        return list(filesystem.get_block_locations(path))


def has_locations(url: str, storage_options: Options = None) -> bool:
    """Return whether a filesystem supports `get_block_locations`. Its result can still be empty."""
    return hasattr(resolve(url, storage_options)[0], "get_block_locations")


def parent(filesystem: Any, path: str) -> str:
    """Return the directory of a file. fsspec's WebHDFS returns a wrong directory for files in ``/``."""
    return posixpath.dirname(path) if is_webhdfs(filesystem) else str(filesystem._parent(path))


def make_folder(filesystem: Any, path: str) -> None:
    """Create a directory and its parents, except in an object store.

    In an object store, this could create a bucket with a misspelled name.
    """
    if OBJECTS.isdisjoint(filesystem.protocol):  # `protocol` is a str or a tuple of str
        filesystem.makedirs(path, exist_ok=True)


def makedirs(url: str, storage_options: Options = None) -> None:
    """Create a directory and its parents, unless they exist."""
    with resolved(url, storage_options) as (filesystem, path):
        make_folder(filesystem, path)


def remove_tree(url: str, storage_options: Options = None) -> None:
    """Delete a file, or a directory with its content. Do nothing if it does not exist."""
    with resolved(url, storage_options) as (filesystem, path):
        if info_of(filesystem, path) is not None:
            remove(filesystem, path)


def remove(filesystem: Any, path: str) -> None:
    """Delete a file or a directory with its content.

    fsspec's ``rm`` is not used, because it treats names as patterns and would delete other files.
    """
    if not has_magic(path) or isinstance(filesystem, LocalFileSystem):
        filesystem.rm(path, recursive=True)
        return
    found = filesystem.find(path, withdirs=True)
    for each in sorted(found or [path], reverse=True):
        (filesystem.rmdir if filesystem.isdir(each) else filesystem.rm_file)(each)
    if filesystem.isdir(path):
        filesystem.rmdir(path)
