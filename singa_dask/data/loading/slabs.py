"""SlabReader: reads slabs, which are several batches at a time, made of blocks, with bad records replaced."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask.data.fs.mapped_file import FAULT_BYTES, note_read
from singa_dask.data.loading.bad_records import BadLog, BadPolicy, BadRecord, Substituter
from singa_dask.data.loading.budget import MemoryBudget
from singa_dask.data.loading.fetcher import Fetcher
from singa_dask.data.loading.reader import BlockReader, empty_arrays
from singa_dask.data.order.sampler import LookAhead, Sampler
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays

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


class Batch(NamedTuple):
    """The rows of one worker in one step.

    Attributes
    ----------
    arrays : dict of str to ndarray
        (B / n_workers, *shape) per field, each record contiguous. Valid until the next call of `Loader.next`. May be
        read-only views.
    ids : (B / n_workers,) int64
        Indices of the records in the store, after replacement of bad ones.
    """

    arrays: Arrays
    ids: npt.NDArray[np.int64]


@dataclass
class Slab:
    """Batches that are read together.

    Attributes
    ----------
    first_step : int
        Step of the first batch.
    buffers : dict of str to ndarray
        (n_batches * B / n_workers, *shape) per field, which are used again for a later slab; empty after an error.
    batches : list of Batch
        Rows of ``buffers``, or views of a block that contains the whole batch.
    error : BaseException or None
        What ended the reading of the slab, which then has no batches.
    bad : dict of int to list of BadRecord
        Bad records by index of the batch.
    """

    first_step: int
    buffers: Arrays
    batches: list[Batch]
    error: BaseException | None = None
    bad: dict[int, list[BadRecord]] = field(default_factory=dict)


class SlabReader:
    """Reads the slabs of one worker. Must be used by one thread at a time.

    Parameters
    ----------
    reader : BlockReader
    sampler : Sampler
    worker, n_workers : int
        Index of the worker in the group, and size of the group.
    budget : MemoryBudget
    policy : BadPolicy
    log : BadLog
        The bad records that have been handed out, with the maximum.
    fetcher : Fetcher, optional
        Reads blocks ahead.
    """

    def __init__(
        self,
        reader: BlockReader,
        sampler: Sampler,
        worker: int,
        n_workers: int,
        budget: MemoryBudget,
        policy: BadPolicy,
        log: BadLog,
        fetcher: Fetcher | None = None,
    ) -> None:
        self._reader, self._sampler, self._log = reader, sampler, log
        self._fetcher = fetcher
        self._collator = Collator(reader, sampler, budget.pool_blocks)
        self._substituter = Substituter(reader, policy)
        starts, n_kept = reader.store.starts, self._collator.n_kept
        self._ahead = LookAhead(sampler, worker, n_workers, budget.slab_steps, starts, n_kept, budget.horizon)
        self._follows = False
        self.rewind()

    @property
    def all_in_memory(self) -> bool:
        """Whether all blocks are in memory and batches are views, so that there is nothing to prefetch."""
        return self._sampler.shuffle == "none" and len(self._reader.kept) == len(self._reader.store.blocks)

    @property
    def n_kept(self) -> int:
        """Number of blocks that stay in memory."""
        return self._collator.n_kept

    def random_bytes(self, n_records: int) -> int:
        """Return the bytes that are read for a slab of random records, on average once memory is full."""
        blocks = self._reader.store.blocks
        return int(self._collator.random_reads(n_records) * sum(block.length for block in blocks) / len(blocks))

    def rewind(self) -> None:
        """Forget what was fetched, and the bad records of slabs that were read but not handed out."""
        self._bad_ahead = set(self._log.records)
        self._follows = False
        if self._fetcher is not None:
            self._fetcher.drop()

    def clear(self) -> None:
        """Free all blocks."""
        self._reader.clear()
        self._collator.clear()

    def read(self, step: int, spare: Arrays | None) -> Slab:
        """Read the slab that begins with a step.

        Parameters
        ----------
        step : int
        spare : dict of str to ndarray, optional
            Buffers of a slab that is no longer used, to be written again. Without them new ones are allocated.

        Raises
        ------
        DataError
            A block cannot be read. Names URL and block.
        """
        if self._fetcher is not None:
            self._follow(self._fetcher, step)
        ids = self._ahead.ids(step)
        buffers = spare or empty_arrays(self._reader.store, ids.size)
        if self._sampler.shuffle == "none":
            batches = self._collator.consecutive(ids, buffers)
        else:
            self._collator.gather(ids.reshape(-1), buffers)
            n = ids.shape[1]
            batches = [{name: array[i : i + n] for name, array in buffers.items()} for i in range(0, ids.size, n)]
        if self._reader.store.mapped:
            # kept blocks are views, which change with the file
            self._reader.store.check_unchanged()
        slab = Slab(step, buffers, [Batch(arrays, rows) for arrays, rows in zip(batches, ids, strict=True)])
        if self._reader.bad:
            self._substitute(slab)
        return slab

    def _substitute(self, slab: Slab) -> None:
        """Replace bad records."""
        for i, batch in enumerate(slab.batches):
            rows = self._reader.bad_among(batch.ids)
            if not len(rows):
                continue
            slab.bad[i] = self._substituter.describe(batch.ids[rows])
            self._bad_ahead.update(batch.ids[rows].tolist())
            if len(self._bad_ahead) > self._log.max_bad:
                # `next` will raise an error for this batch
                return
            n = len(batch.ids)
            arrays = {name: array[i * n : (i + 1) * n] for name, array in slab.buffers.items()}
            for name, array in batch.arrays.items():
                np.copyto(arrays[name], array)
            slab.batches[i] = Batch(arrays, self._substituter.replace(batch.ids, rows, arrays))

    def _follow(self, fetcher: Fetcher, step: int) -> None:
        """Have the blocks fetched that come next."""
        if not self._follows:
            self._ahead.restart(step, self._collator.kept())
            self._follows = True
        fetcher.follow(self._ahead, step)
