"""Writes that happen completely or not at all: staged files, exclusive creation, and renames."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from singa_dask.errors import DataError
from singa_dask.fs.client_errors import errors_name, with_errno
from singa_dask.fs.files import OBJECTS, info_of, is_dir, is_stream, ls, make_folder, parent, remove
from singa_dask.fs.hdfs.clients import is_webhdfs
from singa_dask.fs.hdfs.filesystem import HdfsFileSystem
from singa_dask.fs.urls import Options, is_chain, join, local_path, resolve, resolved

# objects with fewer bytes are written by a single request, because only a single request can be conditional
ONE_PUT = 64 << 20


def _do_nothing() -> None:
    """Do nothing; the default for ``check``."""


@contextlib.contextmanager
def staged(url: str, storage_options: Options = None, *, check: Callable[[], None] = _do_nothing) -> Iterator[Path]:
    """Write a file atomically: yield the path of a local file, which replaces ``url`` at the end.

    If the ``with`` block raises an error, ``url`` does not change. ``check`` is called just before the rename; if it
    raises an error, ``url`` does not change either. On S3, the object is written only if no process has changed it
    since ``check``. Temporary files that killed processes have left behind are removed.

    If ``url`` is a link, its target is replaced. A device or a pipe is written to directly.
    """
    target = local_path(url)
    if target and is_stream(target):
        with tempfile.TemporaryDirectory() as aside:
            source = Path(aside, "content")
            yield source
            check()
            with errors_name(url), target.open("wb") as stream, source.open("rb") as content:
                shutil.copyfileobj(content, stream)
        return
    filesystem, path = resolve(url, storage_options)
    if target:
        path = os.path.realpath(path)
        target = Path(path)
    if not isinstance(filesystem, HdfsFileSystem):  # HDFS creates missing directories when it writes
        with errors_name(url):
            make_folder(filesystem, parent(filesystem, path))
    folder = target.parent if target else Path(tempfile.gettempdir())
    prefix = _prefix(path)
    _remove_leftovers(folder, prefix)
    temporary = folder / _temporary_name(prefix)
    try:
        try:
            yield temporary
        except OSError as error:
            # other errors may come from files that the caller reads
            if isinstance(error, DataError) or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise DataError(f"{url}: {error}") from error
        with errors_name(url):
            if target:
                _rename_durably(temporary, target, check)
            else:
                _upload(filesystem, temporary, path, check)
    finally:
        with contextlib.suppress(OSError):  # on a read-only disk, even removing a missing file raises an error
            temporary.unlink(missing_ok=True)


def write_atomic(
    url: str,
    data: str | bytes | bytearray | memoryview | Sequence[bytes | memoryview],
    storage_options: Options = None,
    *,
    check: Callable[[], None] = _do_nothing,
) -> None:
    r"""Write a file atomically from text, bytes, or chunks of bytes; see `staged` for ``check``.

    Text is written in UTF-8. Bytes of file names that are not UTF-8 are escaped as in JSON and YAML, e.g. ``\udce9``.
    """
    if isinstance(data, str):
        data = data.encode("utf-8", "backslashreplace")
    chunks = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
    with staged(url, storage_options, check=check) as path:
        with errors_name(url):
            with path.open("wb") as file:
                file.writelines(chunks)


def create(url: str, storage_options: Options = None) -> bool:
    """Create an empty file; return False if it exists or if another process creates it concurrently.

    On filesystems without exclusive creation, two concurrent callers may both succeed.

    Raises
    ------
    DataError
        The file cannot be written. On a local disk and on HDFS, no file is left.
    """
    with resolved(url, storage_options) as (filesystem, path):
        make_folder(filesystem, parent(filesystem, path))
        if "s3" in filesystem.protocol or is_webhdfs(filesystem):
            return _create_without_mode(filesystem, path)
        try:
            file = filesystem.open(path, "xb")
        except OSError:
            if info_of(filesystem, path) is None:
                raise
            return False
        except (ValueError, NotImplementedError):
            return _create_without_mode(filesystem, path)
        try:
            file.close()
        except FileExistsError:  # some filesystems create the file when it is closed
            return False
        except BaseException:
            if isinstance(filesystem, LocalFileSystem | HdfsFileSystem):  # here, `open` has created the file
                with contextlib.suppress(OSError):
                    remove(filesystem, path)
            raise
    return True


def _create_without_mode(filesystem: Any, path: str) -> bool:
    """Create a file without the mode "xb"; return False if it exists.

    In this mode, s3fs replaces an existing object with an empty one, and fsspec's WebHDFS cannot write.
    """
    if info_of(filesystem, path) is not None:
        return False
    if "s3" not in filesystem.protocol:
        filesystem.pipe_file(path, b"")
        return True
    try:
        filesystem.pipe_file(path, b"", IfNoneMatch="*")
    except Exception as error:
        if _is_unconditional(error):
            filesystem.pipe_file(path, b"")
        elif isinstance(error, OSError) and info_of(filesystem, path) is not None:
            return False
        else:
            raise
    return True


def move(source: str, target: str, storage_options: Options = None) -> None:
    """Rename a file, or all files of a directory, within a filesystem.

    Existing files are replaced atomically.
    """
    if is_dir(source, storage_options):
        for name in ls(source, storage_options):
            move(join(source, name), join(target, name), storage_options)
        return
    here, there = local_path(source), local_path(target)
    filesystem, path = resolve(target, storage_options)
    with errors_name(target):
        make_folder(filesystem, parent(filesystem, path))
        if here and there:
            _rename_durably(here, there)
        else:
            _rename(filesystem, resolve(source, storage_options)[1], path)


def check_writable(url: str, storage_options: Options = None) -> None:
    """Check that `staged` can write a file: create and remove an empty temporary file beside it.

    If its directory does not exist, the temporary file is created in the nearest existing parent directory. Chains of
    filesystems, web servers, devices and pipes are not checked.

    Raises
    ------
    DataError
        The file cannot be written, for example because the user lacks the permission.
    """
    target = local_path(url)
    if is_chain(url) or url.startswith(("http://", "https://")) or (target and is_stream(target)):
        return
    filesystem, path = resolve(url, storage_options)
    with errors_name(url):
        path = os.path.realpath(path) if target else path
        folder = parent(filesystem, path)
        while OBJECTS.isdisjoint(filesystem.protocol) and info_of(filesystem, folder) is None:
            folder, below = posixpath.dirname(folder), folder
            if folder == below:
                return
    temporary = posixpath.join(folder, _temporary_name(_prefix(path)))
    try:
        with errors_name(url):
            filesystem.pipe_file(temporary, b"")
            remove(filesystem, temporary)
    except DataError as error:
        cause = error.__cause__ or error
        why = getattr(cause, "strerror", None) or str(cause).replace(f"{filesystem.unstrip_protocol(temporary)}: ", "")
        text = f"{url}: no file can be written to {folder}: {why.rstrip('.')}. Choose another place."
        raise DataError(text) from cause


def _prefix(path: str) -> str:
    """Return the prefix of the names of this host's temporary files for a target file."""
    # the digest identifies the target file and this host
    digest = hashlib.sha256(os.fsencode(f"{socket.gethostname()} {path}")).hexdigest()
    return f".{posixpath.basename(path)[:40]}.{digest[:8]}"


