"""Sampler: the records of batch t of a worker group, as a pure function of a few integers.

There is no state except a cache of the windows in use: any step of any epoch can be computed, for any number of
workers, with the same result. So a cursor is a few integers, and a resumed or resized run reads the same records.
"""

from __future__ import annotations

import hashlib
import math
import threading
import zlib
from bisect import bisect
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from singa_dask.errors import DataError
from singa_dask.shown import plural

# Orders of records, and the random numbers that they are made of: pure functions of a seed and a purpose.
#
# Only the raw output of Philox is used, which NumPy guarantees not to change, so orders are stable across versions.


# fewer numbers are sorted as they are
MIN_PACKED = 64
LastBatch = Literal["wrap", "drop_last", "pad"]
Ids = npt.NDArray[np.int64]


class _Philox(threading.local):
    """A generator of this thread: to make one takes longer than to draw some numbers."""

    def __init__(self) -> None:
        self.bits: Any = np.random.Philox(0)
        self.state: Any = self.bits.state


_PHILOX = _Philox()


def _raw(n: int, seed: int, purpose: str, *numbers: int) -> npt.NDArray[np.uint64]:
    bits, state = _PHILOX.bits, _PHILOX.state
    state["state"]["key"][:] = seed & (1 << 64) - 1, zlib.crc32(purpose.encode())
    # the first word is the counter of the draws; the others identify what they are for
    state["state"]["counter"][:] = (0, *numbers, 0, 0, 0)[:4]
    bits.state = state
    return np.asarray(bits.random_raw(n), np.uint64)


def permutation(n: int, seed: int, purpose: str, *numbers: int) -> npt.NDArray[np.int64]:
    """Return a random permutation of 0..n-1.

    Parameters
    ----------
    n : int
    seed : int
    purpose : str
        Purpose of the permutation; those of different purposes are independent.
    numbers : up to three ints, not negative
        E.g. epoch, stream and window.

    Returns
    -------
    (n,) int64
    """
    return _argsort(_raw(n, seed, purpose, *numbers))


