"""Order: which records make batch t of a worker group; pure arithmetic on a few integers.

Nothing is kept but the windows in use: any step of any epoch can be asked for, by any number of workers, and the
answer is the same. So a cursor is a handful of integers, and a resumed or resized run reads the same records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from singa_dask.data.shuffle import permutation
from singa_dask.errors import DataError

__all__ = ["CANONICAL_STREAMS", "Order", "Shuffle"]

Shuffle = Literal["none", "block", "full"]
Ids = npt.NDArray[np.int64]

# divisible by 1, 2, 3, 4, 6, 8, 12, 16 and 24 workers
CANONICAL_STREAMS = 48


class Order:
    """The endless sequence of records that one worker group reads, batch by batch.

    Parameters
    ----------
    sizes : sequence of int
        Records of each block of the store.
    batch_size : int
        Records of one step of the whole group.
    shuffle : {"none", "block", "full"}
        ``none``: as stored, from the last record on to the first. ``full``: all records anew in each epoch.
        ``block``: see Notes.
    seed : int
    group, n_groups : int
        Group k of G reads the records k*N//G up to (k+1)*N//G.
    window : int
        ``block``: how many blocks a group mixes at a time, over all streams.
    streams : int, optional
        ``block``: a divisor of the batch size; the greatest common one with 48 when it is not given.
    deal : sequence of int, optional
        ``block``: order in which blocks are dealt to the streams; a random one by ``seed`` when not given.
    skip : int
        Records passed over at the start.
    fingerprint : str
        The store's, so that a cursor tells whether the records are still the same.

    Notes
    -----
    ``block``: row j of a batch belongs to stream j // (B / C). All blocks lie in one line, in the order of the deal.
    In each epoch the line is cut into C pieces, as long as the rows of that epoch that each stream has to supply:
    so each record comes once an epoch whatever the numbers are, and a block is needed by one stream, or by two
    where a cut goes through it. A stream takes its blocks in random order and shuffles within a window of them.
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
    ) -> None:
        self.batch_size, self.shuffle, self.seed, self.skip = batch_size, shuffle, seed, skip
        self.fingerprint = fingerprint
        self.streams = streams or math.gcd(batch_size, CANONICAL_STREAMS)
        if batch_size % self.streams:
            raise ValueError(f"{self.streams} streams do not divide a batch of {batch_size}")
        self.window = window
        starts = np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))])
        total = int(starts[-1])
        self.start, end = group * total // n_groups, (group + 1) * total // n_groups
        self.count = end - self.start
        if not self.count:
            raise DataError(f"{total} records are too few for {n_groups} groups: group {group} would read none.")
        self._starts = starts.clip(self.start, end)
        self._deal = deal
        self._window_of: dict[int, tuple[tuple[int, int], int, Ids]] = {}
        self._pieces_of: dict[int, tuple[int, Ids, Ids]] = {}
        self._full: dict[int, Ids] = {}

    # -- what a step contains --------------------------------------------------------------------

    def ids(self, step: int) -> Ids:
        """Return the records of batch ``step`` of the group, (B,) int64."""
        ids: Ids = self.rows(step)[0]
        return ids

    def rows(self, step: int, worker: int = 0, n_workers: int = 1, n_steps: int = 1) -> Ids:
        """Return what one worker reads in some steps: its rows of each batch.

        Returns
        -------
        (n_steps, B / n_workers) int64
        """
        if self.batch_size % n_workers:
            raise ValueError(f"a batch of {self.batch_size} cannot be shared equally by {n_workers} workers")
        low = worker * self.batch_size // n_workers
        high = (worker + 1) * self.batch_size // n_workers
        if self.shuffle == "block":
            return self._streamed(step, n_steps, low, high)
        first = self.skip + step * self.batch_size
        positions = first + np.arange(n_steps)[:, None] * self.batch_size + np.arange(low, high)
        if self.shuffle == "none":
            return np.asarray(self.start + positions % self.count, np.int64)
        return self._shuffled(positions)

    def blocks_in_use(self, n_workers: int = 1) -> int | None:
        """Return how many blocks a worker comes back to at most; None if it may be any of them."""
        if self.shuffle == "full":
            return None
        if self.shuffle == "none":
            return 2
        streams = -(-self.streams // n_workers) + (self.streams % n_workers > 0)
        # each stream may be leaving one window for the next
        return 2 * self._blocks_per_window * streams

    # -- cursor --------------------------------------------------------------------------------------

    def cursor(self, step: int) -> dict[str, Any]:
        """Return where ``step`` begins, as a few integers for a checkpoint."""
        return {**self._identity, "samples_seen": step * self.batch_size}

    def step_at(self, cursor: Mapping[str, Any]) -> int:
        """Return the step that a cursor stands before.

        Raises
        ------
        DataError
            Names what differs between the run that made the cursor and this one.
        """
        for name, value in self._identity.items():
            if cursor.get(name) != value:
                raise DataError(
                    f"the cursor of the checkpoint does not fit these records: {name} is {value!r}, "
                    f"it was {cursor.get(name)!r}."
                )
        return int(cursor["samples_seen"]) // self.batch_size

    @cached_property
    def _identity(self) -> dict[str, Any]:
        identity = {
            "version": 1,
            "fingerprint": self.fingerprint,
            "shuffle": self.shuffle,
            "batch_size": self.batch_size,
            "skip": self.skip,
        }
        if self.shuffle != "none":
            identity["seed"] = self.seed
        if self.shuffle == "block":
            identity |= {"streams": self.streams, "window": self.window}
        return identity

    # -- full ----------------------------------------------------------------------------------------

    def _shuffled(self, positions: Ids) -> Ids:
        epochs, places = np.divmod(positions, self.count)
        wanted = range(int(epochs.min()), int(epochs.max()) + 1)
        kept = {epoch: self._full[epoch] for epoch in wanted if epoch in self._full}
        ids = np.empty_like(positions)
        for epoch in wanted:
            if epoch not in kept:
                kept[epoch] = self.start + permutation(self.count, self.seed, "full", epoch)
            here = epochs == epoch
            ids[here] = kept[epoch][places[here]]
        self._full = {wanted[-1]: kept[wanted[-1]]}
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
            # a worker whose rows end inside a stream takes its part of it
            first, last = max(low, at), min(high, at + width)
            ids[:, first - low : last - low] = rows[:, first - at : last - at]
        return ids

    def _stream(self, stream: int, first: int, n: int) -> Ids:
        """Return items ``first`` to ``first + n`` of what a stream supplies, over epochs and windows."""
        width = self.batch_size // self.streams
        parts, done = [], 0
        while done < n:
            item = first + done
            row = item // width * self.batch_size + stream * width + item % width
            epoch = (row + self.skip) // self.count
            place = item - self._supplied(stream, epoch)
            start, window = self._find_window(stream, epoch, place)
            part = window[place - start : place - start + n - done]
            parts.append(part)
            done += len(part)
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _supplied(self, stream: int, epoch: int) -> int:
        """Return how many items a stream supplies before an epoch begins (below 0 for skipped ones)."""
        width = self.batch_size // self.streams
        batches, rest = divmod(epoch * self.count - self.skip, self.batch_size)
        return batches * width + min(max(rest - stream * width, 0), width)

    def _find_window(self, stream: int, epoch: int, place: int) -> tuple[int, Ids]:
        """Return the window of a stream's epoch that holds item ``place``: its first item, and its records."""
        if stream in self._window_of:
            key, start, ids = self._window_of[stream]
            if key[0] == epoch and start <= place < start + len(ids):
                return start, ids
        pieces, ends = self._pieces(stream, epoch)
        window = int(np.searchsorted(ends, place, side="right")) // self._blocks_per_window
        chosen = pieces[window * self._blocks_per_window : (window + 1) * self._blocks_per_window]
        sizes = chosen[:, 1] - chosen[:, 0]
        before = np.cumsum(sizes) - sizes
        ids = np.repeat(chosen[:, 0] - before, sizes) + np.arange(int(sizes.sum()))
        ids = ids[permutation(len(ids), self.seed, "window", epoch, stream, window)]
        start = int(ends[window * self._blocks_per_window] - sizes[0])
        self._window_of[stream] = ((epoch, window), start, ids)
        return start, ids

    def _pieces(self, stream: int, epoch: int) -> tuple[Ids, Ids]:
        """Return the pieces of blocks that are a stream's in an epoch, shuffled: (first, end) of each; ends summed."""
        kept = self._pieces_of.get(stream)
        if kept is None or kept[0] != epoch:
            needs = [self._supplied(c, epoch + 1) - self._supplied(c, epoch) for c in range(stream + 1)]
            end = sum(needs)
            pieces = self._cut(end - needs[-1], end)
            pieces = pieces[permutation(len(pieces), self.seed, "blocks", epoch, stream)]
            kept = self._pieces_of[stream] = (epoch, pieces, np.cumsum(pieces[:, 1] - pieces[:, 0]))
        return kept[1], kept[2]

    def _cut(self, low: int, high: int) -> Ids:
        """Return records ``low`` to ``high`` of the line of dealt blocks, as (first, end) of each piece."""
        firsts, ends, line = self._line
        begin = int(np.searchsorted(line, low, side="right"))
        stop = int(np.searchsorted(line, high, side="left")) + 1
        pieces = np.stack([firsts[begin:stop], ends[begin:stop]], axis=1)
        before = line[begin:stop] - (pieces[:, 1] - pieces[:, 0])
        pieces[:, 1] -= (line[begin:stop] - high).clip(0)
        pieces[:, 0] += (low - before).clip(0)
        return pieces[pieces[:, 1] > pieces[:, 0]]

    @cached_property
    def _line(self) -> tuple[Ids, Ids, Ids]:
        """First and end record of each block that this group reads, as dealt, and the summed lengths."""
        n = len(self._starts) - 1
        deal = permutation(n, self.seed, "deal") if self._deal is None else np.asarray(self._deal, np.int64)
        if not np.array_equal(np.sort(deal), np.arange(n)):
            raise ValueError(f"a deal must name each of the {n} blocks once")
        firsts, ends = self._starts[:-1][deal], self._starts[1:][deal]
        used = ends > firsts
        return firsts[used], ends[used], np.cumsum((ends - firsts)[used])
