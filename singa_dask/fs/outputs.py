"""Checks of output files. Existing files are replaced only on request; input files are never replaced."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Iterable

from singa_dask.errors import ConfigError
from singa_dask.fs.files import exists, is_stream, look, ls
from singa_dask.fs.patterns import is_pattern, matches
from singa_dask.fs.urls import Options, absolute, local_path
from singa_dask.fs.writing import check_writable

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def check_output(
    url: str,
    sources: Iterable[str] = (),
    *,
    overwrite: bool,
    by: str,
    may_be_directory: bool = False,
    storage_options: Options = None,
) -> str:
    """Return the absolute URL of an output file that may be written.

    To check permissions, a temporary file is created beside the output, and removed.

    Parameters
    ----------
    url : str
        URL as the user wrote it.
    sources : iterable of str
        Files, patterns and directories that the command reads.
    overwrite : bool
        Whether an existing file may be replaced. Writing to devices and pipes is always allowed.
    by : str
        The user's option that sets ``overwrite``, for error messages.
    may_be_directory : bool
        Whether the output may be a directory, as stores of some formats are.
    storage_options : mapping, optional
        Options of the filesystem of the output.

    Raises
    ------
    DataError
        No file can be written at ``url``; see `fs.check_writable`.
    ConfigError
        The file exists, is a directory or one of the sources, has the suffix of a compressed file, or its local
        directory does not exist.
    """
    if url == "-":
        raise ConfigError("-: expected the name of a file. For standard output, use /dev/stdout.")
    if url.lower().endswith(COMPRESSED):
        raise ConfigError(f"{url}: outputs are not compressed. Expected a name without {posixpath.splitext(url)[1]}.")
    place = absolute(url)
    if any(_is_read(_real(place), source) for source in sources):
        raise ConfigError(f"{url}: this file is an input. Choose another name.")
    path = local_path(place)
    found = None if path and is_stream(path) else look(place, storage_options)
    if not may_be_directory and (found[0] if found else url.endswith("/")):
        verb = "is" if found else "names"
        raise ConfigError(f"{url}: this {verb} a directory. Expected a file, e.g. {_file_in(url)}.")
    if not overwrite and found:
        raise ConfigError(f"{url}: exists already. Expected a new file. Give {by} to replace it.")
    check_folder(url)
    check_writable(place, storage_options)
    return place


def check_folder(url: str) -> None:
    """Raise a ConfigError if a file's local directory does not exist."""
    path = local_path(absolute(url))
    if path and not os.path.isdir(folder := os.path.dirname(path)):
        raise ConfigError(f"{url}: no directory {folder}. Create it first: mkdir -p {shlex.quote(folder)}.")


def _file_in(url: str) -> str:
    """Return the URL of a file in a directory, as an example."""
    return f"{url.rstrip('/')}/NAME"


def _real(url: str) -> str:
    """Resolve the links of a local path; return other URLs unchanged."""
    path = local_path(url)
    return url if path is None else os.path.realpath(path)


def _is_read(place: str, source: str) -> bool:
    """Return whether a source names, matches or contains a file.

    A directory counts as a source of the file only if all files in the directory have the same suffix.
    """
    there = _real(absolute(source))
    if there == place or there.rpartition("://")[0] != place.rpartition("://")[0]:
        return there == place
    if is_pattern(there):
        return any(_is_read(place, each) for each in matches(there))
    folder = posixpath.dirname(place)
    if not f"{folder}/".startswith(f"{there.rstrip('/')}/") or not exists(place):
        return False
    forms = {posixpath.splitext(name)[1] for name in ls(folder) if name[0] not in "._"}
    return forms == {posixpath.splitext(place)[1]}
