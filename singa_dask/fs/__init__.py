"""Files at local and remote URLs: functions built on fsspec, called as ``fs.open(...)``.

The whole package accesses its files (records, checkpoints, run directories) through these functions. No other package
imports fsspec. For ``hdfs://`` URLs, this package has its own client.

Ranged reads
    `open_bytes`: opens a file, gzipped or not. `sources`: the interface of an open file. `range_reader`: reads ranges
    of a local or remote file. `range_file`: a file object that reads ranges. `decompression`: gzip and size limits.
    `versions`: detects changed files. `mapped_file`: memory maps. `checksums`: CRC32C.
Read-ahead and cache
    `io_threads`, `daemon_threads`: threads that read. `retry`: repeated calls. `cache`: remote data on a local disk.
    `locks`: file locks. `mounts`: network filesystems, on which locks do not work.
HDFS
    `hdfs`: selects the client for a URL; the filesystem on hdfs-native.
Directories and names
    `host_files`, `part_folders`: files on the hosts of Dask workers. `patterns`: wildcards in URLs. `outputs`: checks
    of output files. `ownership`: decides which process may write to a directory.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import hashlib
import importlib
import os
import posixpath
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.core import has_magic
from fsspec.exceptions import FSTimeoutError
from fsspec.implementations.local import LocalFileSystem

from singa_dask.errors import DataError, MissingPackageError, NoFileError, SingaError, nearest
from singa_dask.fs import host_files
from singa_dask.fs.hdfs import clients as hdfs_clients
from singa_dask.fs.hdfs.filesystem import HdfsFileSystem
from singa_dask.redaction import reveal

__all__ = [
    "CACHE",
    "MAX_DECOMPRESSED",
    "Options",
    "absolute",
    "check_writable",
    "create",
    "entries",
    "errors_name",
    "exists",
    "get_block_locations",
    "has_locations",
    "is_dir",
    "join",
    "local_path",
    "look",
    "ls",
    "makedirs",
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
LOCAL = LocalFileSystem()

# storage option with the cache settings of a `RangeReader`; not passed to the filesystem
CACHE = "singa_dask.cache"
# storage option with the limit of decompressed sizes, see `decompression.gunzip`; not passed to the filesystem
MAX_DECOMPRESSED = "singa_dask.max_decompressed_mb"
# packages of client libraries whose errors are not subclasses of `OSError`
CLIENTS = ("aiohttp", "asyncio", "botocore")
# protocols of object stores, where only the bucket (the first part of a path) is a real directory
OBJECTS = frozenset(("s3", "gs"))
# objects with fewer bytes are written by a single request, because this request can be conditional
ONE_PUT = 64 << 20
# HTTP status codes after which a later request may succeed
BUSY = (408, 425, 429, 500, 502, 503, 504)
# timeouts for web servers in seconds: to connect, and between two chunks of a response
CONNECT_S, SILENT_S = 10.0, 30.0
# maximum number of names in a directory to compare with the name of a missing file
MAX_BESIDE = 1000
NO_RANGES = "the server sends whole files only, not ranges of bytes. Copy the file first."


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


@contextlib.contextmanager
def errors_name(url: str) -> Iterator[None]:
    """Convert filesystem errors in the context to `DataError`. The messages name the URL."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        if text := _refusal(error):
            raise DataError(f"{url}: {text}") from error
        raise DataError(f"{url}: no such file or directory.") from error
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(f"{url}: this is a file, expected a directory.") from error
    except IsADirectoryError as error:
        raise DataError(f"{url}: this is a directory, expected a file.") from error
    except (OSError, ValueError, ImportError) as error:
        text, kind = message_of(error), MissingPackageError if isinstance(error, ImportError) else DataError
        raise kind(text if text.startswith(url) else f"{url}: {text}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in CLIENTS:
            raise
        raise DataError(f"{url}: {message_of(error)}") from error


def message_of(error: BaseException) -> str:
    """Return the message of a filesystem error."""
    if status := getattr(error, "status", None):
        return f"the server answers {status} {getattr(error, 'message', '')}."
    if status == 0:  # status 0 stands for too many redirects, where aiohttp has no message
        return f"{type(error).__name__}."
    return str(error) or f"{type(error).__name__}: the server does not answer in time."


def may_pass(error: BaseException) -> bool:
    """Return whether a retry may succeed, because a web server was busy, silent, or closed the connection."""
    is_of_client = isinstance(error, FSTimeoutError) or type(error).__module__.startswith("aiohttp.")
    return is_of_client and getattr(error, "status", 503) in BUSY


def _refusal(error: FileNotFoundError) -> str:
    """Return why a server refused a file that fsspec reports as missing; empty if the file is missing."""
    cause = error.__cause__
    if cause is None or isinstance(cause, FileNotFoundError) or getattr(cause, "status", 0) in (404, 410):
        return ""
    is_of_client = isinstance(cause, OSError) or type(cause).__module__.startswith(CLIENTS)
    return message_of(cause) if is_of_client else ""


def resolve(url: str, storage_options: Options = None) -> tuple[Any, str]:
    """Return the fsspec filesystem of a URL and the path on it.

    Parameters
    ----------
    url : str
        A path, or ``protocol://...``.
    storage_options : mapping, optional
        Options of the filesystem. For HDFS see `hdfs_clients.connect`.

    Raises
    ------
    DataError
        The protocol is unknown, or the package for it is not installed.
    """
    options = dict(storage_options or {})
    for ours in (CACHE, MAX_DECOMPRESSED):
        options.pop(ours, None)
    if "://" not in url and not is_chain(url) and (not options or "::" in url):
        # the same path as from fsspec, but in a tenth of the time, which matters for small files
        return LOCAL, LOCAL._strip_protocol(url)
    with errors_name(url):
        options = reveal(options, url)
        if url.startswith(hdfs_clients.SCHEMES):
            return hdfs_clients.connect(url, options)
        if url.startswith(("http://", "https://")):
            options = _of_web(url, options)
        filesystem, path = fsspec.core.url_to_fs(url, **options)
        hdfs_clients.set_timeout(filesystem)
        if "use_listings_cache" not in options and hasattr(filesystem, "dircache"):
            # disable the cache of directory listings, because cached listings would never be refreshed
            filesystem.dircache.use_listings_cache = False
    return filesystem, path


def is_chain(url: str) -> bool:
    """Return whether a URL chains filesystems, such as ``zip://a.csv::s3://b/c.zip``."""
    first, separator, _ = url.partition("::")
    return bool(separator) and ("://" in first or first in fsspec.available_protocols())


def _of_web(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return HTTP options with defaults: timeouts, no compression, and proxies.

    Compression is disabled, so that ranges of a response are ranges of the file. Proxies come from the environment. A
    URL with escapes is sent unchanged, because ``%2F`` may be part of a signature.
    """
    try:
        aiohttp = importlib.import_module("aiohttp")
    except ImportError as error:
        hint = "Install it: pip install 'singa-dask[http]'."
        raise ImportError(f"the package aiohttp cannot be imported: {error}. {hint}") from error
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENT_S)
    headers = {"Accept-Encoding": "identity", **options.get("headers", {})}
    client = {"trust_env": True, **options.get("client_kwargs", {})}
    return {"timeout": timeout, "encoded": "%" in url, **options, "headers": headers, "client_kwargs": client}


@contextlib.contextmanager
def _resolved(url: str, storage_options: Options) -> Iterator[tuple[Any, str]]:
    """Return a context with the result of `resolve`. Errors in the context name the URL."""
    filesystem, path = resolve(url, storage_options)
    with errors_name(url):
        yield filesystem, path


def local_path(url: str) -> Path | None:
    """Return the path of a local URL, else None. Part files of a dataset on this host count as local."""
    if url.startswith(host_files.SCHEME):
        return host_files.local_path(url)
    filesystem, path = resolve(url) if "://" not in url or url.startswith(("file:", "local:")) else (None, "")
    return Path(path) if isinstance(filesystem, LocalFileSystem) else None


def absolute(url: str) -> str:
    """Make a local path absolute and expand ``~``; URLs are returned unchanged."""
    return url if "://" in url or is_chain(url) or not url else os.path.abspath(os.path.expanduser(url))


def join(url: str, *parts: str) -> str:
    """Append path parts to a URL."""
    return posixpath.join(url, *parts)


def exists(url: str, storage_options: Options = None) -> bool:
    """Return whether a file or directory exists."""
    return look(url, storage_options) is not None


def is_dir(url: str, storage_options: Options = None) -> bool:
    """Return whether a URL is an existing directory."""
    with _resolved(url, storage_options) as (filesystem, path):
        info = _info(filesystem, path)
        # for an HTTP page or a link, only `isdir` tells whether it is a directory
        return info is not None and (info["type"] == "directory" or bool(filesystem.isdir(path)))


def size(url: str, storage_options: Options = None) -> int:
    """Return the length of a file in bytes."""
    with _resolved(url, storage_options) as (filesystem, path):
        return int(filesystem.size(path))


def look(url: str, storage_options: Options = None) -> tuple[bool, int] | None:
    """Return whether a URL is a directory, and its length in bytes; None if it does not exist.

    This takes one request.
    """
    with _resolved(url, storage_options) as (filesystem, path):
        info = _info(filesystem, path)
    return None if info is None else (info["type"] == "directory", int(info.get("size") or 0))


def _info(filesystem: Any, path: str) -> dict[str, Any] | None:
    """Return fsspec's ``info`` of a path; None if it does not exist.

    fsspec's ``exists`` is not used, because it treats every exception as a missing file, even a network failure.
    """
    try:
        info: dict[str, Any] = filesystem.info(path)
    except NotADirectoryError:
        return None
    except FileNotFoundError as error:
        # object stores answer 403 also for a missing object
        if _refusal(error) and getattr(error.__cause__, "status", None) not in (401, 403):
            raise
        return None
    return info


def ls(url: str, storage_options: Options = None) -> list[str]:
    """Return the sorted names of the entries of a directory."""
    with _resolved(url, storage_options) as (filesystem, path):
        return sorted(posixpath.basename(str(name).rstrip("/")) for name in filesystem.ls(path, detail=False))


def entries(url: str, storage_options: Options = None) -> list[tuple[str, bool, int]]:
    """Return (name, is a directory, length in bytes) of each entry of a directory, sorted by name.

    Raises
    ------
    DataError
        An entry is a broken link, a pipe, a socket or a device, and is not hidden.
    """
    members = []
    with _resolved(url, storage_options) as (filesystem, path):
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


def open_local(path: str | Path) -> BufferedReader:
    """Open a local file for reading; refuse pipes, because the process would wait for a writer."""
    _refuse_stream(str(path), os.stat(path))
    return builtins.open(path, "rb")


def get_block_locations(url: str, storage_options: Options = None) -> list[dict[str, Any]]:
    """Return the hosts that store each block of a file.

    Returns
    -------
    list of dict
        ``hosts`` (list of str), ``offset`` and ``length`` of each block, in bytes. Empty if the locations are unknown.
    """
    with _resolved(url, storage_options) as (filesystem, path):
        if not hasattr(filesystem, "get_block_locations"):
            return []
        return list(filesystem.get_block_locations(path))


def has_locations(url: str, storage_options: Options = None) -> bool:
    """Return whether a filesystem supports `get_block_locations`. Its result can still be empty."""
    return hasattr(resolve(url, storage_options)[0], "get_block_locations")


def _make_folder(filesystem: Any, path: str) -> None:
    """Create a directory and its parents, except in an object store.

    In an object store, this could create a bucket with a misspelled name.
    """
    if OBJECTS.isdisjoint(filesystem.protocol):  # `protocol` is a str or a tuple of str
        filesystem.makedirs(path, exist_ok=True)


def makedirs(url: str, storage_options: Options = None) -> None:
    """Create a directory and its parents, unless they exist."""
    with _resolved(url, storage_options) as (filesystem, path):
        _make_folder(filesystem, path)


def remove_tree(url: str, storage_options: Options = None) -> None:
    """Delete a file, or a directory with its content. Do nothing if it does not exist."""
    with _resolved(url, storage_options) as (filesystem, path):
        if _info(filesystem, path) is not None:
            _remove(filesystem, path)


def _remove(filesystem: Any, path: str) -> None:
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
        _make_folder(filesystem, hdfs_clients.parent(filesystem, path))
        if here and there:
            _rename_durably(here, there)
        else:
            hdfs_clients.rename(filesystem, resolve(source, storage_options)[1], path)


def open(url: str, mode: str = "rb", storage_options: Options = None) -> IO[Any]:
    """Open a file for use in a ``with`` statement. For writing, missing parent directories are created."""
    with _resolved(url, storage_options) as (filesystem, path):
        if "r" not in mode:
            _make_folder(filesystem, hdfs_clients.parent(filesystem, path))
        file: IO[Any] = filesystem.open(path, mode)
        return file


def create(url: str, data: bytes, storage_options: Options = None) -> bool:
    """Create a file; return False if it exists or if another process creates it concurrently.

    On filesystems without exclusive creation, two concurrent callers may both succeed.
    """
    with _resolved(url, storage_options) as (filesystem, path):
        _make_folder(filesystem, hdfs_clients.parent(filesystem, path))
        try:
            with filesystem.open(path, "xb") as file:
                file.write(data)
        except (OSError, ValueError, NotImplementedError) as error:
            if _info(filesystem, path) is not None:
                return False
            if isinstance(error, OSError):
                raise
            filesystem.pipe_file(path, data)  # the filesystem does not support mode "xb"
    return True


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


def _do_nothing() -> None:
    """Do nothing; the default for ``check``."""


@contextlib.contextmanager
def staged(url: str, storage_options: Options = None, *, check: Callable[[], None] = _do_nothing) -> Iterator[Path]:
    """Write a file atomically: yield the path of a temporary local file, which replaces ``url`` at the end.

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
            _make_folder(filesystem, hdfs_clients.parent(filesystem, path))
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
        folder = hdfs_clients.parent(filesystem, path)
        while OBJECTS.isdisjoint(filesystem.protocol) and _info(filesystem, folder) is None:
            folder, below = posixpath.dirname(folder), folder
            if folder == below:
                return
    temporary = posixpath.join(folder, _temporary_name(_prefix(path)))
    try:
        with errors_name(url):
            filesystem.pipe_file(temporary, b"")
            _remove(filesystem, temporary)
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


def is_stream(path: Path) -> bool:
    """Return whether a path is a device, a pipe, or an open file of this process, such as ``/dev/stdout``."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    is_open = path.is_symlink() and path.is_relative_to("/dev")
    return is_open or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _remove_leftovers(folder: Path, prefix: str) -> None:
    for entry in os.scandir(folder):
        if not (entry.name.startswith(prefix) and entry.name.endswith(".tmp")):
            continue
        pid = entry.name.removeprefix(prefix).split(".")[1]
        if pid.isdigit() and not has_process(int(pid)):
            Path(entry.path).unlink(missing_ok=True)


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
    temporary = posixpath.join(hdfs_clients.parent(filesystem, path), source.name)
    try:
        filesystem.put_file(str(source), temporary)
        check()
        hdfs_clients.rename(filesystem, temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.rm_file(temporary)
        raise


def _put_unless_changed(filesystem: Any, source: Path, path: str, check: Callable[[], None]) -> None:
    """Write an S3 object unless another process has changed it since ``check`` was called."""
    for is_last in (False, True):
        there = _info(filesystem, path)
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
