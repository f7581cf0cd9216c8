"""Loader: the batches of one worker, prefetched by a thread within a bound on memory.

Batches are read in slabs of several. Without prefetching, slabs are read in the caller's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from contextvars import copy_context
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.fs.io_threads import IoThreads, decode_threads, io_threads
from singa_dask.data.loading.bad_records import BadLog, BadPolicy
from singa_dask.data.loading.budget import MemoryBudget, MemoryLimit
from singa_dask.data.loading.fetcher import Fetcher
from singa_dask.data.loading.reader import BlockReader
from singa_dask.data.loading.slabs import Batch, Slab, SlabReader
from singa_dask.data.order.sampler import Sampler
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays
from singa_dask.errors import Aborted

LOG = logging.getLogger(__name__)


class Loader:
    """Reads the batches of one worker of a group.

    Parameters
    ----------
    store : Store
        Must not be read by others while the loader is open.
    sampler : Sampler
    worker, n_workers : int
        Index of the worker in the group, and size of the group.
    bytes_bound : int, optional
        Maximum bytes of memory that the loader takes, see `MemoryBudget`. By default `budget.DEFAULT_BYTES`, or more if
        blocks are large.
    share : int, optional
        Maximum of that default, in bytes.
    prefetch : bool
        Whether to prefetch in a thread.
    name : str
        The thread is named ``prefetch-<name>``.
    policy : BadPolicy, optional
        How to treat bad records; they raise errors by default.
    host_names : collection of str
        Names of this host, see `BlockReader`.
    n_io_threads : int
        Number of threads of this process that read from the filesystem of the store, if it is remote.
    in_flight_bytes : int
        Maximum bytes of ``bytes_bound`` for blocks that are requested, or decoded ahead, and not yet used, at least one
        block; see `Fetcher`.

    Raises
    ------
    DataError
        One block, or two batches, take more than ``bytes_bound`` or ``share``.

    Attributes
    ----------
    budget : MemoryBudget
        How the memory is divided.
    reader : BlockReader
    bad : BadLog
        Bad records in the batches so far.
    wait_s : float
        Seconds that `next` has waited for records.
    """

    def __init__(
        self,
        store: Store,
        sampler: Sampler,
        worker: int = 0,
        n_workers: int = 1,
        *,
        bytes_bound: int | None = None,
        share: int | None = None,
        prefetch: bool = True,
        name: str = "data",
        policy: BadPolicy | None = None,
        host_names: Collection[str] = (),
        n_io_threads: int = 32,
        in_flight_bytes: int = 64 << 20,
    ) -> None:
        self.store, self.sampler = store, sampler
        self.worker, self.n_workers = worker, n_workers
        self.name = name
        self.prefetch = prefetch
        self.wait_s = 0.0
        limit = MemoryLimit(bytes_bound, share)
        ahead = prefetch and isinstance(store, RangeStore) and store.decodes_ahead
        self.budget = MemoryBudget.divide(limit, store, sampler, n_workers, in_flight_bytes, ahead)
        policy = policy or BadPolicy()
        self.bad = BadLog(store.url, policy.max_records(store.count), store.truncation)
        self._fetcher = self._make_fetcher(n_io_threads, decode_threads() if ahead else None)
        self.reader = self._make_reader(policy, host_names)
        self._slabs = SlabReader(self.reader, sampler, worker, n_workers, self.budget, policy, self.bad, self._fetcher)
        self._warn_of_shuffle()
        self._step = 0
        self._slab: Slab | None = None
        self._spare: list[Arrays] = []
        self._queue: deque[Slab] = deque()
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stop = self._ended = False
        self._is_aborted = False

    def _make_fetcher(self, n_threads: int, decoders: IoThreads | None) -> Fetcher | None:
        """Return what reads ahead from a remote filesystem, or decodes ahead; None if there is neither."""
        if not isinstance(self.store, RangeStore) or not (self.store.remote or decoders):
            return None
        threads = io_threads(self.store.blocks[0].file, n_threads)
        return Fetcher(self.store, threads, self.budget.in_flight, lambda: not self._is_wanted(), decoders)

    def _make_reader(self, policy: BadPolicy, host_names: Collection[str]) -> BlockReader:
        return BlockReader(
            self.store,
            self.budget.n_kept,
            self.prefetch,
            lambda: not self._is_wanted(),
            tolerant=policy.on_error != "raise",
            labels=policy.labels,
            host_names=host_names,
            fetcher=self._fetcher,
        )

    def _warn_of_shuffle(self) -> None:
        """Log what a shuffled order costs if the blocks that it alternates between do not fit in memory."""
        kind, budget, store = self.sampler.shuffle, self.budget, self.store
        if kind == "full" and self._fetcher is not None and fs.CACHE not in store.storage_options:
            low, high = self.sampler.bounds(self.n_workers)[self.worker : self.worker + 2]
            n_used = (high - low) * store.record_bytes
            n_read = self._slabs.random_bytes(budget.slab_steps * (high - low)) / budget.slab_steps
            if n_read > 2 * n_used:
                LOG.warning(
                    "%s: shuffle: full reads %.1f MiB for each batch of %.3g MiB, because the records do not fit in "
                    "memory_mb, %d, and blocks are read as a whole. Set shuffle: block, which reads each block once "
                    "per epoch.",
                    store.url,
                    n_read / 2**20,
                    n_used / 2**20,
                    budget.bytes_bound >> 20,
                )
        if kind == "block" and not store.mapped and self._slabs.n_kept < budget.n_in_use:
            LOG.warning(
                "%s: shuffle: block alternates between %d blocks, and memory_mb, %d, has room for %d of them: blocks "
                "are read again and again. Lower window, raise memory_mb, or write the records in smaller blocks.",
                store.url,
                budget.n_in_use,
                budget.bytes_bound >> 20,
                self._slabs.n_kept,
            )

    @property
    def bytes_read(self) -> int:
        """Bytes of the blocks that were read."""
        return self.reader.bytes_read

    # -- methods of the caller's thread --------------------------------------------------------------

    def next(self) -> Batch:
        """Return the next batch.

        Raises
        ------
        DataError
            A block cannot be read (names URL and block), or too many records are bad.
        Aborted
            Another thread called `abort` or `close`.
        """
        slab = self._slab
        if slab is None or self._step == slab.first_step + len(slab.batches):
            started = time.perf_counter()
            self._slab = None
            slab = self._slab = self._next_slab(slab)
            self.wait_s += time.perf_counter() - started
        index = self._step - slab.first_step
        if slab.bad:
            self.bad.add(slab.bad.get(index, []))
        self._step += 1
        return slab.batches[index]

    def start(self) -> None:
        """Start prefetching before the first call of `next`. Does nothing without prefetching."""
        if self.prefetch and self._thread is None and self._slab is None and not self._slabs.all_in_memory:
            self._start_thread()

    def wait(self) -> None:
        """Wait until the thread has a batch, or an error for `next`. Not counted in ``wait_s``."""
        with self._ready:
            while self._thread is not None and self._is_wanted() and not (self._queue or self._ended):
                self._ready.wait()

    def epochs(self) -> npt.NDArray[np.int64]:
        """Return the epoch of each row of the last batch, (B / n_workers,) int64."""
        return self.sampler.epoch_of(self._step - 1, self.worker, self.n_workers)

    @property
    def epoch(self) -> float:
        """Number of epochs read so far, fractional: 1.5 in the middle of the second one."""
        return (self.sampler.first_row + self._step * self.sampler.batch_size) / self.sampler.period

    def cursor(self) -> dict[str, Any]:
        """Return the position of the next batch, see `Sampler.cursor`."""
        return self.sampler.cursor(self._step)

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Continue at the position of a cursor, without reading earlier records.

        Raises
        ------
        DataError
            The cursor was made with other records or another order.
        """
        self._halt()
        self._step = self.sampler.seek(cursor)
        if self.sampler.shuffle == "block" and cursor["batch_size"] != self.sampler.batch_size:
            message = (
                "%s: shuffle: block orders records by batchsize, which was %d: in the rest of this epoch some are "
            )
            LOG.warning(message + "read again, and as many are left out.", self.store.url, cursor["batch_size"])

    def advance(self, n_batches: int) -> None:
        """Skip some batches without reading them, or go back by some if the number is negative."""
        step = self._step + n_batches
        self._halt()
        self._step = step

    def rewind(self) -> None:
        """Go back to the first batch."""
        self._halt()
        self._step = 0

    def abort(self) -> None:
        """End every present and future call of `next` and `wait`; called from any thread. Never waits for a read."""
        self._is_aborted = True
        with self._ready:
            self._ready.notify_all()
        self._wake_fetcher()

    def _wake_fetcher(self) -> None:
        if self._fetcher is not None:
            self._fetcher.wake()

    def close(self) -> None:
        """Stop the thread, wait for the read of a local file that it is in, and free all blocks.

        The store stays open.
        """
        self._halt()
        self._slabs.clear()
        self._spare.clear()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next_slab(self, used: Slab | None) -> Slab:
        if not self.prefetch or (self._slabs.all_in_memory and not self._thread):
            return self._slabs.read(self._step, used.buffers if used else None)
        if self._thread is None:
            self._start_thread()
        with self._ready:
            if used is not None:
                self._spare.append(used.buffers)
            while self._is_wanted() and not (self._queue or self._ended):
                self._ready.wait()
            if not self._is_wanted():
                raise Aborted(f"{self.store.url}: closed while waiting for a batch.")
            slab = self._queue.popleft() if self._queue else None
            self._ready.notify_all()
        if slab is None:  # the thread has ended: all blocks are in memory
            self._thread = None
            return self._slabs.read(self._step, self._spare.pop() if self._spare else None)
        if slab.error is not None:
            self._halt()
            raise slab.error
        return slab

    def _start_thread(self) -> None:
        thread = threading.Thread(
            target=copy_context().run, args=(self._read_ahead, self._step), name=f"prefetch-{self.name}", daemon=True
        )
        with self._ready:  # whoever halts the loader finds either no thread, or one that can be joined
            self._stop = self._ended = False
            thread.start()
            self._thread = thread

    def _halt(self) -> None:
        """Stop the thread and drop prefetched batches."""
        with self._ready:
            thread = self._thread
            self._stop = self._stop or thread is not None
            self._ready.notify_all()
        if thread is not None:
            self._wake_fetcher()
            thread.join()
        self._thread = None
        # reuse the buffers: allocating memory costs more than filling it
        self._spare += [slab.buffers for slab in self._queue if slab.buffers]
        self._queue.clear()
        self._slab = None
        self._slabs.rewind()

    # -- methods of the prefetching thread -----------------------------------------------------------

    def _read_ahead(self, step: int) -> None:
        while self._wait_for_room() and not self._slabs.all_in_memory:
            with self._ready:
                spare = self._spare.pop() if self._spare else None
            try:
                slab = self._slabs.read(step, spare)
            except BaseException as error:  # raised in the caller's thread
                slab = Slab(step, {}, [], error)
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
        """Wait until another slab fits the bound; returns False if the loader is stopping."""
        with self._ready:
            # plus the slab in use by the caller, and the one to be read
            while self._is_wanted() and self._is_full():
                self._ready.wait()
            return self._is_wanted()

    def _is_full(self) -> bool:
        n_bytes = (len(self._queue) + 2) * self.budget.slab_bytes
        return bool(self._queue) and n_bytes > self.budget.batches

    def _is_wanted(self) -> bool:
        """Return whether somebody still wants batches of the thread."""
        return not (self._stop or self._is_aborted)
