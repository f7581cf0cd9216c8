"""Opens stores by URL."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from singa_dask import fs
from singa_dask.data.stores.detection import detect, parts_of
from singa_dask.data.stores.hugging_face import name_sets, saved_files
from singa_dask.data.stores.lakes import refuse_lake
from singa_dask.data.stores.shards import check_splits, shard_urls
from singa_dask.data.stores.store import STORES, Store
from singa_dask.errors import DataError
from singa_dask.fs.cache import open_cache
from singa_dask.fs.patterns import is_pattern
from singa_dask.wording import listed

# backends that read a directory of files as one store
DIRECTORIES = ("parquet", "image-parquet", "jsonl")


def _files_of(
    store: type[Store], url: str, is_folder: Mapping[str, bool], storage_options: fs.Options = None
) -> list[str]:
    """Return the files of a format in a directory.

    ``is_folder`` maps the name of each entry of the directory to whether this entry is a directory.
    """
    refuse_lake(url, is_folder, storage_options)
    names = parts_of(is_folder)
    files = [name for name in sorted(names) if name.lower().endswith(store.suffixes)] if store.suffixes else names
    others = sorted(name for name in names if is_folder[name])
    if others:
        how = name_sets(url, storage_options) or "Name one of them, or name files by a pattern."
        raise DataError(f"{url}: the directory contains directories {listed(others)}. {how}")
    if not files:
        raise DataError(f"{url}: the directory has no files {' or '.join(store.suffixes)}.")
    check_splits(url, files, is_dir=True)
    return [fs.join(url, name) for name in files]


def no_store(url: str, storage_options: fs.Options = None) -> DataError:
    """Return the error for a URL whose format is not detected."""
    if fs.is_dir(url, storage_options):
        entries = fs.entries(url, storage_options)
        if not entries:
            return DataError(f"{url}: the directory is empty.")
        inside, below = listed(fs.ls(url, storage_options)), "**/" * all(is_folder for _, is_folder, _ in entries)
        how = name_sets(url, storage_options)
        how = how or f"Name a file or folder in it, or name files by a pattern, as in DIRECTORY/{below}*.parquet."
        return DataError(f"{url}: the directory is not a store. It contains {inside}. {how}")
    if not fs.size(url, storage_options):
        return DataError(f"{url}: it is empty.")
    return DataError(f"{url}: the format is unknown. Set a backend. Known: {', '.join(STORES.names())}.")


def open_store(url: str, backend: str | None = None, storage_options: fs.Options = None, **options: Any) -> Store:
    """Open the records at a URL.

    Parameters
    ----------
    url : str
        URL of the records. If its last part is a pattern (``part-*.arrow``), all matching files, sorted by name, are
        opened as one store.
    backend : str, optional
        Name of the format in `STORES`. By default it is detected from the suffix or the first bytes of the file.
    storage_options : mapping, optional
        Arguments of the fsspec filesystem that opens the URL. With the key `fs.CACHE`, remote blocks are cached on a
        local disk.
    options
        Options of the format. Every format accepts ``truncated=True``. Text and key-value files that end within a
        record can then be opened; truncated files of other formats still cannot be read.

    Raises
    ------
    ConfigError
        The backend is unknown.
    DataError
        The file is missing, or not of the format.
    """
    matched = is_pattern(url, storage_options)
    found_as = backend or detect(shard_urls(url, storage_options)[0] if matched else url, storage_options)
    # a table learns categories, classes and means from all its files
    if matched and found_as != "table":
        return STORES.find("shards")(url, storage_options, backend=backend, **options)
    backend = found_as
    if not backend:
        raise no_store(url, storage_options)
    store_class = STORES.find(backend)
    if backend in DIRECTORIES and fs.is_dir(url, storage_options):
        is_folder = {name: is_one for name, is_one, _ in fs.entries(url, storage_options)}
        files = saved_files(url, is_folder, storage_options) or _files_of(store_class, url, is_folder, storage_options)
        return STORES.find("shards")(url, storage_options, backend=backend, files=files, **options)
    if "truncated" not in store_class.option_names():
        options.pop("truncated", None)
    if not store_class.options_class:  # a store without ``options_class`` takes its options as arguments of its class
        try:
            inspect.signature(store_class).bind(url, storage_options, **options)
        except TypeError as error:
            raise DataError(f"{url}: {store_class.__name__}: {error}") from error
    return _checked_cache(store_class(url, storage_options, **options))


def _checked_cache(store: Store) -> Store:
    """Return the store if the cache has room for each of its blocks; else raise a `DataError`."""
    settings = store.storage_options.get(fs.CACHE)
    if settings is not None and fs.local_path(store.url) is None:
        try:
            open_cache(settings).check_fits(max((block.length for block in store.blocks), default=0))
        except DataError:
            store.close()
            raise
    return store
