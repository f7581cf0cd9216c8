"""FullOrder: a new permutation of all records in each epoch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from singa_dask.data.order.group import GroupRecords, Ids
from singa_dask.data.order.shuffle import permutation

__all__ = ["FullOrder"]


class FullOrder:
    """Full shuffling of the records of a group.

    Parameters
    ----------
    records : GroupRecords
    seed : int
    """

    def __init__(self, records: GroupRecords, seed: int) -> None:
        self._records, self._seed = records, seed
        # the epoch that was used last, and its order; replaced as one, since threads may share an order
        self._last = (-1, np.empty(0, np.int64))

    def ids(self, positions: Ids) -> Ids:
        """Return the records at positions of the infinite sequence, which must ascend; of the same shape."""
        flat = positions.reshape(-1)
        period = self._records.period
        first, last = int(flat[0]) // period, int(flat[-1]) // period
        # where each epoch begins: computing an epoch for each position would take longer than reading the record
        ends = np.searchsorted(flat, np.arange(first, last + 2) * period).tolist()
        parts = []
        for epoch, (low, high) in enumerate(pairwise(ends), first):
            offsets = flat[low:high] - epoch * period
            if period > self._records.count:
                offsets %= self._records.count
            parts.append(self._permutation(epoch)[offsets])
        return np.concatenate(parts).reshape(positions.shape)

    def _permutation(self, epoch: int) -> Ids:
        """Return all records in the order of an epoch; the last one is kept."""
        known, order = self._last
        if known != epoch:
            order = permutation(self._records.count, self._seed, "full", epoch)
            order += self._records.start
            self._last = epoch, order
        return order
