"""BlockPool: the blocks in use of a shuffled order, in memory of fixed size."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays

__all__ = ["BlockPool", "empty_arrays"]


class BlockPool:
    """Blocks in one contiguous array per field, so that records of many blocks are gathered by one call.

    Parameters
    ----------
    store : Store
    n_blocks : int
        Capacity in blocks. If all blocks fit, the rows of the arrays are the records of the store.
    """

    def __init__(self, store: Store, n_blocks: int) -> None:
        self.rows = max(block.n for block in store.blocks)
        self.n_blocks = n_blocks
        self._holds_all = n_blocks == len(store.blocks)
        self.arrays = empty_arrays(store, store.count if self._holds_all else n_blocks * self.rows)
        self._starts = store.starts
        # row of a record minus its index in the store, by block
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
        """Return the ``blocks`` that are not in the pool; marks the others as recently used."""
        for block in blocks:
            if block in self._slot_of:
                self._slot_of.move_to_end(block)
        return [block for block in blocks if block not in self._slot_of]

    def put(self, block: int, arrays: Arrays) -> None:
        """Add a block, replacing the least recently used one if the pool is full."""
        full = len(self._slot_of) == self.n_blocks
        slot = self._slot_of.popitem(last=False)[1] if full else len(self._slot_of)
        first = int(self._starts[block]) if self._holds_all else slot * self.rows
        for name, array in arrays.items():
            self.arrays[name][first : first + len(array)] = array
        self._shift[block] = first - self._starts[block]
        self._slot_of[block] = slot

    def rows_of(self, ids: npt.NDArray[np.int64], blocks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rows of records in the arrays of the pool.

        Parameters
        ----------
        ids : (n,) int64
            Records.
        blocks : (n,) int64
            The block of each, which must be in the pool.

        Returns
        -------
        (n,) int64
        """
        return ids if self._holds_all else ids + self._shift[blocks]

    def take(self, rows: npt.NDArray[np.int64], out: Arrays) -> None:
        """Copy rows, (n,) int64, to ``out``: (n, *shape) per field."""
        for name, array in self.arrays.items():
            # any other mode would need a temporary buffer
            array.take(rows, axis=0, out=out[name], mode="clip")


def empty_arrays(store: Store, n: int) -> Arrays:
    """Return uninitialised arrays for ``n`` records: (n, *shape) per field."""
    return {name: np.empty((n, *field.shape), field.dtype) for name, field in store.schema.items()}
