"""Collator: makes batches of records out of the blocks of a store."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from singa_dask.data.loading.block_pool import BlockPool
from singa_dask.data.loading.reader import BlockReader
from singa_dask.data.order.sampler import Sampler
from singa_dask.data.types import Arrays

__all__ = ["Collator"]

POOL_BYTES = 256 << 20

Ids = npt.NDArray[np.int64]


class Collator:
    """Makes batches from blocks.

    In file order, batches are views of blocks where possible. In a shuffled order, the blocks in use are in a
    `BlockPool`, from which the records of many batches are gathered by one call.

    Parameters
    ----------
    reader : BlockReader
        Reads the blocks, in the thread that uses the collator.
    sampler : Sampler
        Gives the order of the records.
    n_workers : int
        Number of workers of the group.
    """

    def __init__(self, reader: BlockReader, sampler: Sampler, n_workers: int) -> None:
        self._reader, self._sampler, self._n_workers = reader, sampler, n_workers
        self._store = reader.store
        self._starts = reader.store.starts
        self._end = sampler.start + sampler.count
        sizes = np.diff(self._starts)
        # records per block, if equal for all but the last block; else 0
        self._even = int(sizes[0]) if (sizes[:-1] == sizes[0]).all() and sizes[-1] <= sizes[0] else 0
        self._pool: BlockPool | None = None

    def consecutive(self, ids: Ids, buffers: Arrays) -> list[Arrays]:
        """Return batches in file order.

        Parameters
        ----------
        ids : (n_batches, n) int64
            Consecutive records, wrapping from the last record of the group to its first.
        buffers : dict of str to ndarray
            (n_batches * n, *shape) per field, for batches that are not within one block.
        """
        starts, n = self._starts, ids.shape[1]
        firsts = ids[:, 0]
        blocks = self._blocks_of(firsts)
        whole = (firsts + n <= starts[blocks + 1]) & (ids[:, -1] - firsts == n - 1)
        rows = (firsts - starts[blocks]).tolist()
        batches, read = [], self._reader.block
        for i, (block, row, is_whole) in enumerate(zip(blocks.tolist(), rows, whole.tolist(), strict=True)):
            if is_whole:
                batches.append({name: array[row : row + n] for name, array in read(block).items()})
            else:
                batches.append({name: array[i * n : (i + 1) * n] for name, array in buffers.items()})
                self._copy_runs(block, row, n, batches[-1])
        return batches

    def _copy_runs(self, block: int, row: int, n: int, out: Arrays) -> None:
        """Copy consecutive records, from a row of one block on."""
        starts, low = self._starts, 0
        while low < n:
            end = min(int(starts[block + 1]), self._end)
            high = min(n, low + end - int(starts[block]) - row)
            if high > low:
                for name, array in self._reader.block(block).items():
                    out[name][low:high] = array[row : row + high - low]
            low = high
            block, row = (block + 1, 0) if end < self._end else self._reader.locate(self._sampler.start)

    def gather(self, ids: Ids, out: Arrays) -> None:
        """Copy records in any order."""
        pool = self._pool = self._pool or self._make_pool()
        blocks = self._blocks_of(ids)
        if not pool.is_complete:
            used = np.flatnonzero(np.bincount(blocks)).tolist()
            if len(used) > pool.n_blocks:
                self._gather_by_block(ids, blocks, used, out)
                return
            for block in pool.missing(used):
                pool.put(block, self._reader.load(block))
        pool.take(ids, blocks, out)

    def _blocks_of(self, ids: Ids) -> Ids:
        return ids // self._even if self._even else np.searchsorted(self._starts, ids, side="right") - 1

    def _make_pool(self) -> BlockPool:
        store = self._store
        n_blocks = len(store.blocks)
        record_bytes = sum(field.size_bytes for field in store.schema.values())
        if store.count * record_bytes <= POOL_BYTES:
            return BlockPool(store, n_blocks)
        in_use = min(n_blocks, self._sampler.blocks_in_use(self._n_workers) or n_blocks)
        largest = max(block.n for block in store.blocks)
        return BlockPool(store, in_use if in_use * largest * record_bytes <= POOL_BYTES else 0)

    def _gather_by_block(self, ids: Ids, blocks: Ids, used: list[int], out: Arrays) -> None:
        """Copy records block by block, if too many blocks are needed for the pool."""
        for block in used:
            chosen = np.flatnonzero(blocks == block)
            rows = ids[chosen] - self._starts[block]
            for name, array in self._reader.block(block).items():
                out[name][chosen] = array[rows]

    def clear(self) -> None:
        """Free all blocks."""
        self._pool = None
