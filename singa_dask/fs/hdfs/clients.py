"""Clients for ``hdfs://`` URLs: hdfs-native, or the client in ``storage_options: {client: ...}``.

The module also adds what fsspec's WebHDFS filesystem lacks: files in the root directory, renames that replace a file,
and timeouts.
"""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Mapping
from typing import Any

import fsspec
from fsspec.implementations.arrow import HadoopFileSystem

from singa_dask.fs.hdfs.filesystem import HdfsFileSystem

SCHEMES = ("hdfs://", "viewfs://")
# timeouts in seconds: to connect, and to wait for data
TIMEOUT_S = (10.0, 60.0)
# name of a client -> its requirements
CLIENTS = {
    "native": "hdfs-native",
    "pyarrow": "a Java machine (JAVA_HOME), Hadoop's libhdfs.so (ARROW_LIBHDFS_DIR) and CLASSPATH",
    "webhdfs": "requests (pip install requests)",
}


def connect(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the filesystem of an ``hdfs://`` or ``viewfs://`` URL and the path on it.

    Raises
    ------
    ValueError
        The client is unknown.
    ImportError
        The client or one of its requirements is not installed.
    """
    others = dict(options)
    client = others.pop("client", "native")
    if client == "hdfs3":
        raise ValueError("client hdfs3: it supports no Python version that this package runs on. Leave client out.")
    if client not in CLIENTS:
        raise ValueError(f"unknown client {client!r}. Known: {', '.join(sorted(CLIENTS))}.")
    scheme, rest = url.split("://", 1)
    netloc, slash, path = rest.partition("/")
    try:
        filesystem = _filesystem(client, urllib.parse.urlsplit(f"{scheme}://{netloc}"), others)
    except (ImportError, OSError) as error:
        if client == "native":
            raise
        # show only the first line, because pyarrow also lists every path that it searched
        said = "".join(str(error).splitlines()[:1])
        raise ImportError(f"client {client}: {said}. It needs {CLIENTS[client]}.") from error
    return filesystem, (slash + path).rstrip("/") or "/"


def _filesystem(client: str, url: urllib.parse.SplitResult, options: dict[str, Any]) -> Any:
    if client == "native":
        return HdfsFileSystem(url.netloc, url.scheme, **options)
    if client == "pyarrow":
        return HadoopFileSystem(host=url.hostname or "default", port=url.port or 0, **options)
    web = urllib.parse.urlsplit(options.pop("http", f"http://{url.hostname}:9870"))
    filesystem = fsspec.filesystem(
        "webhdfs", host=web.hostname, port=web.port or 9870, use_https=web.scheme == "https", **options
    )
    set_timeout(filesystem)
    return filesystem


def is_webhdfs(filesystem: Any) -> bool:
    """Return whether a filesystem is fsspec's WebHDFS.

    The module of WebHDFS is not imported, because it requires the package requests.
    """
    return "webhdfs" in filesystem.protocol


def set_timeout(filesystem: Any) -> None:
    """Set `TIMEOUT_S` for the requests of a WebHDFS filesystem; ignore other filesystems."""
    if is_webhdfs(filesystem) and not isinstance(filesystem.session.request, functools.partial):
        filesystem.session.request = functools.partial(filesystem.session.request, timeout=TIMEOUT_S)
