"""Orders of the records of an epoch, shuffled fully or within windows.

The seed determines the order completely.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from singa_dask.data.random import permutation
from singa_dask.errors import DataError
from singa_dask.shown import plural

LastBatch = Literal["wrap", "drop_last", "pad"]
Ids = npt.NDArray[np.int64]


class GroupRecords:
    """The records of one worker group, and the group's epochs. See `Sampler` for the arguments.

    Attributes
    ----------
    starts : (n_blocks + 1,) int64
        Index of the first record of each block of the store, and the number of records.
    start, count : int
        Index of the first record of the group (or of ``span``), and the number of records.
    batch_size : int
    period : int
        Number of rows in an epoch, including padding.
    skip : int
        Number of records that are skipped at the start. If ``last_batch`` is not ``wrap``, it is a multiple of the
        batch size.
    last_batch : {"wrap", "drop_last", "pad"}

    Raises
    ------
    DataError
        The group has no records, or fewer than a batch if ``last_batch`` is ``drop_last``.
    """

    def __init__(
        self,
        sizes: Sequence[int] | npt.NDArray[np.int64],
        batch_size: int,
        group: int,
        n_groups: int,
        skip: int,
        last_batch: LastBatch,
        span: tuple[int, int] | None = None,
    ) -> None:
        self.batch_size, self.last_batch = batch_size, last_batch
        self.starts = np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))])
        total = int(self.starts[-1])
        self.start, end = span or (group * total // n_groups, (group + 1) * total // n_groups)
        self.count = end - self.start
        if not self.count:
            few = plural(total, "record is", "records are")
            raise DataError(f"{few} too few for {n_groups} groups: group {group} would have none.")
        self.period = self.rows_per_epoch(batch_size)
        if not self.period:
            few = f"group {group} has {plural(self.count, 'record')}, less than a batch of {batch_size}"
            raise DataError(f"{few}, and last_batch: drop_last would drop them all. Set last_batch to pad or wrap.")
        self.skip = skip if last_batch == "wrap" else skip - skip % batch_size

    def rows_per_epoch(self, batch_size: int) -> int:
        """Return the number of rows in an epoch with this batch size, including padding."""
        more = {"wrap": 0, "drop_last": -(self.count % batch_size), "pad": -self.count % batch_size}
        return self.count + more[self.last_batch]

    @classmethod
    def steps_per_epoch(cls, n: int, batch_size: int, n_groups: int, last_batch: LastBatch) -> Fraction:
        """Return the number of steps in which all groups together read each of ``n`` records once."""
        groups = (cls([n], batch_size, group, n_groups, 0, last_batch) for group in range(n_groups))
        return Fraction(max(group.period for group in groups), batch_size)


class FullOrder:
    """Full shuffling of the records of a group.

    Parameters
    ----------
    records : GroupRecords
    seed : int
    """

    def __init__(self, records: GroupRecords, seed: int) -> None:
        self._records, self._seed = records, seed
        # the last epoch used, and its order, in one tuple: threads that share this object replace both at once
        self._last = (-1, np.empty(0, np.int64))

    def ids(self, positions: Ids) -> Ids:
        """Return the indices of the records at ascending positions in the endless sequence of epochs.

        The result has the shape of ``positions``.
        """
        flat = positions.reshape(-1)
        period = self._records.period
        first, last = int(flat[0]) // period, int(flat[-1]) // period
        # find only the boundaries of epochs: computing the epoch of each position would take longer than reading the
        # record
        ends = np.searchsorted(flat, np.arange(first, last + 2) * period).tolist()
        parts = []
        for epoch, (low, high) in enumerate(pairwise(ends), first):
            offsets = flat[low:high] - epoch * period
            if period > self._records.count:
                offsets %= self._records.count
            parts.append(self._permutation(epoch)[offsets])
        return np.concatenate(parts).reshape(positions.shape)

    def _permutation(self, epoch: int) -> Ids:
        """Return all records in the order of an epoch. The latest order is cached."""
        known, order = self._last
        if known != epoch:
            order = permutation(self._records.count, self._seed, "full", epoch)
            order += self._records.start
            self._last = epoch, order
        return order


def keep_runs(order: Ids, runs: Ids) -> Ids:
    """Reorder blocks so that the blocks of each run are adjacent, at the place of the run's first block.

    Parameters
    ----------
    order : (n,) int64
        A permutation of the blocks.
    runs : (n,) int64
        Index of the run that each block belongs to.
    """
    _, first, run = np.unique(runs[order], return_index=True, return_inverse=True)
    ordered: Ids = order[np.lexsort((order, first[run]))]
    return ordered


class BlockOrder:
    """Shuffling by blocks; see the notes of `Sampler`.

    Parameters
    ----------
    records : GroupRecords
    seed : int
    streams : int
        A divisor of the batch size.
    window : int
        Number of blocks that the group mixes at a time, summed over all streams.
    assignment, runs : (n_blocks,) int64, optional
        See `Sampler`.

    Attributes
    ----------
    streams : int
    width : int
        Number of rows of a stream in each batch.
    blocks_per_window : int
        Number of blocks that a stream mixes at a time.
    """

    def __init__(
        self,
        records: GroupRecords,
        seed: int,
        streams: int,
        window: int,
        assignment: Ids | None,
        runs: Ids | None = None,
    ) -> None:
        self._records, self._seed, self._assignment, self._runs = records, seed, assignment, runs
        self.streams, self.width = streams, records.batch_size // streams
        self.blocks_per_window = max(1, -(-window // streams))
        self._run_of: dict[int, tuple[int, Ids]] = {}
        self._pieces_of: dict[int, tuple[int, Ids, Ids]] = {}

    @property
    def assignment_digest(self) -> str:
        """Short hash of the argument ``assignment``; empty if the assignment is random."""
        order = self._assignment
        return "" if order is None else hashlib.sha256(order.astype("<i8").tobytes()).hexdigest()[:16]

    def rows(self, step: int, n_steps: int, low: int, high: int) -> Ids:
        """Return the records in rows ``low`` to ``high`` of ``n_steps`` batches, (n_steps, high - low) int64."""
        width, first = self.width, step * self.width
        streams = range(low // width, -(-high // width))
        items = np.empty((len(streams), n_steps * width), np.int64)
        for stream, row in zip(streams, items, strict=True):
            n = 0
            # a row can extend across epochs and windows
            while n < len(row):
                begin, run = self._run(stream, first + n)
                part = run[first + n - begin : first + len(row) - begin]
                row[n : n + len(part)] = part
                n += len(part)
        ids = items.reshape(len(streams), n_steps, width).swapaxes(0, 1).reshape(n_steps, -1)
        # cut off the rows of other workers, in case this worker's rows begin or end within a stream
        return ids[:, low - streams.start * width :][:, : high - low]

    def _run(self, stream: int, item: int) -> tuple[int, Ids]:
        """Return the first item and the records of the window that contains an item of a stream."""
        kept = self._run_of.get(stream)
        if kept is not None and kept[0] <= item < kept[0] + len(kept[1]):
            return kept
        row = item // self.width * self._records.batch_size + stream * self.width + item % self.width
        epoch = (row + self._records.skip) // self._records.period
        # if a stream must supply more items than it has, it starts again at its beginning
        offset = (item - self._supplied(stream, epoch)) % int(self._pieces(stream, epoch)[1][-1])
        start, window = self._window(stream, epoch, offset)
        begin = item - (offset - start)
        # return the local `run`, because another thread may replace the entry
        run = self._run_of[stream] = begin, window[: self._supplied(stream, epoch + 1) - begin]
        return run

    def _supplied(self, stream: int, epoch: int) -> int:
        """Return the number of items that a stream supplies before an epoch; skipped items count negatively."""
        return self._supplied_up_to(stream + 1, epoch) - self._supplied_up_to(stream, epoch)

    def _supplied_up_to(self, stream: int, epoch: int) -> int:
        """Return the number of items that all earlier streams supply before an epoch."""
        width = self.width
        batches, rest = divmod(epoch * self._records.period - self._records.skip, self._records.batch_size)
        return stream * batches * width + min(rest, stream * width)

    def _window(self, stream: int, epoch: int, offset: int) -> tuple[int, Ids]:
        """Return the first item and the records of the window that contains item ``offset`` of an epoch."""
        pieces, ends = self._pieces(stream, epoch)
        window = int(ends.searchsorted(offset, side="right")) // self.blocks_per_window
        chosen = pieces[window * self.blocks_per_window : (window + 1) * self.blocks_per_window]
        sizes = chosen[:, 1] - chosen[:, 0]
        before = np.cumsum(sizes) - sizes
        ids = np.repeat(chosen[:, 0] - before, sizes)
        ids += np.arange(len(ids))
        ids = ids.take(permutation(len(ids), self._seed, "window", epoch, stream, window))
        return int(ends[window * self.blocks_per_window] - sizes[0]), ids

    def _pieces(self, stream: int, epoch: int) -> tuple[Ids, Ids]:
        """Return a stream's pieces of blocks (first, end) in the order of an epoch, and cumulative lengths."""
        kept = self._pieces_of.get(stream)
        if kept is None or kept[0] != epoch:
            pieces = self._cut(*self.span(stream, epoch))
            order = permutation(len(pieces), self._seed, "blocks", epoch, stream)
            if self._runs is not None:
                blocks = np.searchsorted(self._records.starts, pieces[:, 0], side="right") - 1
                order = keep_runs(order, self._runs[blocks])
            pieces = pieces[order]
            kept = self._pieces_of[stream] = (epoch, pieces, np.cumsum(pieces[:, 1] - pieces[:, 0]))
        return kept[1], kept[2]

    def span(self, stream: int, epoch: int) -> tuple[int, int]:
        """Return the records (low, high) of a stream in an epoch, counted in the order of the assignment."""
        ends = (stream, stream + 1)
        if self._records.last_batch == "wrap":
            low, high = (self._supplied_up_to(c, epoch + 1) - self._supplied_up_to(c, epoch) for c in ends)
            return self._records.start + low, self._records.start + high
        low, high = (c * self._records.count // self.streams for c in ends)
        # if there are fewer records than streams, some streams share a record
        return self._records.start + low, self._records.start + max(high, low + 1)

    def block_rows(self, low: int, high: int) -> Ids:
        """Count the records of each block in rows ``low`` to ``high`` of the first epoch: (n_blocks,) int64."""
        width = self.width
        rows = np.zeros(len(self._records.starts) - 1, np.int64)
        for stream in range(low // width, -(-high // width)):
            pieces = self._cut(*self.span(stream, 0))
            blocks = np.searchsorted(self._records.starts, pieces[:, 0], side="right") - 1
            part = min(high, (stream + 1) * width) - max(low, stream * width)
            np.add.at(rows, blocks, -(-(pieces[:, 1] - pieces[:, 0]) * part // width))
        return rows

    def _cut(self, low: int, high: int) -> Ids:
        """Return the pieces of blocks (first, end) that contain records ``low`` to ``high`` of the assignment."""
        firsts, ends, lengths = self._assigned
        if low >= high:
            return np.empty((0, 2), np.int64)
        begin = int(np.searchsorted(lengths, low, side="right"))
        stop = int(np.searchsorted(lengths, high, side="left")) + 1
        pieces = np.empty((stop - begin, 2), np.int64)
        pieces[:, 0], pieces[:, 1] = firsts[begin:stop], ends[begin:stop]
        pieces[0, 0] = ends[begin] - (lengths[begin] - low)
        pieces[-1, 1] -= lengths[stop - 1] - high
        return pieces

    @cached_property
    def _assigned(self) -> tuple[Ids, Ids, Ids]:
        """First and end record of each non-empty block, in assignment order, and their cumulative lengths."""
        n = len(self._records.starts) - 1
        order = self._assignment
        if order is None:
            order = permutation(n, self._seed, "deal")
            order = order if self._runs is None else keep_runs(order, self._runs)
        if not np.array_equal(np.sort(order), np.arange(n)):
            raise DataError(f"the assignment has {len(order)} entries. Expected a permutation of the {n} blocks.")
        firsts, ends = self._records.starts[:-1][order], self._records.starts[1:][order]
        used = ends > firsts
        return firsts[used], ends[used], np.cumsum((ends - firsts)[used])
