"""Files that a user has written: one that is there is replaced only if he says so, and one that is read never."""

from __future__ import annotations

import os
from collections.abc import Iterable

from singa_dask import fs
from singa_dask.errors import ConfigError


def check_output(url: str, sources: Iterable[str] = (), *, overwrite: bool, by: str) -> str:
    """Return the URL of an output, absolute.

    Parameters
    ----------
    url : str
        As the user wrote it.
    sources : iterable of str
        What the output is made of.
    overwrite : bool
        Whether a file that is there is replaced. A device or a pipe needs no leave: it is written to.
    by : str
        How the user says so, for errors.

    Raises
    ------
    ConfigError
        It is there, or is one of the sources.
    """
    refuse_source(url, sources)
    place = fs.absolute(url)
    path = fs.local_path(place)
    if not overwrite and not (path and fs.is_stream(path)) and fs.exists(place):
        raise ConfigError(f"{url}: exists already. Expected a new file. Give {by} to replace it.")
    return place


def refuse_source(url: str, sources: Iterable[str]) -> None:
    """Raise a `ConfigError` if an output is one of the files that it is made of."""
    if any(is_same(fs.absolute(url), fs.absolute(source)) for source in sources):
        raise ConfigError(f"{url}: it is read, and would be replaced by what is made of it. Give another name.")


def is_same(one: str, other: str) -> bool:
    """Return whether two URLs name one file, also by links."""
    here, there = (fs.local_path(each) for each in (one, other))
    if here is None or there is None:
        return one == other
    return os.path.realpath(here) == os.path.realpath(there)