def _temporary_name(prefix: str) -> str:
    return f"{prefix}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


def _remove_leftovers(folder: Path, prefix: str) -> None:
    for entry in os.scandir(folder):
        if not (entry.name.startswith(prefix) and entry.name.endswith(".tmp")):
            continue
        pid = entry.name.removeprefix(prefix).split(".")[1]
        if pid.isdigit() and not has_process(int(pid)):
            # other users' files in a shared directory, such as /tmp, stay
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def has_process(pid: int) -> bool:
    """Return whether this machine has a process with an id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _upload(filesystem: Any, source: Path, path: str, check: Callable[[], None]) -> None:
    if isinstance(filesystem, HdfsFileSystem):
        # HDFS writes atomically, and retries by itself
        filesystem.put_file(str(source), path, check=check)
        return
    if check is not _do_nothing and "s3" in filesystem.protocol and source.stat().st_size < ONE_PUT:
        _put_unless_changed(filesystem, source, path, check)
        return
    temporary = posixpath.join(parent(filesystem, path), source.name)
    try:
        filesystem.put_file(str(source), temporary)
        check()
        _rename(filesystem, temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.rm_file(temporary)
        raise


def _put_unless_changed(filesystem: Any, source: Path, path: str, check: Callable[[], None]) -> None:
    """Write an S3 object unless another process has changed it since ``check`` was called."""
    for is_last in (False, True):
        there = info_of(filesystem, path)
        check()
        try:
            filesystem.put_file(str(source), path, **({"IfMatch": there["ETag"]} if there else {"IfNoneMatch": "*"}))
            return
        except Exception as error:
            check()
            if _is_unconditional(error):
                filesystem.put_file(str(source), path)
                return
            if is_last or not isinstance(error, OSError):
                raise


def _is_unconditional(error: Exception) -> bool:
    """Return whether an S3-like store, or an old client, does not support conditional writes."""
    answer = getattr(error.__cause__, "response", None) or {}
    return answer.get("Error", {}).get("Code") == "NotImplemented" or type(error).__name__ == "ParamValidationError"


def _rename(filesystem: Any, source: str, target: str) -> None:
    """Rename a file and replace an existing target, atomically if the filesystem can do this.

    fsspec's own rename for WebHDFS does nothing if the target exists, and ignores the server's answer.

    Raises
    ------
    OSError
        WebHDFS refused the rename.
    """
    if not is_webhdfs(filesystem):
        if type(filesystem).mv is fsspec.AbstractFileSystem.mv:  # fsspec's default `mv` treats names as patterns
            filesystem.cp_file(source, target)
            filesystem.rm_file(source)
        else:
            filesystem.mv(source, target)
        return
    try:
        filesystem._call("RENAME", method="put", path=source, destination=target, renameoptions="OVERWRITE")
    except (RuntimeError, ValueError) as error:
        raise with_errno(OSError, errno.EIO, f"{target}: cannot be replaced by a rename: {error}") from error


def _rename_durably(source: Path, target: Path, check: Callable[[], None] = _do_nothing) -> None:
    _fsync(source)
    check()
    os.replace(source, target)
    # a rename is durable only after its directory is synced
    _fsync(target.parent)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
