"""LookAhead: find the blocks that a loader needs next."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable

import numpy as np

from singa_dask.data.order import Ids
from singa_dask.data.sampler import MAX_STEPS, Sampler


class LookAhead:
    """The records of the next steps of a worker, and the blocks that have to be read for them.

    Each step is requested from the sampler only once. Steps are requested in order, many at a time.

    Parameters
    ----------
    sampler : Sampler
    worker, n_workers : int
        Index of the worker in the group, and size of the group.
    n_steps : int
        Number of steps that are read together, at most MAX_STEPS.
    starts : (n_blocks + 1,) int64
        Index of the first record of each block, and the number of records.
    n_kept : int
        Number of most recently used blocks that the reader keeps.
    horizon : int
        Number of steps to look ahead.
    resident : collection of int
        Blocks that stay in memory. The collection changes while the `BlockReader` reads blocks.
    """

    def __init__(
        self,
        sampler: Sampler,
        worker: int,
        n_workers: int,
        n_steps: int,
        starts: Ids,
        n_kept: int = 0,
        horizon: int = 0,
        resident: Collection[int] = (),
    ) -> None:
        self._resident = resident
        self._sampler, self._worker, self._n_workers = sampler, worker, n_workers
        self._n_steps, self._starts, self._n_kept = n_steps, starts, n_kept
        self._length = MAX_STEPS - MAX_STEPS % n_steps
        self._horizon = max(horizon, 2 * self._length)
        self._chunks: deque[tuple[int, Ids]] = deque()
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._next = 0

    def restart(self, step: int, kept: Iterable[int] = ()) -> None:
        """Restart at a step. ``kept`` lists the blocks in memory, the most recently used last."""
        self._chunks.clear()
        self._kept = OrderedDict.fromkeys(kept)
        self._next = step

    def ids(self, step: int) -> Ids:
        """Return the records of the ``n_steps`` steps from ``step`` on, (n_steps, B / n_workers) int64."""
        while self._chunks and step >= self._chunks[0][0] + self._length:
            self._chunks.popleft()
        if not self._chunks or not 0 <= step - self._chunks[0][0] <= self._length - self._n_steps:
            self._chunks.clear()
            self._extend(step)
        first, ids = self._chunks[0]
        return ids[step - first : step - first + self._n_steps]

    def next_blocks(self, step: int) -> list[tuple[int, int]] | None:
        """Return the blocks to read for the next ``n_steps`` steps; None if they are beyond the horizon.

        Parameters
        ----------
        step : int
            The step whose batch is being read.

        Returns
        -------
        list of (step, block)
            The blocks in the order of reading, each with the first step that needs it.
        """
        ahead = max(self._next, step)
        if ahead >= step + self._horizon or len(self._kept) == len(self._starts) - 1 == self._n_kept:
            return None
        while not self._chunks or ahead >= self._chunks[-1][0] + self._length:
            self._extend(self._chunks[-1][0] + self._length if self._chunks else ahead)
        first, ids = next(chunk for chunk in self._chunks if chunk[0] <= ahead < chunk[0] + self._length)
        self._next = ahead + self._n_steps
        return [(ahead, block) for block in self._missing(ids[ahead - first : self._next - first])]

    def _extend(self, first: int) -> None:
        self._chunks.append((first, self._sampler.rows(first, self._worker, self._n_workers, self._length)))

    def _missing(self, ids: Ids) -> list[int]:
        """Return the blocks that have to be read for some records, and mark these blocks as kept."""
        blocks = np.searchsorted(self._starts, ids.reshape(-1), side="right") - 1
        if self._sampler.shuffle == "none":
            # blocks are consecutive; after the last block, the first block is next
            used = blocks[np.flatnonzero(np.diff(blocks, prepend=-1))].tolist()
            return [block for block in used if self._keep(block)]
        used = np.flatnonzero(np.bincount(blocks)).tolist()
        new = [block for block in used if block not in self._kept]
        for block in used:
            if block in self._kept:
                self._kept.move_to_end(block)
        return [block for block in new if self._keep(block)]

    def _keep(self, block: int) -> bool:
        """Mark a block as most recently used; return whether it has to be read."""
        if block in self._kept:
            self._kept.move_to_end(block)
            return False
        self._kept[block] = None
        if len(self._kept) > self._n_kept:
            self._kept.popitem(last=False)
        return block not in self._resident
