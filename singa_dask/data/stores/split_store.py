"""SplitStore: the train or test part of another store, without a copy of the records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data.split import SplitConf
from singa_dask.data.stores.store import Store
from singa_dask.data.stores.view_store import ViewStore
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError


class SplitStore(ViewStore):
    """A part of the records of another store.

    A `TableStore` is not wrapped in this class. It chooses the records itself, because it computes e.g. means from the
    chosen records.

    Parameters
    ----------
    store : Store
        The store that contains all records. It is closed when this store is closed.
    conf : SplitConf

    Raises
    ------
    DataError
        The part has no records.
    """

    def __init__(self, store: Store, conf: SplitConf) -> None:
        if conf.key:
            raise DataError(f"{store.url}: split: key is for tables with named columns, in CSV, Parquet or JSON lines.")
        self._store, self.stores, self._conf = store, (store,), conf
        super().__init__(store.url, store.storage_options)

    def __reduce__(self) -> tuple[Any, ...]:
        return SplitStore, (self._store, self._conf)

    def index(self) -> None:
        store = self._store
        super().index()
        self.truncation = store.truncation
        rows = [self._conf.rows(int(store.starts[block.id]), block.n) for block in store.blocks]
        # omit blocks without a record of this part
        self._of_store = [i for i, chosen in enumerate(rows) if len(chosen)]
        self._rows = [rows[i] for i in self._of_store]
        self._use(dataclasses.replace(store.blocks[i], n=len(rows[i])) for i in self._of_store)
        if not self.blocks:
            raise DataError(
                f"{self.url}: none of its {store.count} records are in the {self._conf.part} part of split."
            )

    # -- records -------------------------------------------------------------------------------------------

    def locate(self, block_id: int) -> tuple[Store, int]:
        return self._store, self._of_store[block_id]

    def change(self, block_id: int, arrays: Arrays) -> Arrays:
        return {name: values[self._rows[block_id]] for name, values in arrays.items()}

    def read_block(self, block_id: int, data: Sequence[memoryview] | None = None) -> Arrays:
        # some formats can read chosen records alone
        if data is None:
            return self._store.read_rows(self._of_store[block_id], self._rows[block_id])
        return self.decode(block_id, data)

    def read_rows(self, block_id: int, rows: npt.NDArray[np.int64]) -> Arrays:
        return self._store.read_rows(self._of_store[block_id], self._rows[block_id][rows])

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        arrays, bad = self._store.salvage(self._of_store[block_id])
        reasons = {at: bad[row] for at, row in enumerate(self._rows[block_id].tolist()) if row in bad}
        return self.change(block_id, arrays), reasons

    def place_of(self, block_id: int, row: int | None) -> tuple[int, int | None]:
        return self._of_store[block_id], None if row is None else int(self._rows[block_id][row])

    def record_files(self, first: int, stop: int) -> list[str]:
        return [file for n in self._numbers[first:stop].tolist() for file in self._store.record_files(n, n + 1)]

    @cached_property
    def _numbers(self) -> npt.NDArray[np.int64]:
        """Index in the other store of each record of this store."""
        starts = self._store.starts[self._of_store]
        return np.concatenate([start + rows for start, rows in zip(starts, self._rows, strict=True)])
