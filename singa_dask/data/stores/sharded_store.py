"""ShardedStore: the records of several files of one format as one store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.codecs.record_schema import show_schema
from singa_dask.data.stores.label_match import Labels, label_table, relabel
from singa_dask.data.stores.opening import open_store
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.shards import shard_urls
from singa_dask.data.stores.store import STORES, Store
from singa_dask.data.types import Arrays, Block
from singa_dask.errors import DataError
from singa_dask.fs.io_threads import map_ahead, open_threads
from singa_dask.fs.sources import Bytes, Range


@STORES.register("shards")
class ShardedStore(RangeStore):
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

    # sources are several files of another format
    is_source = False

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        backend: str | None = None,
        files: Sequence[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(url, storage_options, backend=backend, files=tuple(files), **options)

    def index(self) -> None:
        self._stores: list[Store] = []
        options = {**self.options}
        backend, files = options.pop("backend"), options.pop("files")
        self._open(files or shard_urls(self.url, self.storage_options), backend, options)
        named = next((store for store in self._stores if store.class_names), self._stores[0])
        self.class_names = named.class_names
        self._label_tables: list[Labels | None] = [
            label_table(store.url, store.class_names, named.class_names, named.url) for store in self._stores
        ]
        self.schema = self._stores[0].schema
        self.table_facts, self.table_columns = self._stores[0].table_facts, self._stores[0].table_columns
        self.other_fields, self.label_name = self._stores[0].other_fields, self._stores[0].label_name
        self.is_converted = self._stores[0].is_converted
        blocks: list[Block] = []
        for store in self._stores:
            blocks += [dataclasses.replace(block, id=len(blocks) + block.id) for block in store.blocks]
        self.blocks = tuple(blocks)
        self.mapped = all(store.mapped for store in self._stores)
        self.labels_apart = all(store.labels_apart for store in self._stores)
        self.decodes_ahead = all(store.decodes_ahead for store in self._stores)
        self.left_out = sum(store.left_out for store in self._stores)
        self.truncation = "; ".join(f"{store.url}: {store.truncation}" for store in self._stores if store.truncation)
        # index of the first block of each store, and the number of blocks
        self._firsts = np.cumsum([0, *(len(store.blocks) for store in self._stores)])

    def _open(self, shards: Sequence[str], backend: str | None, options: Mapping[str, Any]) -> None:
        """Open files, a few at a time: gzipped ones are decompressed, and a request for each takes its time."""
        opened: list[Store] = []

        def open_shard(shard: str) -> Store:
            store = open_store(shard, backend, self.storage_options, **options)
            opened.append(store)
            return store

        try:
            with closing(map_ahead(open_shard, shards, open_threads(), len(shards))) as stores:
                for store in stores:
                    self._stores.append(store)
                    self._check(store)
        except BaseException:
            # `close` is to close those behind the one that failed, too
            self._stores = opened
            raise

    @property
    def parts(self) -> Sequence[Store]:
        return self._stores

    def widen(self) -> None:
        self.rounds_data, self.schema = any(store.rounds_data for store in self._stores), dict(self.schema)
        super().widen()
        for store in self._stores:
            store.widen()

    def _check(self, store: Store) -> None:
        schema = self._stores[0].schema
        if store.schema != schema:
            found, expected = show_schema(store.schema), show_schema(schema)
            raise DataError(f"{store.url}: holds {found}, expected {expected} like {self._stores[0].url}.")
        facts, first = store.table_facts, self._stores[0].table_facts
        difference = facts.compare(first) if facts and first else ""
        if difference:
            raise DataError(f"{store.url}: {difference} in {self._stores[0].url}. Convert them together.")

    @property
    def remote(self) -> bool:
        ranged = all(isinstance(store, RangeStore) for store in self._stores)
        return ranged and any(store.remote for store in self._stores)

    def _locate(self, block_id: int) -> tuple[int, int]:
        """Return the store of a block, and its index there."""
        shard = int(np.searchsorted(self._firsts, block_id, side="right")) - 1
        return shard, block_id - int(self._firsts[shard])

    def _ranged(self, block_id: int) -> tuple[RangeStore, int]:
        """Return the store of a block, whose blocks are ranges of files, and its index there."""
        shard, block = self._locate(block_id)
        store = self._stores[shard]
        if not isinstance(store, RangeStore):
            raise TypeError(f"{store.url}: a store whose blocks are not ranges of files")
        return store, block

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        store, block = self._ranged(block_id)
        return store.ranges(block)

    def fetch(self, block_id: int, again: bool = False) -> list[memoryview]:
        store, block = self._ranged(block_id)
        return store.fetch(block, again)

    def fetch_bytes(self, block_id: int) -> int:
        store, block = self._ranged(block_id)
        return store.fetch_bytes(block)

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        store, block = self._ranged(block_id)
        return self._relabelled(store.read_block(block, data), block_id)

    def read_block(self, block_id: int, data: Sequence[memoryview] | None = None) -> Arrays:
        if data is not None:
            return self.decode(block_id, data)
        shard, block = self._locate(block_id)
        return self._relabelled(self._stores[shard].read_block(block), block_id)

    def read_labels(self, block_id: int) -> npt.NDArray[Any]:
        shard, block = self._locate(block_id)
        return self._relabelled({"label": self._stores[shard].read_labels(block)}, block_id)["label"]

    def read_rows(self, block_id: int, rows: npt.NDArray[np.int64]) -> Arrays:
        shard, block = self._locate(block_id)
        return self._relabelled(self._stores[shard].read_rows(block, rows), block_id)

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        shard, block = self._locate(block_id)
        arrays, bad = self._stores[shard].salvage(block)
        return self._relabelled(arrays, block_id), bad

    def _relabelled(self, arrays: Arrays, block_id: int) -> Arrays:
        shard, _ = self._locate(block_id)
        table = self._label_tables[shard]
        if table is None or "label" not in arrays:
            return arrays
        return {**arrays, "label": relabel(arrays["label"], table, self._stores[shard].url)}

    def open_sources(self) -> Sequence[Bytes]:
        return [source for store in self._stores for source in store.open_sources()]

    def record_files(self, first: int, stop: int) -> list[str]:
        files, start = list[str](), 0
        for store in self._stores:
            files += store.record_files(max(first - start, 0), min(max(stop - start, 0), store.count))
            start += store.count
        return files if len(files) == stop - first else []

    def close(self) -> None:
        for store in self._stores:
            store.close()
