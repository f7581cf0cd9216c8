"""Opens stores by URL, and detects their format."""

from __future__ import annotations

from typing import Any

from singa_dask.data import fs
from singa_dask.data.codecs.image import IMAGE_SUFFIXES
from singa_dask.data.fs.cache import open_cache
from singa_dask.data.stores.class_names import show_names
from singa_dask.data.stores.image import entries_of
from singa_dask.data.stores.store import STORES, Store
from singa_dask.errors import ConfigError, DataError

__all__ = ["detect", "is_pattern", "open_store"]

# maximum number of entries of a directory that are tried as folders of images
MAX_LOOKED_AT = 16
# what `Store.matches` sees of a file
HEAD_BYTES = 64


def is_pattern(url: str) -> bool:
    """Return whether the last part of a URL is a pattern of file names."""
    return any(character in url.rpartition("/")[2] for character in "*?[")


def detect(url: str, storage_options: fs.Options = None) -> str | None:
    """Detect the backend by the suffix or first bytes of a file, or by what is in a directory; None if unknown."""
    found_here = fs.look(url, storage_options)
    if found_here is None:
        raise DataError(f"{url}: no such file or directory.")
    is_dir, n_bytes = found_here
    head = b"" if is_dir else fs.read_bytes(url, 0, min(HEAD_BYTES, n_bytes), storage_options)
    names = fs.ls(url, storage_options) if is_dir else []
    for name in STORES.names():
        try:
            found = STORES.find(name)
        except ConfigError:
            # its package is not installed
            continue
        if not set(names).isdisjoint(found.directory_files) if is_dir else found.matches(url, head):
            return name
    return "image-folder" if is_dir and _has_images(url, storage_options) else None


def _unknown(url: str, storage_options: fs.Options) -> DataError:
    """Return the error for what no store reads as a whole."""
    if fs.is_dir(url, storage_options):
        inside = show_names(fs.ls(url, storage_options)) or "nothing"
        how = "Name a file or folder in it, or files by a pattern, as in DIRECTORY/*.parquet."
        return DataError(f"{url}: a directory that is no store. There is {inside} in it. {how}")
    return DataError(f"{url}: unknown format. Give a backend. Known: {', '.join(STORES.names())}.")


def _has_images(url: str, storage_options: fs.Options) -> bool:
    """Return whether a directory, or one of the first folders in it, contains images."""
    names = entries_of(url, storage_options)
    if any(name.lower().endswith(IMAGE_SUFFIXES) for name in names):
        return True
    folders = (fs.join(url, name) for name in names[:MAX_LOOKED_AT])
    inside = (entries_of(each, storage_options) for each in folders if fs.is_dir(each, storage_options))
    return any(name.lower().endswith(IMAGE_SUFFIXES) for found in inside for name in found)


def open_store(url: str, backend: str | None = None, storage_options: fs.Options = None, **options: Any) -> Store:
    """Open the records at a URL.

    Parameters
    ----------
    url : str
        If its last part is a pattern (``part-*.arrow``), the matching stores, sorted by name, are opened as one.
    backend : str, optional
        Name in `STORES`; detected by suffix or first bytes if not given.
    storage_options : mapping, optional
        Passed to the filesystem. With `with_cache`, remote blocks are cached on a local disk.
    options
        Passed to the store. ``truncated=True`` is allowed for all formats: it opens text and key-value files that end
        within a record. Truncated files of other formats cannot be read.

    Raises
    ------
    ConfigError
        The backend is unknown.
    DataError
        The file is missing, or not of that format.
    """
    if is_pattern(url):
        return STORES.find("shards")(url, storage_options, backend=backend, **options)
    backend = backend or detect(url, storage_options)
    if not backend:
        raise _unknown(url, storage_options)
    found = STORES.find(backend)
    if not found.accepts_truncated:
        options.pop("truncated", None)
    return _checked_cache(found(url, storage_options, **options))


def _checked_cache(store: Store) -> Store:
    """Return the store; raise now, not at the first batch, if a block exceeds the limit of the cache."""
    settings = store.storage_options.get(fs.CACHE)
    if settings is not None and fs.local_path(store.url) is None:
        try:
            open_cache(settings).check_fits(max((block.length for block in store.blocks), default=0))
        except DataError:
            store.close()
            raise
    return store
