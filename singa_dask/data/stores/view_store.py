"""ViewStore: a store that reads blocks of other stores; base class of `ShardedStore` and `SplitStore`."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays, Block
from singa_dask.fs.sources import Bytes, Range

# attributes that describe the meaning of records; a view copies these attributes from its store
MEANING = (
    "class_names",
    "class_type",
    "schema",
    "table_facts",
    "table_columns",
    "other_fields",
    "label_name",
    "is_converted",
)


class ViewStore(RangeStore):
    """Base of stores that read the records of other ``stores``.

    A subclass locates the blocks and changes the records. Closing a view also closes these stores.
    """

    is_source = False
    stores: Sequence[Store]

    @abstractmethod
    def locate(self, block_id: int) -> tuple[Store, int]:
        """Return the store that contains a block, and the index of the block in that store."""

    @abstractmethod
    def change(self, block_id: int, arrays: Arrays) -> Arrays:
        """Convert the records of a block, as the other store returns them, to the records of this store."""

    def index(self) -> None:
        for name in MEANING:
            setattr(self, name, getattr(self.stores[0], name))
        self.left_out = sum(store.left_out for store in self.stores)
        self.rounds_data = any(store.rounds_data for store in self.stores)
        self.reads_labels_alone = all(store.reads_labels_alone for store in self.stores)
        self.decodes_ahead = all(store.decodes_ahead for store in self.stores)

    def _use(self, blocks: Iterable[Block]) -> None:
        """Set the blocks, and the runs of their stores to which blocks belong."""
        self.blocks = tuple(dataclasses.replace(block, id=i) for i, block in enumerate(blocks))
        if any(store.runs is not None for store in self.stores):
            places = [self.locate(i) for i in range(len(self.blocks))]
            runs = [(id(store), block if store.runs is None else int(store.runs[block])) for store, block in places]
            first: dict[tuple[int, int], int] = {}
            self.runs = np.array([first.setdefault(run, i) for i, run in enumerate(runs)])

    def widen(self) -> None:
        # copy the schema, so that a fingerprint that was computed before does not change
        self.schema = dict(self.schema)
        super().widen()
        for store in self.stores:
            store.widen()

    def warnings(self) -> tuple[str, ...]:
        return tuple(text for store in self.stores for text in store.warnings())

    def limit_runs(self, n: int) -> None:
        for store in self.stores:
            store.limit_runs(n)

    @property
    def parts(self) -> Sequence[Store]:
        return [part for store in self.stores for part in store.parts]

    @property
    def remote(self) -> bool:
        is_ranged = all(isinstance(store, RangeStore) for store in self.stores)
        return is_ranged and any(store.remote for store in self.stores)

    def _ranged(self, block_id: int) -> tuple[RangeStore, int]:
        store, block = self.locate(block_id)
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

    def is_cached(self, block_id: int) -> bool:
        store, block = self._ranged(block_id)
        return store.is_cached(block)

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        store, block = self._ranged(block_id)
        return self.change(block_id, store.read_block(block, data))

    def read_block(self, block_id: int, data: Sequence[memoryview] | None = None) -> Arrays:
        if data is not None:
            return self.decode(block_id, data)
        store, block = self.locate(block_id)
        return self.change(block_id, store.read_block(block))

    def read_labels(self, block_id: int) -> npt.NDArray[Any]:
        store, block = self.locate(block_id)
        return self.change(block_id, {"label": store.read_labels(block)})["label"]

    def open_sources(self) -> Sequence[Bytes]:
        return [source for store in self.stores for source in store.open_sources()]

    def close(self) -> None:
        for store in self.stores:
            store.close()
