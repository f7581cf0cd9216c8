"""Collator: makes batches of records out of the blocks of a store."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from singa_dask.data.fs.mapped_file import FAULT_BYTES, note_read
from singa_dask.data.loading.block_pool import BlockPool
from singa_dask.data.loading.reader import BlockReader
from singa_dask.data.order.sampler import Sampler
from singa_dask.data.types import Arrays

__all__ = ["Collator"]

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
    pool_blocks : int
        Number of blocks of the pool; 0 if too many are needed at a time, see `MemoryBudget`.
    """

    def __init__(self, reader: BlockReader, sampler: Sampler, pool_blocks: int) -> None:
        self._reader, self._sampler, self._pool_blocks = reader, sampler, pool_blocks
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
        if self._store.mapped:
            note_read(sum(buffer.nbytes for buffer in buffers.values()))
        starts, n = self._starts, ids.shape[1]
        firsts = ids[:, 0]
        blocks = self._blocks_of(firsts)
        whole = (firsts + n <= starts[blocks + 1]) & (ids[:, -1] - firsts == n - 1)
        rows = (firsts - starts[blocks]).tolist()
        batches, find = [], self._reader.find
        for i, (block, row, is_whole) in enumerate(zip(blocks.tolist(), rows, whole.tolist(), strict=True)):
            arrays = find(block) if is_whole else None
            if is_whole and arrays is None and not self._reader.copies(block):
                arrays = self._reader.block(block)
            if arrays is not None:
                batches.append({name: array[row : row + n] for name, array in arrays.items()})
            else:
                batches.append({name: array[i * n : (i + 1) * n] for name, array in buffers.items()})
                self._copy_runs(block, row, n, batches[-1])
        return batches

    def _copy_runs(self, block: int, row: int, n: int, out: Arrays) -> None:
        """Copy consecutive records, from a row of one block on."""
        low = 0
        while low < n:
            start, end = self._starts[block : block + 2].tolist()
            end = min(end, self._end)
            high = min(n, low + end - start - row)
            if high > low:
                self._reader.copy(block, row, {name: array[low:high] for name, array in out.items()})
            low = high
            block, row = (block + 1, 0) if end < self._end else self._reader.locate(self._sampler.start)

    def gather(self, ids: Ids, out: Arrays) -> None:
        """Copy records in any order, reading the blocks that are not in memory.

        Parameters
        ----------
        ids : (n,) int64
            Records.
        out : dict of str to ndarray
            (n, *shape) per field, which is written.

        Raises
        ------
        DataError
            A block cannot be read. Names URL and block.
        """
        pool = self._pool = self._pool or BlockPool(self._store, self._pool_blocks)
        rows = ids
        if not pool.is_complete:
            blocks = self._blocks_of(ids)
            used = np.flatnonzero(np.bincount(blocks)).tolist()
            if len(used) > pool.n_blocks:
                self._gather_by_block(ids, blocks, used, out)
                return
            for block in pool.missing(used):
                pool.put(block, self._reader.load(block))
            rows = pool.rows_of(ids, blocks)
        pool.take(rows, out)

    def _blocks_of(self, ids: Ids) -> Ids:
        return ids // self._even if self._even else np.searchsorted(self._starts, ids, side="right") - 1

    @property
    def n_kept(self) -> int:
        """Number of blocks that stay in memory, the most recently used ones."""
        if self._sampler.shuffle == "none":
            return self._reader.n_kept
        return self._pool_blocks or self._reader.n_kept

    def random_reads(self, n_records: int) -> float:
        """Return how many blocks are read for random records of the store, on average once memory is full."""
        n_blocks = len(self._starts) - 1
        used = n_blocks * (1 - (1 - 1 / n_blocks) ** n_records)
        return used * (1 - self.n_kept / n_blocks)

    def kept(self) -> list[int]:
        """Return the blocks in memory, the most recently used last."""
        return self._pool.blocks() if self._pool is not None and self._pool_blocks else list(self._reader.kept)

    def _gather_by_block(self, ids: Ids, blocks: Ids, used: list[int], out: Arrays) -> None:
        """Copy records block by block, if too many blocks are needed for the pool."""
        # those in memory first, before others replace them; the look-ahead knows this order
        for block in sorted(used, key=lambda block: block not in self._reader.kept):
            chosen = np.flatnonzero(blocks == block)
            if self._store.mapped:
                # block by block: a large batch may touch all pages of the file
                note_read(len(chosen) * FAULT_BYTES)
            rows = ids[chosen] - self._starts[block]
            for name, array in self._reader.block(block).items():
                out[name][chosen] = array[rows]

    def clear(self) -> None:
        """Free all blocks."""
        self._pool = None
