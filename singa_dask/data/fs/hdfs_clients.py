"""Clients for ``hdfs://``: hdfs-native by default, or another selected by ``storage_options: {client: ...}``."""

from __future__ import annotations

import importlib
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import fsspec
from fsspec.implementations.arrow import HadoopFileSystem

from singa_dask.data.fs import hdfs_web
from singa_dask.data.fs.hdfs import HdfsFileSystem

__all__ = ["CLIENTS", "SCHEMES", "Client", "connect"]

SCHEMES = ("hdfs://", "viewfs://")


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
    hdfs_web.set_timeout(filesystem)
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
