"""CachedIndex: the index of a remote file in the local cache, so that a second opening does not scan the file."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from singa_dask.data import fs
from singa_dask.data.fs.cache import key_of, open_cache
from singa_dask.data.fs.range_reader import version
from singa_dask.errors import DataError

__all__ = ["CachedIndex"]

LOG = logging.getLogger(__name__)

# the index of a shorter file is not cached
MIN_INDEXED_BYTES = 1 << 24


class CachedIndex:
    """The index of a file, as JSON; never found, and not kept, if the file is local, short, or its version is unknown.

    Parameters
    ----------
    url : str
    n_bytes : int
        Length of the file.
    storage_options : mapping, optional
    parts
        What else the index depends on.
    """

    def __init__(self, url: str, n_bytes: int, storage_options: fs.Options, *parts: Any) -> None:
        remote = n_bytes > MIN_INDEXED_BYTES and fs.local_path(url) is None
        current = version(url, storage_options) if remote else ""
        self._key = key_of("index", url, current, *parts) if current else ""
        self._url, self._settings = url, (storage_options or {}).get(fs.CACHE)

    def find(self) -> Any:
        """Return the index, or None."""
        if not self._key:
            return None
        try:
            found = open_cache(self._settings).find(self._key)
        except DataError as error:
            LOG.warning("%s: the index is not cached: %s", self._url, error)
            self._key = ""
            return None
        return json.loads(bytes(found)) if found is not None else None

    def keep(self, make: Callable[[], Any]) -> None:
        """Store the index that ``make`` returns, unless it is there."""
        if self._key and open_cache(self._settings).find(self._key) is None:
            open_cache(self._settings).keep(self._key, json.dumps(make()).encode())
