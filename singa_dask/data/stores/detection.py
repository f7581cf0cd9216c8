"""Detect the format of a store by a suffix, the first bytes of a file, or the content of a directory."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection

from singa_dask import fs
from singa_dask.data.stores.hugging_face import MAX_LOOKED_AT, README, saved_files
from singa_dask.data.stores.images.image_decoding import IMAGE_SUFFIXES
from singa_dask.data.stores.store import STORES
from singa_dask.errors import ConfigError
from singa_dask.fs.open_bytes import refuse_compressed
from singa_dask.lazy import LazyModule

image = LazyModule("singa_dask.data.stores.images.image")

# number of bytes at the start of a file that are passed to `Store.matches`
HEAD_BYTES = 1 << 16
# a directory of files with these suffixes is a table; in a partitioned table, directories have names such as
# ``key=value``
PARTS = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".orc")
KEYED = re.compile(r"[^=]+=[^=]*")


def detect(url: str, storage_options: fs.Options = None) -> str | None:
    """Return the backend (name of a format) for a file or a directory; None if the format is unknown.

    The suffix or the first bytes of a file decide.
    """
    found_here = fs.look(url, storage_options)
    if found_here is None:
        raise fs.no_file(url, storage_options)
    is_dir, n_bytes = found_here
    head = b"" if is_dir else fs.read_bytes(url, 0, min(HEAD_BYTES, n_bytes), storage_options)
    refuse_compressed(url, head)
    names = fs.ls(url, storage_options) if is_dir else []
    if is_dir and saved_files(url, names, storage_options):
        return "parquet"
    for name in STORES.names():
        try:
            store = STORES.find(name)
        except ConfigError:
            # the package of this store is not installed
            continue
        if not set(names).isdisjoint(store.directory_files) if is_dir else store.matches(url, head):
            return name
    if not is_dir:
        return None
    if _has_images(url, storage_options):
        return "image-folder"
    return "table" if _holds_table(names) else None


def _holds_table(names: Collection[str]) -> bool:
    """Return whether a directory contains only the files of one table, or directories ``key=value``."""
    parts = [name.lower() for name in parts_of(names)]
    forms = {posixpath.splitext(name.removesuffix(".gz"))[1] for name in parts}
    return bool(parts) and ((len(forms) == 1 and forms <= set(PARTS)) or all(map(KEYED.fullmatch, parts)))


def parts_of(names: Collection[str]) -> list[str]:
    """Return the names in a directory, except for hidden files and README.md."""
    return [name for name in names if name[0] not in "._" and name != README]


def _has_images(url: str, storage_options: fs.Options) -> bool:
    """Return whether a directory, or one of the first folders in it, contains images."""
    names = image.entries_of(url, storage_options)
    if any(name.lower().endswith(IMAGE_SUFFIXES) for name in names):
        return True
    folders = (fs.join(url, name) for name in names[:MAX_LOOKED_AT])
    inside = (image.entries_of(each, storage_options) for each in folders if fs.is_dir(each, storage_options))
    return any(name.lower().endswith(IMAGE_SUFFIXES) for names_inside in inside for name in names_inside)
