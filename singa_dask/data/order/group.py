"""GroupRecords: the records of one worker group, and how its batches divide them into epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from singa_dask.errors import DataError

__all__ = ["GroupRecords", "Ids", "LastBatch"]

LastBatch = Literal["wrap", "drop_last", "pad"]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class GroupRecords:
    """The records of one group and its epochs; arguments as in `Sampler`.

    Attributes
    ----------
    starts : (n_blocks + 1,) int64
        First record of each block of the store, and the total count.
    start, count : int
        First record of the group, and number of records.
    batch_size : int
    period : int
        Rows per epoch, including padding.
    skip : int
        Records skipped at the start; whole batches unless ``last_batch`` is ``wrap``.
    last_batch : {"wrap", "drop_last", "pad"}
    """

    starts: Ids
    start: int
    count: int
    batch_size: int
    period: int
    skip: int
    last_batch: LastBatch

    @classmethod
    def of(
        cls,
        sizes: Sequence[int] | npt.NDArray[np.int64],
        batch_size: int,
        group: int,
        n_groups: int,
        skip: int,
        last_batch: LastBatch,
    ) -> GroupRecords:
        """Return the records of a group.

        Raises
        ------
        DataError
            The group has no records, or less than a batch and ``last_batch`` is ``drop_last``.
        """
        starts = np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))])
        total = int(starts[-1])
        start, end = group * total // n_groups, (group + 1) * total // n_groups
        count = end - start
        if not count:
            raise DataError(f"{total} records are too few for {n_groups} groups: group {group} would have none.")
        period = count + {"wrap": 0, "drop_last": -(count % batch_size), "pad": -count % batch_size}[last_batch]
        if not period:
            raise DataError(
                f"{count} records for group {group} are less than a batch of {batch_size}: last_batch: drop_last "
                "would drop all of them. Expected at least a whole batch. Set last_batch to pad or wrap."
            )
        skip = skip if last_batch == "wrap" else skip - skip % batch_size
        return cls(starts, start, count, batch_size, period, skip, last_batch)
