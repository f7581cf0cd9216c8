"""Loader: read the batches of one worker ahead, in the order of a sampler and within a memory limit.

A `BatchReader` reads several batches at a time into one `BatchBuffer`. The `BatchReader` runs in a separate thread,
or, if prefetching is disabled, in the caller's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from contextvars import copy_context
from typing import Any

from singa_dask import fs
from singa_dask.data.loading.bad_records import BadLog, BadPolicy
from singa_dask.data.loading.batch_reader import Batch, BatchBuffer, BatchReader
from singa_dask.data.loading.fetcher import Fetcher
from singa_dask.data.loading.memory_budget import IN_FLIGHT_BYTES, MemoryBudget
from singa_dask.data.loading.reader import BlockReader
from singa_dask.data.order import Ids
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays
from singa_dask.data.warn_once import warn_once
from singa_dask.errors import Aborted
from singa_dask.fs.io_threads import decode_threads, io_threads

logger = logging.getLogger(__name__)


class Loader:
    """Reads the batches of one worker of a group.

    Parameters
    ----------
    store : Store
        Store to read. Nothing else may read it while the loader is open.
    sampler : Sampler
    worker, n_workers : int
        Index of the worker in the group, and size of the group.
    bytes_bound : int, optional
        Maximum memory of the loader in bytes; see `MemoryBudget`. The default is `DEFAULT_BYTES`, or more if blocks are
        large.
    share : int, optional
        Upper limit of ``bytes_bound``, in bytes, if ``bytes_bound`` is not passed; see `MemoryBudget`.
    prefetch : bool
        Whether a thread reads batches ahead.
    name : str
        Name for the thread, which is called ``prefetch-<name>``.
    policy : BadPolicy, optional
        What to do with bad records. By default, a bad record is an error.
    host_names : collection of str
        Names of this host; see `BlockReader`.
    n_io_threads : int
        Number of threads of this process that read from the store's filesystem, if it is remote.
    in_flight_bytes : int
        Maximum number of bytes of blocks that are requested or decoded ahead of use; see `Fetcher`. One block is
        always allowed.
    warns : bool
        Whether to log the warnings of the store (once in a process), and a warning if the order of the records makes
        reading slow.

    Raises
    ------
    DataError
        The memory limit, ``bytes_bound`` or ``share``, has no room for one block or for two batches.

    Attributes
    ----------
    budget : MemoryBudget
        How the memory is divided.
    reader : BlockReader
    bad : BadLog
        Bad records in the batches so far.
    wait_s : float
        Seconds that `next` has waited for records.
    n_ahead : int
        Number of batches that the caller has taken from `next`, but not yet computed. The
        caller sets this number. `epoch`, `cursor` and `advance` refer to the current step.
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
        in_flight_bytes: int = IN_FLIGHT_BYTES,
        warns: bool = True,
    ) -> None:
        self.store, self.sampler = store, sampler
        self.worker, self.n_workers = worker, n_workers
        self.name = name
        self.prefetch = prefetch
        self.wait_s = 0.0
        self.n_ahead = 0
        policy = policy or BadPolicy()
        self.budget = MemoryBudget(store, sampler, n_workers, prefetch, bytes_bound, share, in_flight_bytes)
        if self.budget.n_runs:
            store.limit_runs(self.budget.n_runs)
        self.bad = BadLog(store.url, policy.max_records(store.count), store.truncation)
        self._fetcher: Fetcher | None = None
        if isinstance(store, RangeStore) and (store.remote or self.budget.decodes_ahead):
            threads = io_threads(store.blocks[0].file, n_io_threads)
            decoders = decode_threads() if self.budget.decodes_ahead else None
            self._fetcher = Fetcher(store, threads, self.budget.in_flight, self._is_cancelled, decoders)
        self.reader = BlockReader(
            store,
            policy,
            self.budget.n_kept,
            prefetch,
            self._is_cancelled,
            host_names,
            self._fetcher,
            self.budget.resident_bytes,
        )
        self._batches = BatchReader(self.reader, sampler, worker, n_workers, self.budget, self.bad)
        self._step = 0
        self._buffer: BatchBuffer | None = None
        self._spare: list[Arrays] = []
        self._queue: deque[BatchBuffer | BaseException] = deque()
        # RLock is written in C, so a signal handler cannot raise between acquiring the lock and entering the body
        self._lock = threading.RLock()
        self._ready = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._stop = self._ended = False
        self._is_aborted = False
        if warns:
            for text in store.warnings() if worker == 0 else ():
                warn_once(logger, text)
            self._warn_of_shuffle()

    def _warn_of_shuffle(self) -> None:
        """Warn that shuffling is slow, if the blocks from which it draws records do not fit in memory."""
        kind, budget, store, n_kept = self.sampler.shuffle, self.budget, self.store, self._batches.n_kept
        if kind == "full" and self._fetcher is not None and fs.CACHE not in store.storage_options:
            low, high = self.sampler.bounds(self.n_workers)[self.worker : self.worker + 2]
            n_used, n_blocks = (high - low) * store.record_bytes, len(store.blocks)
            # expected number of distinct blocks for random records
            n_blocks_used = n_blocks * (1 - (1 - 1 / n_blocks) ** (budget.buffer_steps * (high - low)))
            block_bytes = sum(block.length for block in store.blocks) / n_blocks
            n_read = n_blocks_used * (1 - n_kept / n_blocks) * block_bytes / budget.buffer_steps
            if n_read > 2 * n_used:
                logger.warning(
                    "%s: shuffle: full reads %.1f MiB for each batch of %.3g MiB, because the records do not fit in "
                    "memory_mb, %d, and blocks are read as a whole. Set shuffle: block, which reads each block once "
                    "per epoch.",
                    store.url,
                    n_read / 2**20,
                    n_used / 2**20,
                    budget.bytes_bound >> 20,
                )
        if kind == "block" and budget.n_runs < budget.runs_in_use:
            logger.warning(
                "%s: shuffle: block alternates between %d row groups, and memory_mb, %d, has room for %d of them: row "
                "groups are read again and again. Lower window, raise memory_mb, or write smaller row groups.",
                store.url,
                budget.runs_in_use,
                budget.bytes_bound >> 20,
                budget.n_runs,
            )
        elif kind == "block" and not store.mapped and n_kept < budget.n_in_use:
            logger.warning(
                "%s: shuffle: block alternates between %d blocks, and memory_mb, %d, has room for %d of them: blocks "
                "are read again and again. Lower window, raise memory_mb, or write the records in smaller blocks.",
                store.url,
                budget.n_in_use,
                budget.bytes_bound >> 20,
                n_kept,
            )

    # -- methods of the caller's thread --------------------------------------------------------------

    def next(self) -> Batch:
        """Return the next batch.

        Raises
        ------
        DataError
            A block cannot be read, or too many records are bad. The message names URL and block.
        Aborted
            Another thread called `abort` or `close`.
        """
        buffer = self._buffer
        if buffer is None or self._step == buffer.first_step + len(buffer.batches):
            started = time.perf_counter()
            self._buffer = None
            buffer = self._buffer = self._next_buffer(buffer)
            self.wait_s += time.perf_counter() - started
        index = self._step - buffer.first_step
        if buffer.bad:
            self.bad.add(buffer.bad.get(index, []))
        self._step += 1
        return buffer.batches[index]

    def start(self) -> None:
        """Start prefetching before the first call of `next`. Without prefetching, do nothing."""
        if self.prefetch and self._thread is None and self._buffer is None and not self._batches.all_in_memory:
            self._start_thread()

    def wait(self) -> None:
        """Wait until the thread has read a batch, or has failed. `next` raises the error.

        This wait is not added to ``wait_s``.
        """
        with self._lock:
            self._ready.wait_for(lambda: not self._thread or self._is_cancelled() or self._queue or self._ended)

    def epochs(self) -> Ids:
        """Return the epoch of each row of the last batch, (B / n_workers,) int64."""
        return self.sampler.epoch_of(self._step - 1, self.worker, self.n_workers)

    @property
    def epoch(self) -> float:
        """Number of epochs read so far, as a fraction: 1.5 in the middle of the second epoch."""
        step = self._step - self.n_ahead
        return (self.sampler.first_row + step * self.sampler.batch_size) / self.sampler.period

    def cursor(self) -> dict[str, Any]:
        """Return the position of the next batch; see `Sampler.cursor`."""
        return self.sampler.cursor(self._step - self.n_ahead)

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Continue at a position that `cursor` has returned, without reading earlier records.

        Raises a `DataError` if the records or their order have changed.
        """
        self._halt()
        self._step, self.n_ahead = self.sampler.seek(cursor), 0
        if self.sampler.shuffle == "block" and cursor["batch_size"] != self.sampler.batch_size:
            logger.warning(
                "%s: with shuffle: block, the order of records depends on batchsize, which was %d before. In the "
                "rest of this epoch, some records are read twice, and as many are left out.",
                self.store.url,
                cursor["batch_size"],
            )

    def advance(self, n_batches: int) -> None:
        """Skip batches without reading them; a negative number goes back."""
        self._halt()
        self._step += n_batches - self.n_ahead
        self.n_ahead = 0

    def rewind(self) -> None:
        """Return to the first batch."""
        self._halt()
        self._step = self.n_ahead = 0

    def abort(self) -> None:
        """End all current and future calls of `next` and `wait`, without waiting. Any thread may call it."""
        self._is_aborted = True
        with self._lock:
            self._ready.notify_all()
        if self._fetcher is not None:
            self._fetcher.wake()

    def close(self) -> None:
        """Stop the thread and free all blocks. A read of a local file that is in progress is finished first.

        The store stays open.
        """
        self._halt()
        self._batches.clear()
        self._spare.clear()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next_buffer(self, used: BatchBuffer | None) -> BatchBuffer:
        if not self.prefetch or (self._batches.all_in_memory and not self._thread):
            return self._batches.read(self._step, used.arrays if used else None)
        if self._thread is None:
            self._start_thread()
        with self._lock:
            if used is not None:
                self._spare.append(used.arrays)
            self._ready.wait_for(lambda: self._is_cancelled() or self._queue or self._ended)
            if self._is_cancelled():
                raise Aborted(f"{self.store.url}: closed while waiting for a batch.")
            buffer = self._queue.popleft() if self._queue else None
            self._ready.notify_all()
        if buffer is None:  # the thread has ended, because all blocks are in memory
            self._thread = None
            return self._batches.read(self._step, self._spare.pop() if self._spare else None)
        if isinstance(buffer, BaseException):
            self._halt()
            raise buffer
        return buffer

    def _start_thread(self) -> None:
        thread = threading.Thread(
            target=copy_context().run, args=(self._read_ahead, self._step), name=f"prefetch-{self.name}", daemon=True
        )
        with self._lock:  # lock, so that `_halt` finds either no thread or a started thread
            self._stop = self._ended = False
            thread.start()
            self._thread = thread

    def _halt(self) -> None:
        """Stop the thread and drop prefetched batches."""
        with self._lock:
            thread = self._thread
            self._stop = self._stop or thread is not None
            self._ready.notify_all()
        if thread is not None:
            if self._fetcher is not None:
                self._fetcher.wake()
            thread.join()
        self._thread = None
        # reuse the buffers, because allocating memory costs more than filling it
        self._spare += [buffer.arrays for buffer in self._queue if isinstance(buffer, BatchBuffer)]
        self._queue.clear()
        self._buffer = None
        self._batches.rewind()

    # -- methods of the prefetching thread -----------------------------------------------------------

    def _read_ahead(self, step: int) -> None:
        while self._wait_for_room() and not self._batches.all_in_memory:
            with self._lock:
                spare = self._spare.pop() if self._spare else None
            try:
                buffer: BatchBuffer | BaseException = self._batches.read(step, spare)
            except BaseException as error:  # the caller's thread raises this exception
                buffer = error
            with self._lock:
                self._queue.append(buffer)
                self._ready.notify_all()
            if isinstance(buffer, BaseException):
                return
            step += len(buffer.batches)
        with self._lock:
            self._ended = True
            self._ready.notify_all()

    def _wait_for_room(self) -> bool:
        """Wait until the memory limit permits another buffer; return False if the loader is stopping."""
        with self._lock:
            self._ready.wait_for(lambda: self._is_cancelled() or not self._is_full())
            return not self._is_cancelled()

    def _is_full(self) -> bool:
        # count two more buffers: the one that the caller uses, and the one that the thread will read next
        n_bytes = (len(self._queue) + 2) * self.budget.buffer_bytes
        return bool(self._queue) and n_bytes > self.budget.batches

    def _is_cancelled(self) -> bool:
        """Return whether the thread should stop."""
        return self._stop or self._is_aborted
