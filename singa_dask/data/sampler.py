"""Sampler: compute which records are in a batch of a worker group, from a few integers.

The records of any step can be computed directly, and do not depend on the number of workers. So a cursor (a position in
the data) is a few integers, and a resumed or resized run reads the same records.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from singa_dask.data.order import BlockOrder, FullOrder, GroupRecords, Ids, LastBatch
from singa_dask.errors import DataError

Shuffle = Literal["none", "block", "full"]

# number of streams; it is divisible by 1, 2, 3, 4, 6, 8, 12, 16 and 24 workers
CANONICAL_STREAMS = 48
# names in messages for the entries of a cursor that are not keys of a job file
CALLED = {
    "fingerprint": "the version of the data",
    "deal": "the order of blocks by hosts",
    "version": "the way in which worker groups share records",
    "skip": "the number of records skipped at the start",
}
# values that are omitted from cursors, so that older cursors without these keys remain valid
_PLAIN = {"last_batch": "wrap", "deal": ""}
MAX_STEPS = 64


def advanced(cursor: Mapping[str, Any], n_batches: int) -> dict[str, Any]:
    """Return the cursor that is ``n_batches`` batches after ``cursor``."""
    return {**cursor, "samples_seen": cursor["samples_seen"] + n_batches * cursor["batch_size"]}


class Sampler:
    """The endless, deterministic sequence of records that a worker group reads, batch by batch.

    Parameters
    ----------
    sizes : sequence of int
        Number of records of each block of the store.
    batch_size : int
        Number of records that the whole group reads in a step.
    shuffle : {"none", "block", "full"}
        ``none``: file order. ``full``: a new permutation of all records in each epoch. ``block``: see Notes.
    seed : int
    group, n_groups : int
        Index of the group, and number of groups. Group k of G reads the records k*N//G to (k+1)*N//G. Records are
        numbered in the order of ``assignment`` if ``shuffle`` is ``block``, else in file order.
    window : int
        For ``block``: number of blocks that a group mixes at a time, summed over all streams.
    streams : int, optional
        For ``block``: number of streams, a divisor of the batch size. The default is the greatest common divisor of the
        batch size and 48. With ``runs``, it is the largest divisor of that number that does not exceed ``window``.
    assignment : sequence of int, optional
        For ``block``: order in which blocks are assigned to the streams. By default the order is random and depends on
        ``seed``.
    runs : (n_blocks,) int64, optional
        For ``block``: `Store.runs`. A stream reads the blocks of a run one after the other.
    skip : int
        Number of records to skip at the start. If ``last_batch`` is not ``wrap``, the number is rounded down to whole
        batches.
    fingerprint : str
        Fingerprint of the store. A cursor with another fingerprint is refused.
    last_batch : {"wrap", "drop_last", "pad"}
        What to do with the N mod B records that remain at the end of an epoch of N records. ``wrap``: complete the
        batch with the first records of the next epoch. ``drop_last``: drop these records; with shuffling, they differ
        in each epoch. ``pad``: complete the batch with the first records of the same epoch.
    proportions : sequence of int
        Proportions in which the workers divide a batch. If empty, the parts are equal.
    span : (int, int), optional
        Range of records (first, end) to read instead of the group's records; ``end`` is excluded. Not allowed with
        ``block``.
    consecutive : bool
        Whether each worker reads one range of consecutive records, instead of a part of each batch in file order. Each
        block is then read by one worker, but the records of a batch depend on the number of workers. Requires
        ``shuffle="none"`` and a whole number of batches.

    Attributes
    ----------
    count : int
        Number of records of the group.
    period : int
        Number of rows in an epoch, including padding.
    first_row : int
        Index of the row with which step 0 begins.

    Raises
    ------
    DataError
        The group has no records, or fewer than a batch if ``last_batch`` is ``drop_last``.

    Notes
    -----
    With ``block``, each of the C streams supplies B / C consecutive rows of every batch of B rows. The blocks are
    concatenated in the order of the assignment. In each epoch, this sequence of records is divided into C spans, one
    for each stream. The length of a span is the number of rows that its stream supplies in the epoch, so every record
    is read once per epoch. A block is read by one stream, or by two streams if the block contains a boundary of spans.
    A stream reads its blocks in random order, and shuffles records within windows of blocks.

    If ``last_batch`` is not ``wrap``, the spans have about equal lengths and are the same in all epochs. A stream then
    drops the end of its span (``drop_last``), or starts again at its beginning (``pad``).
    """

    def __init__(
        self,
        sizes: Sequence[int] | npt.NDArray[np.int64],
        batch_size: int,
        shuffle: Shuffle = "none",
        seed: int = 0,
        *,
        group: int = 0,
        n_groups: int = 1,
        window: int = 64,
        streams: int | None = None,
        assignment: Sequence[int] | None = None,
        runs: Ids | None = None,
        skip: int = 0,
        fingerprint: str = "",
        last_batch: LastBatch = "wrap",
        proportions: Sequence[int] = (),
        span: tuple[int, int] | None = None,
        consecutive: bool = False,
    ) -> None:
        self._consecutive = consecutive
        self.batch_size, self.shuffle, self.seed, self._proportions = batch_size, shuffle, seed, proportions
        self.fingerprint, self.last_batch, self.n_groups = fingerprint, last_batch, n_groups
        if not streams:
            most = math.gcd(batch_size, CANONICAL_STREAMS)
            # each stream keeps one run open, so allow at most ``window`` streams
            limit = most if runs is None else max(window, 1)
            streams = max(n for n in range(1, most + 1) if most % n == 0 and n <= limit)
        if batch_size % streams:
            raise ValueError(f"{streams} streams do not divide a batch of {batch_size}")
        self._records = GroupRecords(sizes, batch_size, group, n_groups, skip, last_batch, span)
        self.start, self.count = self._records.start, self._records.count
        self.period, self.skip = self._records.period, self._records.skip
        # if a run continues with another batch size, the number of streams changes
        self.first_row = self.skip
        self.window = window
        order = None if assignment is None else np.asarray(assignment, np.int64)
        self._block = BlockOrder(self._records, seed, streams, window, order, runs)
        self._full = FullOrder(self._records, seed)

    # -- batches -------------------------------------------------------------------------------------

    def rows(self, step: int, worker: int = 0, n_workers: int = 1, n_steps: int = 1) -> Ids:
        """Return the indices of the records that a worker reads in ``n_steps`` steps: its rows of each batch.

        Returns
        -------
        (n_steps, B / n_workers) int64
        """
        low, high = self.bounds(n_workers)[worker : worker + 2]
        if self.shuffle == "block":
            return self._block.rows(step, n_steps, low, high)
        if self._consecutive:
            n_batches, n = self.count // self.batch_size, high - low
            part: Ids = np.arange(step, step + n_steps)[:, None] % n_batches * n + np.arange(n)
            return part + (self.start + low * n_batches)
        firsts = self.first_row + (step + np.arange(n_steps)[:, None]) * self.batch_size
        if self.shuffle == "full":
            return self._full.ids(firsts + np.arange(low, high))
        # computing remainders is slow: one per batch is enough, except at the end of an epoch
        ids: Ids = self.start + firsts % self.period + np.arange(low, high)
        last = self.start + min(self.period, self.count)
        if ids[:, -1].max(initial=0) >= last:
            ids = self.start + (ids - self.start) % self.period % self.count
        return ids

    def epoch_of(self, step: int, worker: int = 0, n_workers: int = 1) -> Ids:
        """Return the epoch of each row of ``rows(step, worker, n_workers)``, (B / n_workers,) int64."""
        low, high = self.bounds(n_workers)[worker : worker + 2]
        first = self.first_row + step * self.batch_size
        epoch = (first + low) // self.period
        # usually all rows are in one epoch, which needs no division for each row
        if (first + high - 1) // self.period == epoch:
            return np.full(high - low, epoch, np.int64)
        rows: Ids = np.arange(first + low, first + high, dtype=np.int64)
        return rows // self.period

    def block_rows(self, worker: int = 0, n_workers: int = 1) -> Ids:
        """Return how many rows of each block a worker reads in its first epoch.

        Returns
        -------
        (n_blocks,) int64
            Exact numbers; for ``full``, expected numbers, rounded up.
        """
        low, high = self.bounds(n_workers)[worker : worker + 2]
        if self.shuffle == "block":
            return self._block.block_rows(low, high)
        starts = self._records.starts.clip(self.start, self.start + self.count) - self.start
        if self._consecutive:
            n_batches = self.count // self.batch_size
            return np.diff(starts.clip(low * n_batches, high * n_batches))
        if self.shuffle == "full":
            return -(-np.diff(starts) * (high - low) // self.batch_size)
        again = np.arange(self.count, self.period)
        again = again[(again % self.batch_size >= low) & (again % self.batch_size < high)] % self.count
        batches, rest = np.divmod(starts.clip(None, self.period) - self.skip, self.batch_size)
        rows: Ids = np.diff(batches * (high - low) + (rest - low).clip(0, high - low))
        return rows + np.histogram(again, starts)[0] if len(again) else rows

    def spans(self, n_workers: int = 1) -> list[tuple[int, int, int]]:
        """Return which span of records each worker reads in the first epoch, if ``shuffle`` is ``block``.

        Returns
        -------
        list of (worker, low, high)
            One span of records for each stream, in order. A stream that several workers share is listed with the worker
            that reads most of it.
        """
        bounds, width = self.bounds(n_workers), self._block.width
        owners = (bisect(bounds, stream * width + width // 2) - 1 for stream in range(self._block.streams))
        return [(owner, *self._block.span(stream, 0)) for stream, owner in enumerate(owners)]

    def blocks_in_use(self, n_workers: int = 1) -> int | None:
        """Return the maximum number of blocks from which a worker reads in turn; None if unbounded."""
        if self.shuffle == "full":
            return None
        if self.shuffle == "none":
            return 2
        rows = max(high - low for low, high in pairwise(self.bounds(n_workers)))
        whole, rest = divmod(rows, self._block.width)
        streams = whole + 2 * (rest > 0)
        # a stream holds two windows while it changes from one to the next
        return 2 * self._block.blocks_per_window * streams

    def bounds(self, n_workers: int) -> list[int]:
        """Return the first row of each worker in a batch, and the end of the last worker's rows."""
        proportions, how = (
            ([1] * n_workers, "equally") if n_workers == 1 or not self._proportions else (self._proportions, "so")
        )
        if len(proportions) != n_workers or self.batch_size % sum(proportions):
            raise ValueError(f"a batch of {self.batch_size} cannot be shared {how} by {n_workers} workers")
        return [part * self.batch_size // sum(proportions) for part in accumulate(proportions, initial=0)]

    # -- cursor --------------------------------------------------------------------------------------

    def cursor(self, step: int) -> dict[str, Any]:
        """Return the position before ``step`` as a dict of a few integers, for a checkpoint."""
        identity = {name: value for name, value in self._identity.items() if _PLAIN.get(name) != value}
        return {**identity, "samples_seen": self.first_row - self.skip + step * self.batch_size}

    def seek(self, cursor: Mapping[str, Any]) -> int:
        """Move to the position of a cursor: set `first_row`, and return the step.

        If the batch size has changed since the cursor was written, the step begins with the next record of the epoch.
        With ``shuffle="block"``, the order itself depends on the batch size; the step then begins after the same number
        of records.

        Raises
        ------
        DataError
            The cursor belongs to other records or settings. The message names the difference.
        """
        known = {**_PLAIN, **cursor}
        is_resized = known["batch_size"] != self.batch_size
        for name, value in self._identity.items():
            if known.get(name) != value and not (is_resized and name in ("batch_size", "streams", "skip")):
                raise DataError(
                    "the position in the records of the checkpoint does not fit these records: "
                    f"{CALLED.get(name, name)} is {value!r}, it was {known.get(name)!r}. Set it back, or start from "
                    "the values of the checkpoint alone by --init-from."
                )
        period = self._records.rows_per_epoch(known["batch_size"])
        epoch, row = divmod(int(known["skip"] + known["samples_seen"]), period)
        done = epoch * self.period + min(row, self.period) - self.skip
        step, rest = divmod(done, self.batch_size)
        self.first_row = self.skip + (0 if self.shuffle == "block" else rest)
        return step

    @cached_property
    def _identity(self) -> dict[str, Any]:
        identity = {
            # version 1: each group reads a range of the file; version 2: a range of the shuffled blocks
            "version": 2 if self.shuffle == "block" and self.n_groups > 1 else 1,
            "fingerprint": self.fingerprint,
            "shuffle": self.shuffle,
            "batch_size": self.batch_size,
            "skip": self.skip,
            "last_batch": self.last_batch,
        }
        if self.shuffle != "none":
            identity["seed"] = self.seed
        if self.shuffle == "block":
            identity |= {"streams": self._block.streams, "window": self.window, "deal": self._block.assignment_digest}
        return identity
