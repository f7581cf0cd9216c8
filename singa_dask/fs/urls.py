"""URLs: the filesystem and the path of a URL, local paths, and joined URLs."""

from __future__ import annotations

import contextlib
import importlib
import os
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from singa_dask.fs import host_files
from singa_dask.fs.client_errors import errors_name
from singa_dask.fs.hdfs import clients as hdfs_clients
from singa_dask.redaction import reveal

Options = Mapping[str, Any] | None
LOCAL = LocalFileSystem()
# storage option with the cache settings of a `RangeReader`; not passed to the filesystem
CACHE = "singa_dask.cache"
# storage option with the limit of decompressed sizes, see `decompression.gunzip`; not passed to the filesystem
MAX_DECOMPRESSED = "singa_dask.max_decompressed_mb"
# timeouts for web servers in seconds: to connect, and between two chunks of a response
CONNECT_S, SILENT_S = 10.0, 30.0


def resolve(url: str, storage_options: Options = None) -> tuple[Any, str]:
    """Return the fsspec filesystem of a URL and the path on it.

    Parameters
    ----------
    url : str
        A path, or ``protocol://...``.
    storage_options : mapping, optional
        Options of the filesystem. For HDFS see `hdfs.clients.connect`.

    Raises
    ------
    DataError
        The protocol is unknown, or the package for it is not installed.
    """
    options = dict(storage_options or {})
    for ours in (CACHE, MAX_DECOMPRESSED):
        options.pop(ours, None)
    if "://" not in url and not is_chain(url) and (not options or "::" in url):
        # returns the same path as fsspec in a tenth of the time, which matters for small files
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
def resolved(url: str, storage_options: Options) -> Iterator[tuple[Any, str]]:
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
