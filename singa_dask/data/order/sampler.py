"""Sampler: the records of batch t of a worker group, as a pure function of a few integers.

There is no state except a cache of the windows in use: any step of any epoch can be computed, for any number of
workers, with the same result. So a cursor is a few integers, and a resumed or resized run reads the same records.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from singa_dask.data.order.shuffle import permutation
from singa_dask.errors import DataError

__all__ = ["CANONICAL_STREAMS", "LastBatch", "Sampler", "Shuffle"]

LastBatch = Literal["wrap", "drop_last", "pad"]
Shuffle = Literal["none", "block", "full"]
Ids = npt.NDArray[np.int64]

# divisible by 1, 2, 3, 4, 6, 8, 12, 16 and 24 workers
CANONICAL_STREAMS = 48
# omitted from cursors, so that older cursors without these keys remain valid
_PLAIN = {"last_batch": "wrap", "deal": ""}


class Sampler:
    """The infinite sequence of records that a worker group reads, batch by batch. Deterministic.

    Parameters
    ----------
    sizes : sequence of int
        Number of records of each block of the store.
    batch_size : int
        Records per step of the whole group.
    shuffle : {"none", "block", "full"}
        ``none``: file order. ``full``: a new permutation of all records in each epoch. ``block``: see Notes.
    seed : int
    group, n_groups : int
        Group k of G reads the records k*N//G to (k+1)*N//G, in the order of the deal if ``shuffle`` is ``block``, in
        file order otherwise.
    window : int
        For ``block``: number of blocks that a group mixes at a time, over all streams.
    streams : int, optional
        For ``block``: a divisor of the batch size. Default: the greatest common divisor with 48.
    deal : sequence of int, optional
        For ``block``: order in which blocks are assigned to the streams. Default: random by ``seed``.
    skip : int
        Records skipped at the start; rounded down to whole batches unless ``last_batch`` is ``wrap``.
    fingerprint : str
        Fingerprint of the store, with which a cursor is checked.
    last_batch : {"wrap", "drop_last", "pad"}
        How to treat the N mod B records at the end of an epoch of N. ``wrap``: the batch is completed with the first
        records of the next epoch. ``drop_last``: they are dropped; with shuffling other ones in each epoch.
        ``pad``: the batch is completed with the first records of the same epoch.
    shares : sequence of int
        Proportions in which the workers share a batch; equal if empty.

    Attributes
    ----------
    count : int
        Number of records of the group.
    period : int
        Rows per epoch, including padding.

    Raises
    ------
    DataError
        The group has no records, or less than a batch and ``last_batch`` is ``drop_last``.

    Notes
    -----
    Shuffling by blocks: each of the C streams supplies B / C consecutive rows of every batch. The blocks are
    concatenated in the order of the deal. In each epoch this sequence is divided into C spans, one per stream, as long
    as the rows that the stream supplies in that epoch. So every record is read once per epoch, and a block is read by
    one stream, or by two if a boundary of spans is within it. A stream reads its blocks in random order, and shuffles
    records within windows of blocks. Unless ``last_batch`` is ``wrap``, the spans are the same in all epochs, with
    about equal lengths; a stream drops the end of its span, or starts again at its beginning.
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
        deal: Sequence[int] | None = None,
        skip: int = 0,
        fingerprint: str = "",
        last_batch: LastBatch = "wrap",
        shares: Sequence[int] = (),
    ) -> None:
        self.batch_size, self.shuffle, self.seed, self._shares = batch_size, shuffle, seed, shares
        self.skip = skip if last_batch == "wrap" else skip - skip % batch_size
        self.fingerprint, self.last_batch, self.n_groups = fingerprint, last_batch, n_groups
        self.streams = streams or math.gcd(batch_size, CANONICAL_STREAMS)
        if batch_size % self.streams:
            raise ValueError(f"{self.streams} streams do not divide a batch of {batch_size}")
        self.window = window
        self._starts = np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))])
        total = int(self._starts[-1])
        self.start, end = group * total // n_groups, (group + 1) * total // n_groups
        self.count = end - self.start
        if not self.count:
            raise DataError(f"{total} records are too few for {n_groups} groups: group {group} would have none.")
        rest = self.count % batch_size
        self.period = self.count + {"wrap": 0, "drop_last": -rest, "pad": -self.count % batch_size}[last_batch]
        if not self.period:
            raise DataError(
                f"{self.count} records for group {group} are less than a batch of {batch_size}: last_batch: drop_last "
                "would leave out all of them. Expected a whole batch at least. Set last_batch to pad or wrap."
            )
        self._deal = None if deal is None else np.asarray(deal, np.int64)
        self._window_of: dict[int, tuple[tuple[int, int], int, Ids]] = {}
        self._pieces_of: dict[int, tuple[int, Ids, Ids]] = {}
        self._full: dict[int, Ids] = {}
        self._one_epoch: Ids = np.empty(0, np.int64)

    # -- batches -------------------------------------------------------------------------------------

    def ids(self, step: int) -> Ids:
        """Return the records of batch ``step`` of the group, (B,) int64."""
        return np.asarray(self.rows(step)[0])

    def rows(self, step: int, worker: int = 0, n_workers: int = 1, n_steps: int = 1) -> Ids:
        """Return the records that a worker reads in ``n_steps`` steps: its rows of each batch.

        Returns
        -------
        (n_steps, B / n_workers) int64
        """
        low, high = self.bounds(n_workers)[worker : worker + 2]
        if self.shuffle == "block":
            return self._streamed(step, n_steps, low, high)
        firsts = self.skip + (step + np.arange(n_steps)[:, None]) * self.batch_size
        if self.shuffle == "full":
            return self._shuffled(firsts + np.arange(low, high))
        # computing remainders is slow: one per batch is enough, except at the end of an epoch
        ids: Ids = self.start + firsts % self.period + np.arange(low, high)
        last = self.start + min(self.period, self.count)
        if ids[:, -1].max(initial=0) >= last:
            ids = self.start + (ids - self.start) % self.period % self.count
        return ids

    def epoch_of(self, step: int, worker: int = 0, n_workers: int = 1) -> Ids:
        """Return the epoch of each row of ``rows(step, worker, n_workers)``, (B / n_workers,) int64.

        The array is read-only, as it is shared by steps of the same epoch.
        """
        low, high = self.bounds(n_workers)[worker : worker + 2]
        first = self.skip + step * self.batch_size
        epoch = (first + low) // self.period
        if (first + high - 1) // self.period > epoch:
            rows: Ids = np.arange(first + low, first + high, dtype=np.int64)
            return rows // self.period
        if len(self._one_epoch) != high - low or self._one_epoch[0] != epoch:
            self._one_epoch = np.full(high - low, epoch, np.int64)
            self._one_epoch.flags.writeable = False
        return self._one_epoch

    def blocks_of(self, worker: int = 0, n_workers: int = 1) -> Ids:
        """Return the sorted blocks that a worker reads in its first epoch (``full``: in any epoch), (n,) int64."""
        return np.flatnonzero(self.block_rows(worker, n_workers))

    def block_rows(self, worker: int = 0, n_workers: int = 1) -> Ids:
        """Return the number of rows of each block that a worker reads in its first epoch (``full``: on average).

        Returns
        -------
        (n_blocks,) int64
            Rounded up where only an average is known.
        """
        low, high = self.bounds(n_workers)[worker : worker + 2]
        if self.shuffle == "block":
            return self._streamed_rows(low, high)
        starts = self._starts.clip(self.start, self.start + self.count) - self.start
        if self.shuffle == "full":
            return -(-np.diff(starts) * (high - low) // self.batch_size)
        again = np.arange(self.count, self.period)
        again = again[(again % self.batch_size >= low) & (again % self.batch_size < high)] % self.count
        batches, rest = np.divmod(starts.clip(None, self.period) - self.skip, self.batch_size)
        rows: Ids = np.diff(batches * (high - low) + (rest - low).clip(0, high - low))
        return rows + np.histogram(again, starts)[0] if len(again) else rows

    def spans(self, n_workers: int = 1) -> list[tuple[int, int, int]]:
        """Return which worker reads which span of the dealt blocks in the first epoch of a block order.

        Returns
        -------
        list of (worker, low, high)
            One per stream, in order, measured in records. A stream shared by workers is assigned to its main reader.
        """
        bounds, width = self.bounds(n_workers), self.batch_size // self.streams
        owners = (bisect(bounds, stream * width + width // 2) - 1 for stream in range(self.streams))
        return [(owner, *self._span(stream, 0)) for stream, owner in enumerate(owners)]

    def blocks_in_use(self, n_workers: int = 1) -> int | None:
        """Return the maximum number of blocks that a worker alternates between; None if it is unbounded."""
        if self.shuffle == "full":
            return None
        if self.shuffle == "none":
            return 2
        rows = max(high - low for low, high in pairwise(self.bounds(n_workers)))
        whole, rest = divmod(rows, self.batch_size // self.streams)
        streams = whole + 2 * (rest > 0)
        # a stream can be in transition from one window to the next
        return 2 * self._blocks_per_window * streams

    def bounds(self, n_workers: int) -> list[int]:
        """Return the first row of each worker in a batch, and the end of the last worker's rows."""
        shares, how = ([1] * n_workers, "equally") if n_workers == 1 or not self._shares else (self._shares, "so")
        if len(shares) != n_workers or self.batch_size % sum(shares):
            raise ValueError(f"a batch of {self.batch_size} cannot be shared {how} by {n_workers} workers")
        return [share * self.batch_size // sum(shares) for share in accumulate(shares, initial=0)]

    # -- cursor --------------------------------------------------------------------------------------

    def cursor(self, step: int) -> dict[str, Any]:
        """Return the position before ``step`` as a dict of a few integers, for a checkpoint."""
        identity = {name: value for name, value in self._identity.items() if _PLAIN.get(name) != value}
        return {**identity, "samples_seen": step * self.batch_size}

    def step_at(self, cursor: Mapping[str, Any]) -> int:
        """Return the step that a cursor refers to.

        Raises
        ------
        DataError
            The cursor was made with other records or settings. Names the difference.
        """
        known = {**_PLAIN, **cursor}
        for name, value in self._identity.items():
            if known.get(name) != value:
                raise DataError(
                    f"the cursor of the checkpoint does not fit these records: {name} is {value!r}, "
                    f"it was {known.get(name)!r}."
                )
        return int(cursor["samples_seen"]) // self.batch_size

    @cached_property
    def _identity(self) -> dict[str, Any]:
        identity = {
            # in version 1, groups of a block order read ranges of the file instead of ranges of the deal
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
            digest = "" if self._deal is None else hashlib.sha256(self._deal.astype("<i8").tobytes()).hexdigest()
            identity |= {"streams": self.streams, "window": self.window, "deal": digest[:16]}
        return identity

    # -- full ----------------------------------------------------------------------------------------

    def _shuffled(self, positions: Ids) -> Ids:
        epochs, offsets = np.divmod(positions, self.period)
        offsets %= self.count
        needed = range(int(epochs.min()), int(epochs.max()) + 1)
        kept = {epoch: self._full[epoch] for epoch in needed if epoch in self._full}
        ids = np.empty_like(positions)
        for epoch in needed:
            if epoch not in kept:
                kept[epoch] = self.start + permutation(self.count, self.seed, "full", epoch)
            here = epochs == epoch
            ids[here] = kept[epoch][offsets[here]]
        self._full = {needed[-1]: kept[needed[-1]]}
        return ids

    # -- block ---------------------------------------------------------------------------------------

    @property
    def _blocks_per_window(self) -> int:
        return max(1, -(-self.window // self.streams))

    def _streamed(self, step: int, n_steps: int, low: int, high: int) -> Ids:
        width = self.batch_size // self.streams
        ids = np.empty((n_steps, high - low), np.int64)
        for stream in range(low // width, -(-high // width)):
            rows = self._stream(stream, step * width, n_steps * width).reshape(n_steps, width)
            at = stream * width
            # a worker whose rows end within a stream gets a part of it
            first, last = max(low, at), min(high, at + width)
            ids[:, first - low : last - low] = rows[:, first - at : last - at]
        return ids

    def _stream(self, stream: int, first: int, n: int) -> Ids:
        """Return items ``first`` to ``first + n`` of a stream, across epochs and windows."""
        width = self.batch_size // self.streams
        parts, done = [], 0
        while done < n:
            item = first + done
            row = item // width * self.batch_size + stream * width + item % width
            epoch = (row + self.skip) // self.period
            offset = item - self._supplied(stream, epoch)
            n_items = min(n - done, self._supplied(stream, epoch + 1) - item)
            offset %= int(self._pieces(stream, epoch)[1][-1])
            start, window = self._find_window(stream, epoch, offset)
            part = window[offset - start : offset - start + n_items]
            parts.append(part)
            done += len(part)
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _supplied(self, stream: int, epoch: int) -> int:
        """Return the number of items that a stream supplies before an epoch (negative for skipped ones)."""
        width = self.batch_size // self.streams
        batches, rest = divmod(epoch * self.period - self.skip, self.batch_size)
        return batches * width + min(max(rest - stream * width, 0), width)

    def _supplied_up_to(self, stream: int, epoch: int) -> int:
        """Return the number of items that all earlier streams supply before an epoch."""
        width = self.batch_size // self.streams
        batches, rest = divmod(epoch * self.period - self.skip, self.batch_size)
        return stream * batches * width + min(rest, stream * width)

    def _find_window(self, stream: int, epoch: int, offset: int) -> tuple[int, Ids]:
        """Return first item and records of the window that contains item ``offset`` of a stream's epoch."""
        if stream in self._window_of:
            key, start, ids = self._window_of[stream]
            if key[0] == epoch and start <= offset < start + len(ids):
                return start, ids
        pieces, ends = self._pieces(stream, epoch)
        window = int(np.searchsorted(ends, offset, side="right")) // self._blocks_per_window
        chosen = pieces[window * self._blocks_per_window : (window + 1) * self._blocks_per_window]
        sizes = chosen[:, 1] - chosen[:, 0]
        before = np.cumsum(sizes) - sizes
        ids = np.repeat(chosen[:, 0] - before, sizes) + np.arange(int(sizes.sum()))
        ids = ids[permutation(len(ids), self.seed, "window", epoch, stream, window)]
        start = int(ends[window * self._blocks_per_window] - sizes[0])
        self._window_of[stream] = ((epoch, window), start, ids)
        return start, ids

    def _pieces(self, stream: int, epoch: int) -> tuple[Ids, Ids]:
        """Return the shuffled pieces of blocks of a stream's epoch as (first, end), and their cumulative lengths."""
        kept = self._pieces_of.get(stream)
        if kept is None or kept[0] != epoch:
            pieces = self._cut(*self._span(stream, epoch))
            pieces = pieces[permutation(len(pieces), self.seed, "blocks", epoch, stream)]
            kept = self._pieces_of[stream] = (epoch, pieces, np.cumsum(pieces[:, 1] - pieces[:, 0]))
        return kept[1], kept[2]

    def _span(self, stream: int, epoch: int) -> tuple[int, int]:
        """Return the span (low, high) of a stream in an epoch, in records of the deal."""
        ends = (stream, stream + 1)
        if self.last_batch == "wrap":
            low, high = (self._supplied_up_to(c, epoch + 1) - self._supplied_up_to(c, epoch) for c in ends)
            return self.start + low, self.start + high
        low, high = (c * self.count // self.streams for c in ends)
        # with fewer records than streams, streams share records
        return self.start + low, self.start + max(high, low + 1)

    def _streamed_rows(self, low: int, high: int) -> Ids:
        width = self.batch_size // self.streams
        rows = np.zeros(len(self._starts) - 1, np.int64)
        for stream in range(low // width, -(-high // width)):
            pieces = self._cut(*self._span(stream, 0))
            blocks = np.searchsorted(self._starts, pieces[:, 0], side="right") - 1
            part = min(high, (stream + 1) * width) - max(low, stream * width)
            np.add.at(rows, blocks, -(-(pieces[:, 1] - pieces[:, 0]) * part // width))
        return rows

    def _cut(self, low: int, high: int) -> Ids:
        """Return the pieces (first, end) of blocks that make up records ``low`` to ``high`` of the deal."""
        firsts, ends, lengths = self._dealt
        begin = int(np.searchsorted(lengths, low, side="right"))
        stop = int(np.searchsorted(lengths, high, side="left")) + 1
        pieces = np.stack([firsts[begin:stop], ends[begin:stop]], axis=1)
        before = lengths[begin:stop] - (pieces[:, 1] - pieces[:, 0])
        pieces[:, 1] -= (lengths[begin:stop] - high).clip(0)
        pieces[:, 0] += (low - before).clip(0)
        return pieces[pieces[:, 1] > pieces[:, 0]]

    @cached_property
    def _dealt(self) -> tuple[Ids, Ids, Ids]:
        """First and end record of each non-empty block in the order of the deal, and cumulative lengths."""
        n = len(self._starts) - 1
        deal = permutation(n, self.seed, "deal") if self._deal is None else self._deal
        if not np.array_equal(np.sort(deal), np.arange(n)):
            raise DataError(f"the deal has {len(deal)} entries. Expected a permutation of the {n} blocks.")
        firsts, ends = self._starts[:-1][deal], self._starts[1:][deal]
        used = ends > firsts
        return firsts[used], ends[used], np.cumsum((ends - firsts)[used])
