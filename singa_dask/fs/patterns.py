"""Wildcards in URLs on any filesystem, with the rules of a shell.

The name of an existing file is not a pattern, even if the name has wildcards.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence

from singa_dask.errors import DataError
from singa_dask.fs.files import entries, exists
from singa_dask.fs.urls import Options, join

WILD = re.compile(r"[*?[]")
BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def is_pattern(url: str, storage_options: Options = None) -> bool:
    """Return whether a URL has wildcards or braces and is not the name of an existing file.

    A web URL with a query is never a pattern.
    """
    path = url.rpartition("://")[2]
    if not (WILD.search(path) or BRACES.search(path)) or (url.startswith(("http://", "https://")) and "?" in path):
        return False
    return not exists(url, storage_options)


def matches(url: str, storage_options: Options = None) -> list[str]:
    """Return the URLs that match a pattern, sorted.

    Parameters
    ----------
    url : str
        ``*``, ``?`` and ``[...]`` match characters of a name, ``**`` matches any number of directories, and ``{a,b}``
        means ``a`` or ``b``. A name that begins with a dot matches only if the pattern begins with a dot, too.
    storage_options : mapping, optional
    """
    found: set[str] = set()
    for each in _alternatives(url):
        head, protocol, path = each.rpartition("://")
        names = path.lstrip("/")
        start = f"{head}{protocol}{path[: len(path) - len(names)]}"
        found.update(_below(start, names.split("/"), storage_options))
    return sorted(found)


def _alternatives(url: str) -> list[str]:
    """Expand the braces of a pattern: return one URL for each alternative."""
    braces = BRACES.search(url)
    if braces is None:
        return [url]
    before, after = url[: braces.start()], url[braces.end() :]
    return [each for name in braces[1].split(",") for each in _alternatives(f"{before}{name}{after}")]


def _below(place: str, names: Sequence[str], storage_options: Options) -> Iterator[str]:
    """Yield the matches of the remaining names of a pattern in a directory."""
    if not names:
        yield place
        return
    name, rest = names[0], names[1:]
    literal = join(place, name)
    is_wild = WILD.search(name) is not None
    is_there = (is_wild or not rest) and exists(literal, storage_options)
    if is_there or not is_wild:
        if is_there or rest:
            yield from _below(literal, rest, storage_options)
        return
    if name == "**":
        yield from _below(place, rest or ["*"], storage_options)
    for entry, is_folder in _entries(place, storage_options):
        inside = join(place, entry)
        if entry.startswith(".") and not name.startswith("."):
            continue
        if name == "**":
            if is_folder:
                yield from _below(inside, names, storage_options)
        elif fnmatch.fnmatchcase(entry, name) and (is_folder or not rest):
            yield from _below(inside, rest, storage_options)


def _entries(place: str, storage_options: Options) -> list[tuple[str, bool]]:
    """Return the name of each entry of a directory, and whether the entry is a directory.

    If the directory does not exist, the result is empty.
    """
    try:
        return [entry[:2] for entry in entries(place or ".", storage_options)]
    except DataError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return []
        raise
