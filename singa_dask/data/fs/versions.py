"""Versions of many files: strings that change if a file is overwritten."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from singa_dask.data.fs import files
from singa_dask.data.fs.range_reader import version_of

__all__ = ["versions"]


def versions(urls: Iterable[str], storage_options: files.Options = None) -> dict[str, str]:
    """Return the `version` of each file; of a directory, those of all files in it.

    Directories of many of the files are listed once, so that a file of theirs costs no request.

    Raises
    ------
    DataError
        A file is missing.
    """
    folders: dict[str, list[str]] = {}
    for url in urls:
        folders.setdefault(posixpath.dirname(url), []).append(url)
    found: dict[str, str] = {}
    for folder, members in folders.items():
        listed = _listed(folder, storage_options) if len(members) > 1 else {}
        for url in members:
            found.update(_below(url, storage_options, listed.get(posixpath.basename(url))))
    return found


def _listed(folder: str, storage_options: files.Options) -> dict[str, Mapping[str, Any]]:
    """Return the entries of a directory by name; those of symbolic links are left out."""
    filesystem, path = files.resolve(folder or ".", storage_options)
    with files.errors_name(folder):
        entries = filesystem.ls(path, detail=True)
    return {posixpath.basename(each["name"].rstrip("/")): each for each in entries if not each.get("islink")}


def _below(url: str, storage_options: files.Options, info: Mapping[str, Any] | None) -> dict[str, str]:
    filesystem, path = files.resolve(url, storage_options)
    with files.errors_name(url):
        info = info or filesystem.info(path)
        if info["type"] != "directory":
            return {url: version_of(info)}
        entries = filesystem.find(path, detail=True)
    return {files.join(url, posixpath.relpath(name, path)): version_of(entries[name]) for name in sorted(entries)}
