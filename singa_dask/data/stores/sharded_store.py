"""ShardedStore: the records of several files of one format as one store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data.codecs.record_schema import show_schema
from singa_dask.data.stores.label_match import LabelMatch, label_table
from singa_dask.data.stores.opening import open_store
from singa_dask.data.stores.shards import shard_urls
from singa_dask.data.stores.store import STORES, Store
from singa_dask.data.stores.view_store import ViewStore
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from singa_dask.fs.io_threads import map_ahead, open_threads


@STORES.register("shards")
class ShardedStore(ViewStore):
    """The records of several files: all files that match a pattern, sorted by name, or a list of files.

    Parameters
    ----------
    url : str
        URL whose last part is a pattern with ``*``, ``?`` or ``[...]``.
    storage_options : mapping, optional
    backend : str, optional
        Format of the files. By default it is detected from their names or first bytes.
    files : sequence of str
        URLs of the files, in the order of reading. By default, all files that match the pattern.
    options
        Options of the store of each file.

    The first file with class names determines which label each class has. Labels of all other files are translated by
    class name.

    Raises
    ------
    DataError
        No file matches, files of a set ``-00000-of-00004`` are missing, the files have different schemas, or a file has
        classes that the first file does not have.
    """

    def index(self) -> None:
        self.stores: list[Store] = []
        options = {**self.options}
        backend, files = options.pop("backend", None), options.pop("files", ())
        self._open(files or shard_urls(self.url, self.storage_options), backend, options)
        named = next((store for store in self.stores if store.class_names), self.stores[0])
        super().index()
        self.class_names, self.class_type = named.class_names, named.class_type
        self._matches = [
            LabelMatch(label_table(store.url, store.class_names, named.class_names, named.url), url=store.url)
            for store in self.stores
        ]
        self.mapped = all(store.mapped for store in self.stores)
        self.truncation = "; ".join(f"{store.url}: {store.truncation}" for store in self.stores if store.truncation)
        # index of the first block of each store, followed by the total number of blocks
        self._firsts = np.cumsum([0, *(len(store.blocks) for store in self.stores)])
        self._use(block for store in self.stores for block in store.blocks)

    def _open(self, shards: Sequence[str], backend: str | None, options: Mapping[str, Any]) -> None:
        """Open files, a few at once, because decompression and requests take time."""
        opened: list[Store] = []

        def open_shard(shard: str) -> Store:
            store = open_store(shard, backend, self.storage_options, **options)
            opened.append(store)
            return store

        try:
            with closing(map_ahead(open_shard, shards, open_threads(), len(shards))) as stores:
                for store in stores:
                    self.stores.append(store)
                    self._check(store)
        except BaseException:
            # keep all opened stores, so that `close` also closes the stores after the failed store
            self.stores = opened
            raise

    def _check(self, store: Store) -> None:
        schema = self.stores[0].schema
        if store.schema != schema:
            actual, expected = show_schema(store.schema), show_schema(schema)
            raise DataError(f"{store.url}: holds {actual}, expected {expected} like {self.stores[0].url}.")
        facts, first = store.table_facts, self.stores[0].table_facts
        difference = facts.compare(first) if facts and first else ""
        if difference:
            raise DataError(f"{store.url}: {difference} in {self.stores[0].url}. Convert them together.")

    def _shard(self, block_id: int) -> int:
        """Return the index of the file that contains a block."""
        return int(np.searchsorted(self._firsts, block_id, side="right")) - 1

    def locate(self, block_id: int) -> tuple[Store, int]:
        shard = self._shard(block_id)
        return self.stores[shard], block_id - int(self._firsts[shard])

    def read_rows(self, block_id: int, rows: npt.NDArray[np.int64]) -> Arrays:
        store, block = self.locate(block_id)
        return self.change(block_id, store.read_rows(block, rows))

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        store, block = self.locate(block_id)
        arrays, bad = store.salvage(block)
        return self.change(block_id, arrays), bad

    def change(self, block_id: int, arrays: Arrays) -> Arrays:
        return self._matches[self._shard(block_id)].apply(arrays)

    def record_files(self, first: int, stop: int) -> list[str]:
        files, start = list[str](), 0
        for store in self.stores:
            files += store.record_files(max(first - start, 0), min(max(stop - start, 0), store.count))
            start += store.count
        return files if len(files) == stop - first else []