def _argsort(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the indices that sort numbers; equal ones, which are rare, keep their order."""
    if len(numbers) < MIN_PACKED:
        return np.argsort(numbers, kind="stable")
    # sorting numbers whose low bits are their indices takes a third of the time of sorting indices by numbers
    bits = len(numbers).bit_length()
    mask = np.uint64((1 << bits) - 1)
    keys = numbers & ~mask
    keys |= np.arange(len(numbers), dtype=np.uint64)
    keys.sort()
    high = keys >> np.uint64(bits)
    keys &= mask
    order = keys.view(np.int64)
    tied = np.flatnonzero(high[1:] == high[:-1])
    if len(tied):
        tied = np.union1d(tied, tied + 1)
        order[tied] = order[tied][np.argsort(numbers[order[tied]], kind="stable")]
    return order


def draw(n: int, seed: int, purpose: str, *numbers: int) -> int:
    """Return a uniform random integer from 0 to n-1; other arguments as in `permutation`."""
    return int(_raw(1, seed, purpose, *numbers)[0]) % n


def random_skip(seed: int, layer: str, group: int, max_skip: int) -> int:
    """Return the number of records that an input layer skips at the start, uniformly from 0 to ``max_skip``."""
    return draw(max_skip + 1, seed, f"skip {layer}", group)


class GroupRecords:
    """The records of one group and its epochs; arguments as in `Sampler`.

    Attributes
    ----------
    starts : (n_blocks + 1,) int64
        First record of each block of the store, and the total count.
    start, count : int
        First record of the group, or of ``span``, and number of records.
    batch_size : int
    period : int
        Rows per epoch, including padding.
    skip : int
        Records skipped at the start; whole batches unless ``last_batch`` is ``wrap``.
    last_batch : {"wrap", "drop_last", "pad"}

    Raises
    ------
    DataError
        The group has no records, or less than a batch and ``last_batch`` is ``drop_last``.
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
            raise DataError(
                f"{few}: last_batch: drop_last would drop all of them. Expected at least a whole batch. Set last_batch "
                "to pad or wrap."
            )
        self.skip = skip if last_batch == "wrap" else skip - skip % batch_size

    def rows_per_epoch(self, batch_size: int) -> int:
        """Return the rows of an epoch in batches of a size, including padding."""
        more = {"wrap": 0, "drop_last": -(self.count % batch_size), "pad": -self.count % batch_size}
        return self.count + more[self.last_batch]

    @classmethod
    def steps_per_epoch(cls, n: int, batch_size: int, n_groups: int, last_batch: LastBatch) -> Fraction:
        """Return in how many batches groups together read each of ``n`` records once."""
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


def keep_runs(order: Ids, runs: Ids) -> Ids:
    """Return an order of blocks in which those of a run follow each other, from where its first one was.

    Parameters
    ----------
    order : (n,) int64
        A permutation.
    runs : (n,) int64
        The run that each block belongs to.
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
        Number of blocks that the group mixes at a time, over all streams.
    assignment : (n_blocks,) int64, optional
        Order in which blocks are assigned to the streams. Default: random by ``seed``.
    runs : (n_blocks,) int64, optional
        See `Sampler`.

    Attributes
    ----------
    streams : int
    width : int
        Rows of a stream in each batch.
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
        """Short hash of a given assignment; empty for a random one."""
        order = self._assignment
        return "" if order is None else hashlib.sha256(order.astype("<i8").tobytes()).hexdigest()[:16]

    def rows(self, step: int, n_steps: int, low: int, high: int) -> Ids:
        """Return rows ``low`` to ``high`` of ``n_steps`` batches, (n_steps, high - low) int64."""
        width, first = self.width, step * self.width
        streams = range(low // width, -(-high // width))
        items = np.empty((len(streams), n_steps * width), np.int64)
        for stream, row in zip(streams, items, strict=True):
            n = 0
            # across epochs and windows
            while n < len(row):
                begin, run = self._run(stream, first + n)
                part = run[first + n - begin : first + len(row) - begin]
                row[n : n + len(part)] = part
                n += len(part)
        ids = items.reshape(len(streams), n_steps, width).swapaxes(0, 1).reshape(n_steps, -1)
        # a worker whose rows begin or end within a stream gets a part of it
        return ids[:, low - streams.start * width :][:, : high - low]

    def _run(self, stream: int, item: int) -> tuple[int, Ids]:
        """Return the items of a stream's epoch that are in the same window as an item: the first one, and records."""
        kept = self._run_of.get(stream)
        if kept is not None and kept[0] <= item < kept[0] + len(kept[1]):
            return kept
        row = item // self.width * self._records.batch_size + stream * self.width + item % self.width
        epoch = (row + self._records.skip) // self._records.period
        # a stream that supplies more items than it has starts again
        offset = (item - self._supplied(stream, epoch)) % int(self._pieces(stream, epoch)[1][-1])
        start, window = self._window(stream, epoch, offset)
        begin = item - (offset - start)
        # another thread may replace what is kept
        run = self._run_of[stream] = begin, window[: self._supplied(stream, epoch + 1) - begin]
        return run

    def _supplied(self, stream: int, epoch: int) -> int:
        """Return the number of items that a stream supplies before an epoch (negative for skipped ones)."""
        return self._supplied_up_to(stream + 1, epoch) - self._supplied_up_to(stream, epoch)

    def _supplied_up_to(self, stream: int, epoch: int) -> int:
        """Return the number of items that all earlier streams supply before an epoch."""
        width = self.width
        batches, rest = divmod(epoch * self._records.period - self._records.skip, self._records.batch_size)
        return stream * batches * width + min(rest, stream * width)

    def _window(self, stream: int, epoch: int, offset: int) -> tuple[int, Ids]:
        """Return first item and records of the window that contains item ``offset`` of a stream's epoch."""
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
        """Return the shuffled pieces of blocks of a stream's epoch as (first, end), and their cumulative lengths."""
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
        """Return the span (low, high) of a stream in an epoch, in records of the assignment."""
        ends = (stream, stream + 1)
        if self._records.last_batch == "wrap":
            low, high = (self._supplied_up_to(c, epoch + 1) - self._supplied_up_to(c, epoch) for c in ends)
            return self._records.start + low, self._records.start + high
        low, high = (c * self._records.count // self.streams for c in ends)
        # with fewer records than streams, streams share records
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
        """Return the pieces (first, end) of blocks that make up records ``low`` to ``high`` of the assignment."""
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
        """First and end record of each non-empty block in the order of the assignment, and cumulative lengths."""
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


Shuffle = Literal["none", "block", "full"]

# divisible by 1, 2, 3, 4, 6, 8, 12, 16 and 24 workers
CANONICAL_STREAMS = 48
# what messages call the facts of a cursor that are no keys of a job
CALLED = {
    "fingerprint": "the version of the data",
    "deal": "the order of blocks by hosts",
    "version": "the way in which worker groups share records",
    "skip": "the number of records skipped at the start",
}
# omitted from cursors, so that older cursors without these keys remain valid
_PLAIN = {"last_batch": "wrap", "deal": ""}
MAX_STEPS = 64


def advanced(cursor: Mapping[str, Any], n_batches: int) -> dict[str, Any]:
    """Return a cursor `n_batches` after another one."""
    return {**cursor, "samples_seen": cursor["samples_seen"] + n_batches * cursor["batch_size"]}


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
        Group k of G reads the records k*N//G to (k+1)*N//G, in the order of the assignment if ``shuffle`` is ``block``,
        in file order otherwise.
    window : int
        For ``block``: number of blocks that a group mixes at a time, over all streams.
    streams : int, optional
        For ``block``: a divisor of the batch size. Default: the greatest common divisor with 48; with ``runs`` the
        largest divisor of that which is not above ``window``.
    assignment : sequence of int, optional
        For ``block``: order in which blocks are assigned to the streams. Default: random by ``seed``.
    runs : (n_blocks,) int64, optional
        For ``block``: `Store.runs`. A stream reads the blocks of a run one after the other.
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
    span : (int, int), optional
        First record, and the one after the last, in place of those of the group; not for ``block``.
    apart : bool
        For ``none``, and a number of records that is whole batches: each worker reads a part of the records, not of
        each batch. So each block is read by one worker, and a batch has other records for each number of workers.

    Attributes
    ----------
    count : int
        Number of records of the group.
    period : int
        Rows per epoch, including padding.
    first_row : int
        Row with which step 0 begins.

    Raises
    ------
    DataError
        The group has no records, or less than a batch and ``last_batch`` is ``drop_last``.

    Notes
    -----
    Shuffling by blocks: each of the C streams supplies B / C consecutive rows of every batch. The blocks are
    concatenated in the order of the assignment. In each epoch this sequence is divided into C spans, one per stream, as
    long as the rows that the stream supplies in that epoch. So every record is read once per epoch, and a block is read
    by one stream, or by two if a boundary of spans is within it. A stream reads its blocks in random order, and
    shuffles records within windows of blocks. Unless ``last_batch`` is ``wrap``, the spans are the same in all epochs,
    with about equal lengths; a stream drops the end of its span, or starts again at its beginning.
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
        shares: Sequence[int] = (),
        span: tuple[int, int] | None = None,
        apart: bool = False,
    ) -> None:
        self._apart = apart
        self.batch_size, self.shuffle, self.seed, self._shares = batch_size, shuffle, seed, shares
        self.fingerprint, self.last_batch, self.n_groups = fingerprint, last_batch, n_groups
        if not streams:
            most = math.gcd(batch_size, CANONICAL_STREAMS)
            # each stream holds an open run
            limit = most if runs is None else max(window, 1)
            streams = max(n for n in range(1, most + 1) if most % n == 0 and n <= limit)
        if batch_size % streams:
            raise ValueError(f"{streams} streams do not divide a batch of {batch_size}")
        self._records = GroupRecords(sizes, batch_size, group, n_groups, skip, last_batch, span)
        self.start, self.count = self._records.start, self._records.count
        self.period, self.skip = self._records.period, self._records.skip
        # where step 0 begins: changed if a run goes on with another batch size
        self.first_row = self.skip
        self.window = window
        order = None if assignment is None else np.asarray(assignment, np.int64)
        self._block = BlockOrder(self._records, seed, streams, window, order, runs)
        self._full = FullOrder(self._records, seed)

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
            return self._block.rows(step, n_steps, low, high)
        if self._apart:
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
        if (first + high - 1) // self.period == epoch:  # as nearly always: without a division for each row
            return np.full(high - low, epoch, np.int64)
        rows: Ids = np.arange(first + low, first + high, dtype=np.int64)
        return rows // self.period

    def block_rows(self, worker: int = 0, n_workers: int = 1) -> Ids:
        """Return the number of rows of each block that a worker reads in its first epoch (``full``: on average).

        Returns
        -------
        (n_blocks,) int64
            Rounded up where only an average is known.
        """
        low, high = self.bounds(n_workers)[worker : worker + 2]
        if self.shuffle == "block":
            return self._block.block_rows(low, high)
        starts = self._records.starts.clip(self.start, self.start + self.count) - self.start
        if self._apart:
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
        """Return which worker reads which span of the assigned blocks in the first epoch of a block order.

        Returns
        -------
        list of (worker, low, high)
            One per stream, in order, measured in records. A stream shared by workers is assigned to its main reader.
        """
        bounds, width = self.bounds(n_workers), self._block.width
        owners = (bisect(bounds, stream * width + width // 2) - 1 for stream in range(self._block.streams))
        return [(owner, *self._block.span(stream, 0)) for stream, owner in enumerate(owners)]

    def blocks_in_use(self, n_workers: int = 1) -> int | None:
        """Return the maximum number of blocks that a worker alternates between; None if it is unbounded."""
        if self.shuffle == "full":
            return None
        if self.shuffle == "none":
            return 2
        rows = max(high - low for low, high in pairwise(self.bounds(n_workers)))
        whole, rest = divmod(rows, self._block.width)
        streams = whole + 2 * (rest > 0)
        # a stream can be in transition from one window to the next
        return 2 * self._block.blocks_per_window * streams

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
        return {**identity, "samples_seen": self.first_row - self.skip + step * self.batch_size}

    def seek(self, cursor: Mapping[str, Any]) -> int:
        """Return the step that a cursor refers to.

        If its batches were of another size, that step begins with the next record of the epoch; in an order by blocks,
        which depends on the size, after as many records.

        Raises
        ------
        DataError
            The cursor was made with other records or settings. Names the difference.
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
            # in version 1, groups of a block order read ranges of the file instead of ranges of the assignment
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
