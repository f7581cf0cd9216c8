"""LookAhead: which records and which blocks a worker needs in the steps to come. No I/O."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask.data.order.sampler import Sampler

__all__ = ["MAX_STEPS", "LookAhead"]

MAX_STEPS = 64

Ids = npt.NDArray[np.int64]


class _Chunk(NamedTuple):
    first: int
    ids: Ids


class LookAhead:
    """The records of the next steps of a worker, and the blocks that will have to be read for them.

    The sampler is asked once for each step: for many steps at a time, and in order.

    Parameters
    ----------
    sampler : Sampler
    worker, n_workers : int
        Index of the worker in the group, and size of the group.
    n_steps : int
        Steps per slab, at most MAX_STEPS.
    starts : (n_blocks + 1,) int64
        Index of the first record of each block, and the number of records.
    n_kept : int
        Number of blocks that the reader keeps, the most recently used ones.
    horizon : int
        Number of steps to look ahead.
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
    ) -> None:
        self._sampler, self._worker, self._n_workers = sampler, worker, n_workers
        self._n_steps, self._starts, self._n_kept = n_steps, starts, n_kept
        self._length = MAX_STEPS - MAX_STEPS % n_steps
        self._horizon = max(horizon, 2 * self._length)
        self._chunks: deque[_Chunk] = deque()
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._next = 0

    def restart(self, step: int, kept: Iterable[int] = ()) -> None:
        """Go to a step, at which these blocks are in memory, the most recently used last."""
        self._chunks.clear()
        self._kept = OrderedDict.fromkeys(kept)
        self._next = step

    def ids(self, step: int) -> Ids:
        """Return the records of the slab that begins with a step, (n_steps, B / n_workers) int64."""
        while self._chunks and step >= self._chunks[0].first + self._length:
            self._chunks.popleft()
        if (
            not self._chunks
            or not self._chunks[0].first <= step <= self._chunks[0].first + self._length - self._n_steps
        ):
            self._chunks.clear()
            self._extend(step)
        first, ids = self._chunks[0]
        return ids[step - first : step - first + self._n_steps]

    def next_slab(self, step: int) -> list[tuple[int, int]] | None:
        """Return the blocks that have to be read for the next slab; None if it is beyond the horizon.

        Parameters
        ----------
        step : int
            First step of the slab that is read now.

        Returns
        -------
        list of (step, block)
            The first step of the slab, and a block, in the order in which they are read.
        """
        slab = max(self._next, step)
        if slab >= step + self._horizon or len(self._kept) == len(self._starts) - 1 == self._n_kept:
            return None
        while not self._chunks or slab >= self._chunks[-1].first + self._length:
            self._extend(self._chunks[-1].first + self._length if self._chunks else slab)
        first, ids = next(chunk for chunk in self._chunks if chunk.first <= slab < chunk.first + self._length)
        self._next = slab + self._n_steps
        return [(slab, block) for block in self._missing(ids[slab - first : self._next - first])]

    def _extend(self, first: int) -> None:
        self._chunks.append(
            _Chunk(first, self._sampler.rows(first, self._worker, self._n_workers, self._length)),
        )

    def _missing(self, ids: Ids) -> list[int]:
        """Return the blocks of some records that are not in memory by then, and keep them."""
        blocks = np.searchsorted(self._starts, ids.reshape(-1), side="right") - 1
        if self._sampler.shuffle == "none":
            # one after another; at the end of an epoch the first block follows the last
            used = blocks[np.flatnonzero(np.diff(blocks, prepend=-1))].tolist()
            return [block for block in used if self._keep(block)]
        used = np.flatnonzero(np.bincount(blocks)).tolist()
        new = [block for block in used if block not in self._kept]
        for block in used:
            if block in self._kept:
                self._kept.move_to_end(block)
        return [block for block in new if self._keep(block)]

    def _keep(self, block: int) -> bool:
        """Keep a block as the most recently used one; return whether it has to be read."""
        if block in self._kept:
            self._kept.move_to_end(block)
            return False
        self._kept[block] = None
        if len(self._kept) > self._n_kept:
            self._kept.popitem(last=False)
        return True
