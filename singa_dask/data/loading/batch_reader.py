"""BatchReader: read several batches at a time into a BatchBuffer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from singa_dask.data.loading.bad_records import BadLog, BadRecord
from singa_dask.data.loading.block_pool import BlockPool
from singa_dask.data.loading.look_ahead import LookAhead
from singa_dask.data.loading.memory_budget import MemoryBudget
from singa_dask.data.loading.reader import BlockReader, empty_arrays
from singa_dask.data.order import Ids
from singa_dask.data.sampler import Sampler
from singa_dask.data.types import Arrays
from singa_dask.fs.mapped_file import FAULT_BYTES, note_read
from singa_dask.fs.range_reader import LOOK_S


class Batch(NamedTuple):
    """The rows of one worker in one step.

    Attributes
    ----------
    arrays : dict of str to ndarray
        The fields, each (B / n_workers, *shape), where B is the batch size of the group. Each record is contiguous. The
        arrays are valid until the next call of `Loader.next`, and may be read-only views.
    ids : (B / n_workers,) int64
        Indices of the records in the store, after bad records were replaced.
    """

    arrays: Arrays
    ids: Ids


@dataclass
class BatchBuffer:
    """Batches that are read together.

    Attributes
    ----------
    first_step : int
        Step of the first batch.
    arrays : dict of str to ndarray
        The fields, each (n_batches * B / n_workers, *shape). The memory of the arrays is reused for later batches.
    batches : list of Batch
        The batches. Their arrays are views of ``arrays``, or of a block that contains the whole batch.
    bad : dict of int to list of BadRecord
        Bad records, by the index of the batch.
    """

    first_step: int
    arrays: Arrays
    batches: list[Batch]
    bad: dict[int, list[BadRecord]] = field(default_factory=dict)


class BatchReader:
    """Builds the batches of one worker from blocks. Only one thread may use it at a time.

    In file order, batches are views of blocks if possible. In a shuffled order, one call gathers the records of many
    batches from a `BlockPool`.

    Parameters
    ----------
    reader : BlockReader
    sampler : Sampler
    worker, n_workers : int
        Index of the worker in the group, and size of the group.
    budget : MemoryBudget
    log : BadLog
        Log of the bad records so far, which limits their number.

    Attributes
    ----------
    n_kept : int
        Number of most recently used blocks that stay in memory.
    """

    def __init__(
        self,
        reader: BlockReader,
        sampler: Sampler,
        worker: int,
        n_workers: int,
        budget: MemoryBudget,
        log: BadLog,
    ) -> None:
        self._reader, self._sampler, self._log, self._fetcher = reader, sampler, log, reader.fetcher
        self._store, self._starts = reader.store, reader.store.starts
        self._in_order = sampler.shuffle == "none"
        sizes = np.diff(self._starts)
        # number of records per block, if all blocks except the last have the same size; else 0
        self._even = int(sizes[0]) if (sizes[:-1] == sizes[0]).all() and sizes[-1] <= sizes[0] else 0
        self._check_at = 0.0
        self._pool: BlockPool | None = None
        self._pool_blocks = budget.pool_blocks
        self.n_kept = reader.n_kept if self._in_order else budget.pool_blocks or reader.n_kept
        self._ahead = LookAhead(
            sampler,
            worker,
            n_workers,
            budget.buffer_steps,
            self._starts,
            self.n_kept,
            budget.horizon,
            reader.resident,
        )
        self.rewind()

    @property
    def all_in_memory(self) -> bool:
        """Whether all blocks are in memory and batches are views of blocks, so that prefetching is useless."""
        return self._in_order and len(self._reader.kept) == len(self._store.blocks)

    def blocks_in_memory(self) -> list[int]:
        """Return the blocks in memory, the most recently used last."""
        return self._pool.blocks() if self._pool is not None and self._pool_blocks else list(self._reader.kept)

    def rewind(self) -> None:
        """Drop fetched blocks, and the bad records of batches that were read ahead."""
        self._bad_ahead = set(self._log.records)
        self._follows = False
        if self._fetcher is not None:
            self._fetcher.drop()

    def clear(self) -> None:
        """Free all blocks."""
        self._reader.clear()
        self._pool = None

    def read(self, step: int, spare: Arrays | None) -> BatchBuffer:
        """Read several batches, beginning with the batch of ``step``.

        Parameters
        ----------
        step : int
        spare : dict of str to ndarray, optional
            Arrays of an unused buffer, which are overwritten. By default new arrays are allocated.

        Raises
        ------
        DataError
            A block cannot be read. The message names URL and block.
        """
        if self._fetcher is not None:
            if not self._follows:
                self._ahead.restart(step, self.blocks_in_memory())
                self._follows = True
            self._fetcher.follow(self._ahead, step)
        ids = self._ahead.ids(step)
        arrays = spare or empty_arrays(self._store, ids.size)
        if self._in_order:
            batches = self._consecutive(ids, arrays)
        else:
            self._gather(ids.reshape(-1), arrays)
            fields = [list(array.reshape(*ids.shape, *array.shape[1:])) for array in arrays.values()]
            batches = [dict(zip(arrays, rows, strict=True)) for rows in zip(*fields, strict=True)]
        if self._is_to_check(step, len(batches)):
            self._store.check_unchanged()
        buffer = BatchBuffer(step, arrays, [Batch(batch, rows) for batch, rows in zip(batches, ids, strict=True)])
        if self._reader.bad:
            self._substitute(buffer)
        return buffer

    def _is_to_check(self, step: int, n: int) -> bool:
        """Return whether to check that files are unchanged.

        Files are checked at the end of an epoch. If blocks are views of files, files are also checked every `LOOK_S`
        seconds.
        """
        first, size, period = self._sampler.first_row, self._sampler.batch_size, self._sampler.period
        if (first + step * size) // period == (first + (step + n) * size) // period:
            now = time.monotonic()
            if not self._store.mapped or now < self._check_at:
                return False
            self._check_at = now + LOOK_S
        return True

    def _blocks_of(self, ids: Ids) -> Ids:
        return ids // self._even if self._even else np.searchsorted(self._starts, ids, side="right") - 1

    def _consecutive(self, ids: Ids, buffers: Arrays) -> list[Arrays]:
        """Return batches in file order.

        Parameters
        ----------
        ids : (n_batches, n) int64
            Consecutive records; after the last record of the group, the first record is next.
        buffers : dict of str to ndarray
            Memory for batches that span several blocks: one array (n_batches * n, *shape) for each field.
        """
        if self._store.mapped:
            note_read(sum(buffer.nbytes for buffer in buffers.values()))
        starts, n = self._starts, ids.shape[1]
        firsts = ids[:, 0]
        blocks = self._blocks_of(firsts)
        whole = (firsts + n <= starts[blocks + 1]) & (ids[:, -1] - firsts == n - 1)
        rows = (firsts - starts[blocks]).tolist()
        batches = []
        for i, (block, row, is_whole) in enumerate(zip(blocks.tolist(), rows, whole.tolist(), strict=True)):
            if is_whole:
                batches.append({name: array[row : row + n] for name, array in self._reader.block(block).items()})
            else:
                batches.append({name: array[i * n : (i + 1) * n] for name, array in buffers.items()})
                self._copy_runs(block, row, n, batches[-1])
        return batches

    def _copy_runs(self, block: int, row: int, n: int, out: Arrays) -> None:
        """Copy ``n`` consecutive records, beginning with a row of a block, to ``out``."""
        low, last = 0, self._sampler.start + self._sampler.count
        while low < n:
            start, end = self._starts[block : block + 2].tolist()
            end = min(end, last)
            high = min(n, low + end - start - row)
            if high > low:
                for name, array in self._reader.block(block).items():
                    out[name][low:high] = array[row : row + high - low]
            low = high
            block, row = (block + 1, 0) if end < last else self._reader.locate(self._sampler.start)

    def _gather(self, ids: Ids, out: Arrays) -> None:
        """Copy records, (n,) in any order, to ``out``, whose fields are (n, *shape).

        Blocks that are not in memory are read.
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

    def _gather_by_block(self, ids: Ids, blocks: Ids, used: list[int], out: Arrays) -> None:
        """Copy records block by block. Used if the pool is too small for all needed blocks."""
        # use the blocks in memory first, before other blocks replace them; `LookAhead` assumes the same order
        for block in sorted(used, key=lambda block: block not in self._reader.kept):
            chosen = np.flatnonzero(blocks == block)
            if self._store.mapped:
                # count page faults for each block, because a large batch may touch all pages of the file
                note_read(len(chosen) * FAULT_BYTES)
            rows = ids[chosen] - self._starts[block]
            for name, array in self._reader.block(block).items():
                out[name][chosen] = array[rows]

    def _substitute(self, buffer: BatchBuffer) -> None:
        """Replace bad records."""
        for i, batch in enumerate(buffer.batches):
            rows = self._reader.bad_among(batch.ids)
            if not len(rows):
                continue
            buffer.bad[i] = self._reader.describe(batch.ids[rows])
            self._bad_ahead.update(batch.ids[rows].tolist())
            if len(self._bad_ahead) > self._log.max_bad:
                # `next` will raise an error for this batch
                return
            n = len(batch.ids)
            arrays = {name: array[i * n : (i + 1) * n] for name, array in buffer.arrays.items()}
            for name, array in batch.arrays.items():
                np.copyto(arrays[name], array)
            buffer.batches[i] = Batch(arrays, self._reader.replace(batch.ids, rows, arrays))
