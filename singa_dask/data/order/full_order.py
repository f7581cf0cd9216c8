"""FullOrder: a new permutation of all records in each epoch."""

from __future__ import annotations

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
        self._kept: dict[int, Ids] = {}

    def ids(self, positions: Ids) -> Ids:
        """Return the records at positions of the infinite sequence, of the same shape."""
        epochs, offsets = np.divmod(positions, self._records.period)
        offsets %= self._records.count
        needed = range(int(epochs.min()), int(epochs.max()) + 1)
        kept = {epoch: self._kept[epoch] for epoch in needed if epoch in self._kept}
        ids = np.empty_like(positions)
        for epoch in needed:
            if epoch not in kept:
                kept[epoch] = self._records.start + permutation(self._records.count, self._seed, "full", epoch)
            here = epochs == epoch
            ids[here] = kept[epoch][offsets[here]]
        self._kept = {needed[-1]: kept[needed[-1]]}
        return ids
