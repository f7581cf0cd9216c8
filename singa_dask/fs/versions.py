"""Versions of files: strings that change when a file is overwritten."""

from __future__ import annotations

import logging
import os
import posixpath
import urllib.parse
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from singa_dask.fs.client_errors import errors_name
from singa_dask.fs.urls import Options, join, resolve

logger = logging.getLogger(__name__)

# keys of fsspec's `info` that change when a file is overwritten, for all supported filesystems
VERSIONS = (
    "Content-MD5",
    "Digest",
    "ETag",
    "Last-Modified",
    "LastModified",
    "created",
    "etag",
    "last_modified",
    "modificationTime",
    "modify",
    "mtime",
    "updated",
)


# number of requests that test whether a web server's ETag is stable
ASK_TIMES = 4
# scheme and host of a web server -> whether its ETags change from request to request
_CHANGING: dict[str, bool] = {}


def version(url: str, storage_options: Options = None) -> str:
    """Return a string that changes if a file is overwritten; empty if only the file's length is known."""
    return version_of(look_up(url, *resolve(url, storage_options)))


def version_of(info: Mapping[str, Any]) -> str:
    """Return the `version` of a file, given its ``info``."""
    values = {name: str(info[name]) for name in VERSIONS if info.get(name)}
    if "ETag" in values:
        # ignore this time: S3 rounds it to seconds for an object, but not in a listing
        values.pop("LastModified", None)
        # ignore the mark W/: web servers mark an ETag as weak during the first second after a change
        values["ETag"] = values["ETag"].removeprefix("W/")
    return repr((info.get("size"), values)) if values else ""


def is_web(url: str) -> bool:
    """Return whether a URL is on a web server."""
    return url.startswith(("http://", "https://"))


def server_of(url: str) -> str:
    """Return the scheme and host of a URL."""
    return "://".join(urllib.parse.urlsplit(url)[:2])


@cache
def warn_of(server: str) -> None:
    """Log a warning, once per server, that a server reports no versions."""
    logger.warning(
        "%s: this server sends neither Last-Modified nor a stable ETag. The replacement of a file by one of the same "
        "length is not noticed, and nothing is cached. Do not change files while they are read.", server
    )  # fmt: skip


def look_up(url: str, filesystem: Any, path: str) -> dict[str, Any]:
    """Return fsspec's ``info`` of a file, without an ETag that changes from request to request.

    ETags change from request to request if several servers behind one address compute different ETags.
    """
    with errors_name(url):
        info = dict(filesystem.info(path))
        if "ETag" in info and is_web(url):
            if (server := server_of(url)) not in _CHANGING:
                _CHANGING[server] = len({filesystem.info(path).get("ETag") for _ in range(ASK_TIMES)}) > 1
            if _CHANGING[server]:
                del info["ETag"]
    return info


def version_of_local(found: os.stat_result) -> str:
    """Return the `version` of a local file."""
    return repr((found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))


def versions(urls: Iterable[str], storage_options: Options = None) -> dict[str, str]:
    """Return the `version` of each file in ``urls``, and of all files below each directory in ``urls``.

    A directory that contains several of the files is listed once, to save a request for each file.

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


def _listed(folder: str, storage_options: Options) -> dict[str, Mapping[str, Any]]:
    """Return the entries of a directory by name, without symbolic links."""
    filesystem, path = resolve(folder or ".", storage_options)
    with errors_name(folder):
        entries = filesystem.ls(path, detail=True)
    return {posixpath.basename(entry["name"].rstrip("/")): entry for entry in entries if not entry.get("islink")}


def _below(url: str, storage_options: Options, info: Mapping[str, Any] | None) -> dict[str, str]:
    filesystem, path = resolve(url, storage_options)
    with errors_name(url):
        info = info or look_up(url, filesystem, path)
        if info["type"] != "directory":
            return {url: version_of(info)}
        entries = filesystem.find(path, detail=True)
    return {join(url, posixpath.relpath(name, path)): version_of(entries[name]) for name in sorted(entries)}
