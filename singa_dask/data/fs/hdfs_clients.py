"""Clients for ``hdfs://``: hdfs-native by default, or another selected by ``storage_options: {client: ...}``.

What fsspec's filesystem on WebHDFS lacks is here, too: files in the root, renames that replace a file, and timeouts.
"""

from __future__ import annotations

import errno
import functools
import importlib
import posixpath
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import fsspec
from fsspec.implementations.arrow import HadoopFileSystem

from singa_dask.data.fs.hdfs import HdfsFileSystem
from singa_dask.data.fs.hdfs_connection import with_errno

SCHEMES = ("hdfs://", "viewfs://")
# seconds to connect, and without data
TIMEOUT_S = (10.0, 60.0)


def is_web(filesystem: Any) -> bool:
    """Return whether a filesystem is fsspec's on WebHDFS. Its module cannot be imported without requests."""
    return "webhdfs" in filesystem.protocol


def set_timeout(filesystem: Any) -> None:
    """Let requests of a filesystem on WebHDFS end after `TIMEOUT_S`; others are left as they are."""
    if is_web(filesystem) and not isinstance(filesystem.session.request, functools.partial):
        filesystem.session.request = functools.partial(filesystem.session.request, timeout=TIMEOUT_S)


def parent(filesystem: Any, path: str) -> str:
    """Return the directory of a file. For fsspec's WebHDFS that of a file in / is empty, which makes a wrong URL."""
    return posixpath.dirname(path) if is_web(filesystem) else str(filesystem._parent(path))


def rename(filesystem: Any, source: str, target: str) -> None:
    """Rename a file; one at the target is replaced, atomically where the filesystem can.

    fsspec requests WebHDFS's plain rename, which does nothing if the target exists, and ignores its answer.

    Raises
    ------
    OSError
        WebHDFS refused to rename.
    """
    if not is_web(filesystem):
        filesystem.mv(source, target)
        return
    try:
        filesystem._call("RENAME", method="put", path=source, destination=target, renameoptions="OVERWRITE")
    except (RuntimeError, ValueError) as error:
        raise with_errno(OSError, errno.EIO, f"{target}: cannot be replaced by a rename: {error}") from error


class Client(NamedTuple):
    """How to create a filesystem from a URL and options, and what must be installed for it."""

    connect: Callable[[urllib.parse.SplitResult, Mapping[str, Any]], Any]
    needs: str


def connect(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the filesystem of an ``hdfs://`` or ``viewfs://`` URL and the path on it.

    Raises
    ------
    ValueError
        The client is unknown.
    ImportError
        The client, or something it requires, is not installed.
    """
    others = dict(options)
    name = others.pop("client", "native")
    if name not in CLIENTS:
        raise ValueError(f"unknown client {name!r}. Known: {', '.join(sorted(CLIENTS))}.")
    scheme, rest = url.split("://", 1)
    netloc, slash, path = rest.partition("/")
    client = CLIENTS[name]
    try:
        filesystem = client.connect(urllib.parse.urlsplit(f"{scheme}://{netloc}"), others)
    except (ImportError, OSError) as error:
        if name == "native":
            raise
        # pyarrow lists every path that it searched
        said = str(error).splitlines()[:1]
        raise ImportError(f"client {name}: {''.join(said)}. It needs {client.needs}.") from error
    return filesystem, (slash + path).rstrip("/") or "/"


def _native(url: urllib.parse.SplitResult, options: Mapping[str, Any]) -> Any:
    return HdfsFileSystem(url.netloc, url.scheme, **options)


def _pyarrow(url: urllib.parse.SplitResult, options: Mapping[str, Any]) -> Any:
    return HadoopFileSystem(host=url.hostname or "default", port=url.port or 0, **options)


def _webhdfs(url: urllib.parse.SplitResult, options: Mapping[str, Any]) -> Any:
    others = dict(options)
    web = urllib.parse.urlsplit(others.pop("http", f"http://{url.hostname}:9870"))
    filesystem = fsspec.filesystem(
        "webhdfs", host=web.hostname, port=web.port or 9870, use_https=web.scheme == "https", **others
    )
    set_timeout(filesystem)
    return filesystem


def _hdfs3(url: urllib.parse.SplitResult, options: Mapping[str, Any]) -> Any:
    return _Hdfs3(host=url.hostname, port=url.port, **options)


class _Hdfs3(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """hdfs3 as an fsspec filesystem; fsspec implements the other methods with these."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._hdfs3 = importlib.import_module("hdfs3").HDFileSystem(**options)
        self.get_block_locations = self._hdfs3.get_block_locations

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return _typed(self._hdfs3.info(path))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        found = self._hdfs3.ls(path, detail=True)
        return [_typed(each) if detail else each["name"] for each in found]

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        self._hdfs3.makedirs(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._hdfs3.makedirs(path)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        self._hdfs3.mv(path1, path2)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        self._hdfs3.rm(path, recursive=recursive)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return self._hdfs3.open(path, mode)


def _typed(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "type": entry["kind"]}


CLIENTS = {
    "native": Client(_native, "hdfs-native"),
    "pyarrow": Client(_pyarrow, "a Java machine (JAVA_HOME), Hadoop's libhdfs.so (ARROW_LIBHDFS_DIR) and CLASSPATH"),
    "webhdfs": Client(_webhdfs, "requests (pip install requests)"),
    "hdfs3": Client(
        _hdfs3,
        "hdfs3 and libhdfs3, which are unmaintained: hdfs3 0.3.1 does not import on Python 3.10 and later. "
        "Leave the option out to use hdfs-native",
    ),
}
