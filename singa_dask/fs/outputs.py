"""Files that a user has written: one that is there is replaced only if he says so, and one that is read never."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable

from singa_dask import fs
from singa_dask.errors import ConfigError
from singa_dask.fs.patterns import is_pattern, matches

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def check_output(url: str, sources: Iterable[str] = (), *, overwrite: bool, by: str) -> str:
    """Return the URL of an output, absolute.

    Parameters
    ----------
    url : str
        As the user wrote it.
    sources : iterable of str
        What the output is made of: files, patterns and directories.
    overwrite : bool
        Whether a file that is there is replaced. A device or a pipe needs no leave: it is written to.
    by : str
        How the user says so, for errors.

    Raises
    ------
    ConfigError
        It is there, or is one of the sources, or its name says what it will not be.
    """
    if url == "-":
        raise ConfigError("-: expected the name of a file. /dev/stdout is the standard output.")
    if url.lower().endswith(COMPRESSED):
        raise ConfigError(f"{url}: files are not compressed. Expected a name without {posixpath.splitext(url)[1]}.")
    place = fs.absolute(url)
    if any(_is_read(_real(place), source) for source in sources):
        raise ConfigError(f"{url}: it is read, and would be replaced by what is made of it. Give another name.")
    path = fs.local_path(place)
    if not overwrite and not (path and fs.is_stream(path)) and fs.exists(place):
        raise ConfigError(f"{url}: exists already. Expected a new file. Give {by} to replace it.")
    return place


def _real(url: str) -> str:
    """Return a local path without links, and other URLs as they are."""
    path = fs.local_path(url)
    return url if path is None else os.path.realpath(path)


def _is_read(place: str, source: str) -> bool:
    """Return whether a file is a source, matches a pattern, or is of the form that all files in a directory have."""
    there = _real(fs.absolute(source))
    if there == place or there.rpartition("://")[0] != place.rpartition("://")[0]:
        return there == place
    if is_pattern(there):
        return any(_is_read(place, each) for each in matches(there))
    folder = posixpath.dirname(place)
    if not f"{folder}/".startswith(f"{there.rstrip('/')}/") or not fs.exists(place):
        return False
    forms = {posixpath.splitext(name)[1] for name in fs.ls(folder) if name[0] not in "._"}
    return forms == {posixpath.splitext(place)[1]}
