"""BlockPool: the blocks that a shuffled order has in use, in memory of a fixed size."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays

__all__ = ["BlockPool", "empty_arrays"]


class BlockPool:
    """Blocks in use, one under the other, so that rows of all of them are taken by one call.

    Parameters
    ----------
    store : Store
    n_blocks : int
        How many fit. If all do, the rows of the table are the records of the store.
    """

    def __init__(self, store: Store, n_blocks: int) -> None:
        self.rows = max(block.n for block in store.blocks)
        self.n_blocks = n_blocks
        self._holds_all = n_blocks == len(store.blocks)
        self.arrays = empty_arrays(store, store.count if self._holds_all else n_blocks * self.rows)
        self._starts = store.starts
        # what to add to a record's number to get its row
        self._shift = np.zeros(len(store.blocks), np.int64)
        self._slot_of: OrderedDict[int, int] = OrderedDict()

    @property
    def is_complete(self) -> bool:
        """Whether all blocks of the store are here."""
        return self._holds_all and len(self._slot_of) == self.n_blocks

    def missing(self, blocks: list[int]) -> list[int]:
        """Return those of ``blocks`` that are not here; those that are will stay longer than others."""
        for block in blocks:
            if block in self._slot_of:
                self._slot_of.move_to_end(block)
        return [block for block in blocks if block not in self._slot_of]

    def put(self, block: int, arrays: Arrays) -> None:
        """Take in a block, in the place of the one that was not used for longest."""
        full = len(self._slot_of) == self.n_blocks
        slot = self._slot_of.popitem(last=False)[1] if full else len(self._slot_of)
        first = int(self._starts[block]) if self._holds_all else slot * self.rows
        for name, array in arrays.items():
            self.arrays[name][first : first + len(array)] = array
        self._shift[block] = first - self._starts[block]
        self._slot_of[block] = slot

    def take(self, ids: npt.NDArray[np.int64], blocks: npt.NDArray[np.int64], out: Arrays) -> None:
        """Copy records to ``out``."""
        rows = ids if self._holds_all else ids + self._shift[blocks]
        for name, array in self.arrays.items():
            # any other mode would fill a buffer first
            array.take(rows, axis=0, out=out[name], mode="clip")


def empty_arrays(store: Store, n: int) -> Arrays:
    """Return memory for ``n`` records: (n, *shape) of each field."""
    return {name: np.empty((n, *field.shape), field.dtype) for name, field in store.schema.items()}
