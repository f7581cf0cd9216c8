"""Loader: the batches of one worker, read ahead by one thread, in memory bounded in bytes.

Several batches are made at once (a slab). In file order they are views of the blocks; in a shuffled order the
blocks in use lie in one table, and all rows of a slab are taken from it by one call. Without prefetching the same
is done in the caller's thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask.data.bad_records import BadLog, BadPolicy, BadRecord, Mender
from singa_dask.data.order import Order
from singa_dask.data.reader import BlockReader
from singa_dask.data.store import Arrays, Store
from singa_dask.data.table import Table, empty_arrays
from singa_dask.errors import Aborted

__all__ = ["Batch", "Loader"]

SLAB_BYTES = 4 << 20
MOST_STEPS = 64
KEPT_BYTES = 1 << 30
TABLE_BYTES = 256 << 20


class Batch(NamedTuple):
    """Rows of one worker in one step.

    Attributes
    ----------
    arrays : dict of str to ndarray
        (B / n_workers, *shape) of each field, each record contiguous. They may be used until the next batch is
        asked for, and may be views that cannot be written.
    ids : (B / n_workers,) int64
        The records, by their number in the store; those that took the place of bad ones too.
    """

    arrays: Arrays
    ids: npt.NDArray[np.int64]


@dataclass
class _Slab:
    """Batches that are read at once: their rows in ``buffers``, or views of blocks where a batch lies in one."""

    first_step: int
    buffers: Arrays
    batches: list[Batch]
    error: BaseException | None = None
    # what is bad, by the place of the batch that wanted it
    bad: dict[int, list[BadRecord]] = field(default_factory=dict)


class Loader:
    """Reads the batches of one worker of a group, one after another.

    Parameters
    ----------
    store : Store
        Read by this loader alone while it lives.
    order : Order
    worker, n_workers : int
        Place in the group.
    bytes_bound : int
        Most bytes of batches that are read ahead (one slab at least), and of blocks kept for the next epoch.
    prefetch : bool
        Read ahead in a thread.
    name : str
        The thread is called ``prefetch-<name>``.
    policy : BadPolicy, optional
        What to do about records that cannot be read; they are errors when it is not given.
    host_names : collection of str
        Of the host that reads; see `BlockReader`.

    Attributes
    ----------
    reader : BlockReader
    bad : BadLog
        Bad records that the batches so far have wanted.
    wait_s : float
        Seconds that callers of `next` waited for records.
    """

    def __init__(
        self,
        store: Store,
        order: Order,
        worker: int = 0,
        n_workers: int = 1,
        *,
        bytes_bound: int = 64 << 20,
        prefetch: bool = True,
        name: str = "data",
        policy: BadPolicy | None = None,
        host_names: Collection[str] = (),
    ) -> None:
        self.store, self.order = store, order
        self.worker, self.n_workers = worker, n_workers
        self.name = name
        self.prefetch = prefetch
        self.bytes_bound = bytes_bound
        self.wait_s = 0.0
        rows = order.batch_size // n_workers
        batch_bytes = rows * sum(field.size_bytes for field in store.schema.values())
        # two slabs fit into the bound: one in use, one on its way
        self._slab_steps = max(1, min(MOST_STEPS, min(SLAB_BYTES, bytes_bound // 2) // max(batch_bytes, 1)))
        self._slab_bytes = self._slab_steps * batch_bytes
        # a batch may cross the border of two blocks
        least, most_bytes = (2, bytes_bound) if order.shuffle == "none" else (1, KEPT_BYTES)
        policy = policy or BadPolicy()
        tolerant = policy.on_error != "raise"
        self.reader = BlockReader(
            store, least, most_bytes, prefetch, lambda: self._stop, tolerant=tolerant, labels=policy.labels,
            host_names=host_names,
        )  # fmt: skip
        self.bad = BadLog(store.url, policy.most(store.count), store.tail)
        self._mender = Mender(self.reader, policy)
        self._bad_ahead = set(self.bad.records)
        self._table: Table | None = None
        self._ahead = (0, np.empty((0, rows), np.int64))
        self._step = 0
        self._slab: _Slab | None = None
        self._spare: list[Arrays] = []
        self._queue: deque[_Slab] = deque()
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stop = self._ended = False

    @property
    def bytes_read(self) -> int:
        """Bytes of the blocks that were read."""
        return self.reader.bytes_read

    # -- the caller's side -------------------------------------------------------------------------

    def next(self) -> Batch:
        """Return the next batch.

        Raises
        ------
        DataError
            Names URL and block of what could not be read, or says that too much could not.
        Aborted
            Another thread closed the loader.
        """
        started = time.perf_counter()
        slab = self._slab
        if slab is None or self._step >= slab.first_step + len(slab.batches):
            self._slab = None
            slab = self._slab = self._next_slab(slab)
        self.wait_s += time.perf_counter() - started
        if slab.bad:
            self.bad.add(slab.bad.get(self._step - slab.first_step, []))
        batch = slab.batches[self._step - slab.first_step]
        self._step += 1
        return batch

    def epochs(self) -> npt.NDArray[np.int64]:
        """Return the epoch of each row of the last batch, (B / n_workers,) int64."""
        return self.order.epoch_of(self._step - 1, self.worker, self.n_workers)

    def cursor(self) -> dict[str, Any]:
        """Return where the next batch begins, as a few integers."""
        return self.order.cursor(self._step)

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Go on where a cursor was taken; nothing that lies before it is read.

        Raises
        ------
        DataError
            The cursor is of other records or of another order.
        """
        step = self.order.step_at(cursor)
        self._halt()
        self._step = step

    def rewind(self) -> None:
        """Go back to the first batch."""
        self._halt()
        self._step = 0

    def close(self) -> None:
        """Stop the thread, wait for it, and let go of all blocks. The store stays open."""
        self._halt()
        self.reader.clear()
        self._table = None
        self._spare.clear()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next_slab(self, used: _Slab | None) -> _Slab:
        if not self.prefetch or (self._at_hand and not self._thread):
            return self._read(self._step, used.buffers if used else None)
        if self._thread is None:
            self._stop = self._ended = False
            self._thread = threading.Thread(
                target=self._read_ahead, args=(self._step,), name=f"prefetch-{self.name}", daemon=True
            )
            self._thread.start()
        with self._ready:
            if used is not None:
                self._spare.append(used.buffers)
            while not self._queue:
                if self._stop:
                    raise Aborted(f"{self.store.url}: closed while a batch was waited for.")
                if self._ended:
                    self._thread = None
                    return self._read(self._step, self._spare.pop() if self._spare else None)
                self._ready.wait()
            slab = self._queue.popleft()
            self._ready.notify_all()
        if slab.error is not None:
            self._halt()
            raise slab.error
        return slab

    @property
    def _at_hand(self) -> bool:
        """Whether there is nothing to read ahead: all batches are views of a map that was gone through once."""
        return self.order.shuffle == "none" and self.store.mapped and len(self.reader.kept) == len(self.store.blocks)

    def _halt(self) -> None:
        """End the thread; what it has read ahead is dropped."""
        thread = self._thread
        if thread is not None:
            with self._ready:
                self._stop = True
                self._ready.notify_all()
            thread.join()
        self._thread = None
        self._queue.clear()
        self._slab = None
        self._bad_ahead = set(self.bad.records)

    # -- the thread's side -------------------------------------------------------------------------

    def _read_ahead(self, step: int) -> None:
        while self._wait_for_room() and not self._at_hand:
            with self._ready:
                spare = self._spare.pop() if self._spare else None
            try:
                slab = self._read(step, spare)
            except BaseException as error:  # handed to the caller, whatever it is
                slab = _Slab(step, {}, [], error)
            with self._ready:
                self._queue.append(slab)
                self._ready.notify_all()
            if slab.error is not None:
                return
            step += len(slab.batches)
        with self._ready:
            self._ended = True
            self._ready.notify_all()

    def _wait_for_room(self) -> bool:
        """Wait until another slab may be read; False if the loader is to stop."""
        with self._ready:
            # one slab more is in the caller's hands, and one is about to be read
            while not self._stop and (len(self._queue) + 2) * self._slab_bytes > self.bytes_bound and self._queue:
                self._ready.wait()
            return not self._stop

    def _read(self, step: int, spare: Arrays | None) -> _Slab:
        ids = self._ids(step)
        buffers = spare or empty_arrays(self.store, ids.size)
        if self.order.shuffle == "none":
            slab = _Slab(step, buffers, self._follow(ids, buffers))
        else:
            self._gather(ids.reshape(-1), buffers)
            slab = _Slab(step, buffers, _split(buffers, ids))
        if self.reader.bad:
            self._mend(slab)
        return slab

    def _mend(self, slab: _Slab) -> None:
        """Put other records in the places of bad ones."""
        for i, batch in enumerate(slab.batches):
            places = self.reader.bad_among(batch.ids)
            if not len(places):
                continue
            slab.bad[i] = self._mender.explain(batch.ids[places])
            self._bad_ahead.update(batch.ids[places].tolist())
            if len(self._bad_ahead) > self.bad.most:
                # the caller gets an error instead of this batch
                return
            n = len(batch.ids)
            arrays = {name: array[i * n : (i + 1) * n] for name, array in slab.buffers.items()}
            for name, array in batch.arrays.items():
                np.copyto(arrays[name], array)
            slab.batches[i] = Batch(arrays, self._mender.mend(batch.ids, places, arrays))

    def _ids(self, step: int) -> npt.NDArray[np.int64]:
        """Return the rows of a slab; the order is asked for more steps at a time than records are read."""
        first, ids = self._ahead
        if not first <= step <= first + len(ids) - self._slab_steps:
            n_steps = MOST_STEPS - MOST_STEPS % self._slab_steps
            first, ids = self._ahead = step, self.order.rows(step, self.worker, self.n_workers, n_steps)
        return ids[step - first : step - first + self._slab_steps]

    def _blocks_of(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.searchsorted(self.store.starts, ids, side="right") - 1

    def _follow(self, ids: npt.NDArray[np.int64], buffers: Arrays) -> list[Batch]:
        """Read records that follow each other: a view where a batch lies in one block, else copied in runs."""
        starts, n = self.store.starts, ids.shape[1]
        blocks, ends = self._blocks_of(ids[:, 0]), ids[:, -1] + 1
        whole = ((ends <= starts[blocks + 1]) & (ends - ids[:, 0] == n)).tolist()
        firsts = (ids[:, 0] - starts[blocks]).tolist()
        batches, read = [], self.reader.block
        for i, (block, first) in enumerate(zip(blocks.tolist(), firsts, strict=True)):
            if whole[i]:
                arrays = {name: array[first : first + n] for name, array in read(block).items()}
            else:
                arrays = {name: array[i * n : (i + 1) * n] for name, array in buffers.items()}
                self._copy_runs(ids[i], arrays)
            batches.append(Batch(arrays, ids[i]))
        return batches

    def _copy_runs(self, ids: npt.NDArray[np.int64], out: Arrays) -> None:
        starts, last = self.store.starts, self.order.start + self.order.count
        low = 0
        while low < len(ids):
            record = int(ids[low])
            block = int(starts.searchsorted(record, side="right")) - 1
            first = record - int(starts[block])
            high = min(len(ids), low + min(int(starts[block + 1]), last) - record)
            for name, array in self.reader.block(block).items():
                out[name][low:high] = array[first : first + high - low]
            low = high

    def _gather(self, ids: npt.NDArray[np.int64], out: Arrays) -> None:
        """Read records that lie anywhere."""
        blocks = self._blocks_of(ids)
        used = np.flatnonzero(np.bincount(blocks)).tolist()
        table = self._table = self._table or self._make_table()
        if len(used) > table.n_blocks:
            self._gather_by_block(ids, blocks, used, out)
            return
        for block in table.missing(used):
            table.put(block, self.reader.load(block))
        table.take(ids, blocks, out)

    def _make_table(self) -> Table:
        n_blocks = len(self.store.blocks)
        most = min(n_blocks, self.order.blocks_in_use(self.n_workers) or n_blocks)
        largest = max(block.n for block in self.store.blocks)
        fits = most * largest * sum(field.size_bytes for field in self.store.schema.values()) <= TABLE_BYTES
        return Table(self.store, most if fits else 0)

    def _gather_by_block(
        self, ids: npt.NDArray[np.int64], blocks: npt.NDArray[np.int64], used: list[int], out: Arrays
    ) -> None:
        """Read a few records of each of many blocks."""
        for block in used:
            places = np.flatnonzero(blocks == block)
            rows = ids[places] - self.store.starts[block]
            for name, array in self.reader.block(block).items():
                out[name][places] = array[rows]


def _split(buffers: Arrays, ids: npt.NDArray[np.int64]) -> list[Batch]:
    """Cut the buffers of a slab into batches."""
    n = ids.shape[1]
    return [
        Batch({name: array[i * n : (i + 1) * n] for name, array in buffers.items()}, ids[i]) for i in range(len(ids))
    ]
