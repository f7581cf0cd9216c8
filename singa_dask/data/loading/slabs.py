"""SlabReader: reads slabs, which are several batches at a time, with bad records replaced."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask.data.loading.bad_records import BadLog, BadPolicy, BadRecord, Substituter
from singa_dask.data.loading.block_pool import empty_arrays
from singa_dask.data.loading.budget import MemoryBudget
from singa_dask.data.loading.collator import Collator
from singa_dask.data.loading.fetcher import Fetcher
from singa_dask.data.loading.look_ahead import LookAhead
from singa_dask.data.loading.reader import BlockReader
from singa_dask.data.order.sampler import Sampler
from singa_dask.data.types import Arrays

__all__ = ["Batch", "Slab", "SlabReader"]


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
