"""ShardedStore: several stores of one format as one, e.g. all that match ``train-*.arrow``."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.data import fs
from singa_dask.data.codecs.record import show_schema
from singa_dask.data.stores.class_names import Labels, label_table, relabel
from singa_dask.data.stores.opening import is_pattern, open_store
from singa_dask.data.stores.store import MANIFEST_DIR, STORES, Store
from singa_dask.data.types import Arrays, Block
from singa_dask.errors import DataError

__all__ = ["ShardedStore", "shard_url", "shard_urls"]

NUMBERS = re.compile(r"(.*)-(\d{5})-of-(\d{5})(.*)")


@STORES.register("shards")
class ShardedStore(Store):
    """The records of all files that match a pattern, sorted by name, or of given files.

    Parameters
    ----------
    url : str
        Its last part is a pattern with ``*``, ``?`` or ``[...]``.
    storage_options : mapping, optional
    backend : str, optional
        Format of the files; detected if not given.
    files : sequence of str
        Use these files, in this order, instead of those that match.
    options
        Passed to each store.

    The labels of the first store with class names are used; labels of the other stores are matched by name.

    Raises
    ------
    DataError
        No file matches, files of a set ``-00000-of-00004`` are missing, the files have different schemas, or a file
        has classes that the first does not have.
    """

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        backend: str | None = None,
        files: Sequence[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(url, storage_options, backend=backend, files=tuple(files), **options)
        self._stores: list[Store] = []
        self._label_tables: list[Labels | None] = []
        try:
            for shard in files or shard_urls(url, storage_options):
                self._stores.append(open_store(shard, backend, storage_options, **options))
                self._check(self._stores[-1])
            named = next((store for store in self._stores if store.class_names), self._stores[0])
            self.class_names = named.class_names
            self._label_tables = [
                label_table(store.url, store.class_names, named.class_names, named.url) for store in self._stores
            ]
        except BaseException:
            self.close()
            raise
        self.schema = self._stores[0].schema
        blocks: list[Block] = []
        for store in self._stores:
            blocks += [dataclasses.replace(block, id=len(blocks) + block.id) for block in store.blocks]
        self.blocks = tuple(blocks)
        self.truncation = "; ".join(f"{store.url}: {store.truncation}" for store in self._stores if store.truncation)
        # index of the first block of each store, and the number of blocks
        self._firsts = np.cumsum([0, *(len(store.blocks) for store in self._stores)])

    def _check(self, store: Store) -> None:
        schema = self._stores[0].schema
        if store.schema != schema:
            found, expected = show_schema(store.schema), show_schema(schema)
            raise DataError(f"{store.url}: holds {found}, expected {expected} like {self._stores[0].url}.")

    def read_block(self, block_id: int) -> Arrays:
        shard, block = self._locate(block_id)
        return self._relabelled(self._stores[shard].read_block(block), shard)

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        shard, block = self._locate(block_id)
        arrays, bad = self._stores[shard].salvage(block)
        return self._relabelled(arrays, shard), bad

    def _locate(self, block_id: int) -> tuple[int, int]:
        """Return the store of a block, and its index there."""
        shard = int(np.searchsorted(self._firsts, block_id, side="right")) - 1
        return shard, block_id - int(self._firsts[shard])

    def _relabelled(self, arrays: Arrays, shard: int) -> Arrays:
        table = self._label_tables[shard]
        if table is None or "label" not in arrays:
            return arrays
        return {**arrays, "label": relabel(arrays["label"], table, self._stores[shard].url)}

    def record_files(self, first: int, stop: int) -> list[str]:
        files, start = list[str](), 0
        for store in self._stores:
            files += store.record_files(max(first - start, 0), min(max(stop - start, 0), store.count))
            start += store.count
        return files if len(files) == stop - first else []

    def close(self) -> None:
        for store in self._stores:
            store.close()


def shard_url(url: str, index: int, count: int) -> str:
    """Return the URL of one shard: ``train-00002-of-00016.arrow`` of ``train.arrow``."""
    folder, slash, name = url.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    stem, dot, suffix = (stem, dot, suffix) if stem else (name, "", "")
    return f"{folder}{slash}{stem}-{index:05d}-of-{count:05d}{dot}{suffix}"


def shard_urls(url: str, storage_options: fs.Options = None) -> list[str]:
    """Return the URLs that match a pattern, sorted.

    Raises
    ------
    DataError
        Nothing matches, or the set is incomplete: if ``-00001-of-00004`` matches, the others of the four that the
        pattern would match must exist too.
    """
    folder, slash, pattern = url.rpartition("/")
    names = fs.ls(folder + slash or ".", storage_options) if is_pattern(url) else []
    # the directory of manifests is not a shard
    matching = [name for name in fnmatch.filter(names, pattern) if name != MANIFEST_DIR]
    if not matching:
        raise DataError(f"{url}: no such file or directory, nothing matches.")
    missing = [name for name in _sets_of(matching) if fnmatch.fnmatch(name, pattern) and name not in matching]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise DataError(
            f"{url}: {', '.join(missing[:3])}{more} {'are' if missing[1:] else 'is'} missing, expected the whole set."
        )
    return [f"{folder}{slash}{name}" for name in matching]


def _sets_of(names: list[str]) -> list[str]:
    """Return the names of all files of the sets that ``names`` belong to."""
    found = filter(None, map(NUMBERS.fullmatch, names))
    sets = {(stem, int(count), suffix) for stem, _, count, suffix in (match.groups() for match in found)}
    return [f"{stem}-{i:05d}-of-{count:05d}{suffix}" for stem, count, suffix in sorted(sets) for i in range(count)]
