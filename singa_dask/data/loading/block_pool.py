"""BlockPool: keep blocks in contiguous arrays, so that one call gathers records of many blocks."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from singa_dask.data.loading.reader import empty_arrays
from singa_dask.data.order import Ids
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays


class BlockPool:
    """Keeps blocks in one contiguous array for each field.

    Parameters
    ----------
    store : Store
    n_blocks : int
        Number of blocks that the pool can hold. If the pool can hold all blocks, row i of the arrays is record i of
        the store.
    """

    def __init__(self, store: Store, n_blocks: int) -> None:
        self._rows = max(block.n for block in store.blocks)
        self.n_blocks = n_blocks
        self._holds_all = n_blocks == len(store.blocks)
        self._arrays = empty_arrays(store, store.count if self._holds_all else n_blocks * self._rows)
        self._starts = store.starts
        # for each block: row of a record in the pool minus the record's index in the store
        self._shift = np.zeros(len(store.blocks), np.int64)
        self._slot_of: OrderedDict[int, int] = OrderedDict()

    @property
    def is_complete(self) -> bool:
        """Whether the pool contains all blocks of the store."""
        return self._holds_all and len(self._slot_of) == self.n_blocks

    def blocks(self) -> list[int]:
        """Return the blocks in the pool, the most recently used last."""
        return list(self._slot_of)

    def missing(self, blocks: list[int]) -> list[int]:
        """Return the ``blocks`` that are not in the pool, and mark all other ``blocks`` as recently used."""
        for block in blocks:
            if block in self._slot_of:
                self._slot_of.move_to_end(block)
        return [block for block in blocks if block not in self._slot_of]

    def put(self, block: int, arrays: Arrays) -> None:
        """Add a block. If the pool is full, the least recently used block is removed."""
        is_full = len(self._slot_of) == self.n_blocks
        slot = self._slot_of.popitem(last=False)[1] if is_full else len(self._slot_of)
        first = int(self._starts[block]) if self._holds_all else slot * self._rows
        for name, array in arrays.items():
            self._arrays[name][first : first + len(array)] = array
        self._shift[block] = first - self._starts[block]
        self._slot_of[block] = slot

    def rows_of(self, ids: Ids, blocks: Ids) -> Ids:
        """Return the row of each record in the arrays of the pool, (n,).

        ``blocks`` are the blocks of the records. The pool must contain them.
        """
        return ids if self._holds_all else ids + self._shift[blocks]

    def take(self, rows: Ids, out: Arrays) -> None:
        """Copy rows, (n,) int64, to ``out``, whose fields are (n, *shape)."""
        for name, array in self._arrays.items():
            # with any other mode, NumPy would need a temporary buffer
            array.take(rows, axis=0, out=out[name], mode="clip")
