"""Loader: the batches of one worker, in the order of a sampler, read ahead by a thread within a bound on memory.

Several batches are read at a time, into one `BatchBuffer`, by a `BatchReader`. Without prefetching, that happens in the
caller's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.loading.fetcher import Fetcher, LookAhead, MemoryBudget
from singa_dask.data.loading.reader import BadLog, BadPolicy, BadRecord, BlockReader, empty_arrays
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays
from singa_dask.errors import Aborted
from singa_dask.fs.io_threads import decode_threads, io_threads
from singa_dask.fs.mapped_file import FAULT_BYTES, note_read
from singa_dask.fs.range_reader import LOOK_S

LOG = logging.getLogger(__name__)
Ids = npt.NDArray[np.int64]


class Batch(NamedTuple):
    """The rows of one worker in one step.

    Attributes
    ----------
    arrays : dict of str to ndarray
        (B / n_workers, *shape) per field, each record contiguous. Valid until the next call of `Loader.next`. May be
        read-only views.
    ids : (B / n_workers,) int64
        Indices of the records in the store, after replacement of bad ones.
    """

    arrays: Arrays
    ids: Ids


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
        Maximum bytes of memory that the loader takes, see `MemoryBudget`. By default `DEFAULT_BYTES`, or more if
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
    warns : bool
        Whether to log how many records the store leaves out, and what its order costs.

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
    n_ahead : int
        How many batches of `next` belong to later steps than the one that the caller computes, who sets it. `epoch`,
        `cursor` and `advance` are about that step.
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
        warns: bool = True,
    ) -> None:
        self.store, self.sampler = store, sampler
        self.worker, self.n_workers = worker, n_workers
        self.name = name
        self.prefetch = prefetch
        self.wait_s = 0.0
        self.n_ahead = 0
        policy = policy or BadPolicy()
        decodes_ahead = prefetch and isinstance(store, RangeStore) and store.decodes_ahead
        self.budget = MemoryBudget(bytes_bound, share, store, sampler, n_workers, in_flight_bytes, decodes_ahead)
        if self.budget.n_runs:
            store.limit_runs(self.budget.n_runs)
        self.bad = BadLog(store.url, policy.max_records(store.count), store.truncation)
        self._fetcher: Fetcher | None = None
        if isinstance(store, RangeStore) and (store.remote or decodes_ahead):
            threads = io_threads(store.blocks[0].file, n_io_threads)
            decoders = decode_threads() if decodes_ahead else None
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
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stop = self._ended = False
        self._is_aborted = False
        if warns:
            if worker == 0 and (left_out := store.describe_left_out()):
                LOG.warning(left_out)
            self._warn_of_shuffle()

    def _warn_of_shuffle(self) -> None:
        """Log what a shuffled order costs if the blocks that it alternates between do not fit in memory."""
        kind, budget, store, n_kept = self.sampler.shuffle, self.budget, self.store, self._batches.n_kept
        if kind == "full" and self._fetcher is not None and fs.CACHE not in store.storage_options:
            low, high = self.sampler.bounds(self.n_workers)[self.worker : self.worker + 2]
            n_used, n_blocks = (high - low) * store.record_bytes, len(store.blocks)
            # of random records, on average once memory is full
            n_blocks_used = n_blocks * (1 - (1 - 1 / n_blocks) ** (budget.buffer_steps * (high - low)))
            block_bytes = sum(block.length for block in store.blocks) / n_blocks
            n_read = n_blocks_used * (1 - n_kept / n_blocks) * block_bytes / budget.buffer_steps
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
        if kind == "block" and budget.n_runs < budget.runs_in_use:
            LOG.warning(
                "%s: shuffle: block alternates between %d row groups, and memory_mb, %d, has room for %d of them: row "
                "groups are read again and again. Lower window, raise memory_mb, or write smaller row groups.",
                store.url,
                budget.runs_in_use,
                budget.bytes_bound >> 20,
                budget.n_runs,
            )
        elif kind == "block" and not store.mapped and n_kept < budget.n_in_use:
            LOG.warning(
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
            A block cannot be read (names URL and block), or too many records are bad.
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
        """Start prefetching before the first call of `next`. Does nothing without prefetching."""
        if self.prefetch and self._thread is None and self._buffer is None and not self._batches.all_in_memory:
            self._start_thread()

    def wait(self) -> None:
        """Wait until the thread has a batch, or an error for `next`. Not counted in ``wait_s``."""
        with self._ready:
            self._ready.wait_for(lambda: not self._thread or self._is_cancelled() or self._queue or self._ended)

    def epochs(self) -> Ids:
        """Return the epoch of each row of the last batch, (B / n_workers,) int64."""
        return self.sampler.epoch_of(self._step - 1, self.worker, self.n_workers)

    @property
    def epoch(self) -> float:
        """Number of epochs read so far, fractional: 1.5 in the middle of the second one."""
        step = self._step - self.n_ahead
        return (self.sampler.first_row + step * self.sampler.batch_size) / self.sampler.period

    def cursor(self) -> dict[str, Any]:
        """Return the position of the next batch, see `Sampler.cursor`."""
        return self.sampler.cursor(self._step - self.n_ahead)

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Continue at the position of a cursor, without reading earlier records.

        Raises
        ------
        DataError
            The cursor was made with other records or another order.
        """
        self._halt()
        self._step, self.n_ahead = self.sampler.seek(cursor), 0
        if self.sampler.shuffle == "block" and cursor["batch_size"] != self.sampler.batch_size:
            LOG.warning(
                "%s: shuffle: block orders records by batchsize, which was %d: in the rest of this epoch some are "
                "read again, and as many are left out.",
                self.store.url,
                cursor["batch_size"],
            )

    def advance(self, n_batches: int) -> None:
        """Skip some batches without reading them, or go back by some if the number is negative."""
        self._halt()
        self._step += n_batches - self.n_ahead
        self.n_ahead = 0

    def rewind(self) -> None:
        """Go back to the first batch."""
        self._halt()
        self._step = self.n_ahead = 0

    def abort(self) -> None:
        """End every present and future call of `next` and `wait`; called from any thread. Never waits for a read."""
        self._is_aborted = True
        with self._ready:
            self._ready.notify_all()
        if self._fetcher is not None:
            self._fetcher.wake()

    def close(self) -> None:
        """Stop the thread, wait for the read of a local file that it is in, and free all blocks.

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
        with self._ready:
            if used is not None:
                self._spare.append(used.arrays)
            self._ready.wait_for(lambda: self._is_cancelled() or self._queue or self._ended)
            if self._is_cancelled():
                raise Aborted(f"{self.store.url}: closed while waiting for a batch.")
            buffer = self._queue.popleft() if self._queue else None
            self._ready.notify_all()
        if buffer is None:  # the thread has ended: all blocks are in memory
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
            if self._fetcher is not None:
                self._fetcher.wake()
            thread.join()
        self._thread = None
        # reuse the buffers: allocating memory costs more than filling it
        self._spare += [buffer.arrays for buffer in self._queue if isinstance(buffer, BatchBuffer)]
        self._queue.clear()
        self._buffer = None
        self._batches.rewind()

    # -- methods of the prefetching thread -----------------------------------------------------------

    def _read_ahead(self, step: int) -> None:
        while self._wait_for_room() and not self._batches.all_in_memory:
            with self._ready:
                spare = self._spare.pop() if self._spare else None
            try:
                buffer: BatchBuffer | BaseException = self._batches.read(step, spare)
            except BaseException as error:  # raised in the caller's thread
                buffer = error
            with self._ready:
                self._queue.append(buffer)
                self._ready.notify_all()
            if isinstance(buffer, BaseException):
                return
            step += len(buffer.batches)
        with self._ready:
            self._ended = True
            self._ready.notify_all()

    def _wait_for_room(self) -> bool:
        """Wait until another buffer fits the bound; returns False if the loader is stopping."""
        with self._ready:
            self._ready.wait_for(lambda: self._is_cancelled() or not self._is_full())
            return not self._is_cancelled()

    def _is_full(self) -> bool:
        # plus the buffer in use by the caller, and the one to be read
        n_bytes = (len(self._queue) + 2) * self.budget.buffer_bytes
        return bool(self._queue) and n_bytes > self.budget.batches

    def _is_cancelled(self) -> bool:
        """Return whether nobody wants batches of the thread any more."""
        return self._stop or self._is_aborted


@dataclass
class BatchBuffer:
    """Batches that are read together.

    Attributes
    ----------
    first_step : int
        Step of the first batch.
    arrays : dict of str to ndarray
        (n_batches * B / n_workers, *shape) per field, which are used again for later batches.
    batches : list of Batch
        Rows of ``arrays``, or views of a block that contains the whole batch.
    bad : dict of int to list of BadRecord
        Bad records by index of the batch.
    """

    first_step: int
    arrays: Arrays
    batches: list[Batch]
    bad: dict[int, list[BadRecord]] = field(default_factory=dict)


class BatchReader:
    """Makes the batches of one worker from blocks. Must be used by one thread at a time.

    In file order, batches are views of blocks where possible. In a shuffled order, the blocks in use are in a
    `BlockPool`, from which the records of many batches are gathered by one call.

    Parameters
    ----------
    reader : BlockReader
    sampler : Sampler
    worker, n_workers : int
        Index of the worker in the group, and size of the group.
    budget : MemoryBudget
    log : BadLog
        The bad records that have been handed out, with the maximum.

    Attributes
    ----------
    n_kept : int
        Number of blocks that are kept, the most recently used ones.
    """

    def __init__(
        self,
        reader: BlockReader,
        sampler: Sampler,
        worker: int,
        n_workers: int,
        budget: MemoryBudget,
        log: BadLog,
    ) -> None:
        self._reader, self._sampler, self._log, self._fetcher = reader, sampler, log, reader.fetcher
        self._store, self._starts = reader.store, reader.store.starts
        self._in_order = sampler.shuffle == "none"
        sizes = np.diff(self._starts)
        # records per block, if equal for all but the last block; else 0
        self._even = int(sizes[0]) if (sizes[:-1] == sizes[0]).all() and sizes[-1] <= sizes[0] else 0
        self._check_at = 0.0
        self._pool: BlockPool | None = None
        self._pool_blocks = budget.pool_blocks
        self.n_kept = reader.n_kept if self._in_order else budget.pool_blocks or reader.n_kept
        self._ahead = LookAhead(
            sampler,
            worker,
            n_workers,
            budget.buffer_steps,
            self._starts,
            self.n_kept,
            budget.horizon,
            reader.resident,
        )
        self.rewind()

    @property
    def all_in_memory(self) -> bool:
        """Whether all blocks are in memory and batches are views, so that there is nothing to prefetch."""
        return self._in_order and len(self._reader.kept) == len(self._store.blocks)

    def blocks_in_memory(self) -> list[int]:
        """Return the blocks in memory, the most recently used last."""
        return self._pool.blocks() if self._pool is not None and self._pool_blocks else list(self._reader.kept)

    def rewind(self) -> None:
        """Forget what was fetched, and the bad records of batches that were read but not handed out."""
        self._bad_ahead = set(self._log.records)
        self._follows = False
        if self._fetcher is not None:
            self._fetcher.drop()

    def clear(self) -> None:
        """Free all blocks."""
        self._reader.clear()
        self._pool = None

    def read(self, step: int, spare: Arrays | None) -> BatchBuffer:
        """Read the batches from a step on.

        Parameters
        ----------
        step : int
        spare : dict of str to ndarray, optional
            Arrays of a buffer that is no longer used, to be written again. Without them new ones are allocated.

        Raises
        ------
        DataError
            A block cannot be read. Names URL and block.
        """
        if self._fetcher is not None:
            if not self._follows:
                self._ahead.restart(step, self.blocks_in_memory())
                self._follows = True
            self._fetcher.follow(self._ahead, step)
        ids = self._ahead.ids(step)
        arrays = spare or empty_arrays(self._store, ids.size)
        if self._in_order:
            batches = self._consecutive(ids, arrays)
        else:
            self._gather(ids.reshape(-1), arrays)
            fields = [list(array.reshape(*ids.shape, *array.shape[1:])) for array in arrays.values()]
            batches = [dict(zip(arrays, rows, strict=True)) for rows in zip(*fields, strict=True)]
        if self._is_to_check(step, len(batches)):
            self._store.check_unchanged()
        buffer = BatchBuffer(step, arrays, [Batch(batch, rows) for batch, rows in zip(batches, ids, strict=True)])
        if self._reader.bad:
            self._substitute(buffer)
        return buffer

    def _is_to_check(self, step: int, n: int) -> bool:
        """Return whether to see that the files are the same: where an epoch ends, or blocks are views, which change."""
        first, size, period = self._sampler.first_row, self._sampler.batch_size, self._sampler.period
        if (first + step * size) // period == (first + (step + n) * size) // period:
            now = time.monotonic()
            if not self._store.mapped or now < self._check_at:
                return False
            self._check_at = now + LOOK_S
        return True

    def _blocks_of(self, ids: Ids) -> Ids:
        return ids // self._even if self._even else np.searchsorted(self._starts, ids, side="right") - 1

    def _consecutive(self, ids: Ids, buffers: Arrays) -> list[Arrays]:
        """Return batches in file order.

        Parameters
        ----------
        ids : (n_batches, n) int64
            Consecutive records, wrapping from the last record of the group to its first.
        buffers : dict of str to ndarray
            (n_batches * n, *shape) per field, for batches that are not within one block.
        """
        if self._store.mapped:
            note_read(sum(buffer.nbytes for buffer in buffers.values()))
        starts, n = self._starts, ids.shape[1]
        firsts = ids[:, 0]
        blocks = self._blocks_of(firsts)
        whole = (firsts + n <= starts[blocks + 1]) & (ids[:, -1] - firsts == n - 1)
        rows = (firsts - starts[blocks]).tolist()
        batches = []
        for i, (block, row, is_whole) in enumerate(zip(blocks.tolist(), rows, whole.tolist(), strict=True)):
            if is_whole:
                batches.append({name: array[row : row + n] for name, array in self._reader.block(block).items()})
            else:
                batches.append({name: array[i * n : (i + 1) * n] for name, array in buffers.items()})
                self._copy_runs(block, row, n, batches[-1])
        return batches

    def _copy_runs(self, block: int, row: int, n: int, out: Arrays) -> None:
        """Copy consecutive records, from a row of one block on."""
        low, last = 0, self._sampler.start + self._sampler.count
        while low < n:
            start, end = self._starts[block : block + 2].tolist()
            end = min(end, last)
            high = min(n, low + end - start - row)
            if high > low:
                for name, array in self._reader.block(block).items():
                    out[name][low:high] = array[row : row + high - low]
            low = high
            block, row = (block + 1, 0) if end < last else self._reader.locate(self._sampler.start)

    def _gather(self, ids: Ids, out: Arrays) -> None:
        """Copy records (n,) in any order to ``out``, (n, *shape) per field, reading the blocks not in memory."""
        pool = self._pool = self._pool or BlockPool(self._store, self._pool_blocks)
        rows = ids
        if not pool.is_complete:
            blocks = self._blocks_of(ids)
            used = np.flatnonzero(np.bincount(blocks)).tolist()
            if len(used) > pool.n_blocks:
                self._gather_by_block(ids, blocks, used, out)
                return
            for block in pool.missing(used):
                pool.put(block, self._reader.load(block))
            rows = pool.rows_of(ids, blocks)
        pool.take(rows, out)

    def _gather_by_block(self, ids: Ids, blocks: Ids, used: list[int], out: Arrays) -> None:
        """Copy records block by block, if too many blocks are needed for the pool."""
        # those in memory first, before others replace them; the look-ahead knows this order
        for block in sorted(used, key=lambda block: block not in self._reader.kept):
            chosen = np.flatnonzero(blocks == block)
            if self._store.mapped:
                # block by block: a large batch may touch all pages of the file
                note_read(len(chosen) * FAULT_BYTES)
            rows = ids[chosen] - self._starts[block]
            for name, array in self._reader.block(block).items():
                out[name][chosen] = array[rows]

    def _substitute(self, buffer: BatchBuffer) -> None:
        """Replace bad records."""
        for i, batch in enumerate(buffer.batches):
            rows = self._reader.bad_among(batch.ids)
            if not len(rows):
                continue
            buffer.bad[i] = self._reader.describe(batch.ids[rows])
            self._bad_ahead.update(batch.ids[rows].tolist())
            if len(self._bad_ahead) > self._log.max_bad:
                # `next` will raise an error for this batch
                return
            n = len(batch.ids)
            arrays = {name: array[i * n : (i + 1) * n] for name, array in buffer.arrays.items()}
            for name, array in batch.arrays.items():
                np.copyto(arrays[name], array)
            buffer.batches[i] = Batch(arrays, self._reader.replace(batch.ids, rows, arrays))


class BlockPool:
    """Blocks in one contiguous array per field, so that records of many blocks are gathered by one call.

    Parameters
    ----------
    store : Store
    n_blocks : int
        Capacity in blocks. If all blocks fit, the rows of the arrays are the records of the store.
    """

    def __init__(self, store: Store, n_blocks: int) -> None:
        self._rows = max(block.n for block in store.blocks)
        self.n_blocks = n_blocks
        self._holds_all = n_blocks == len(store.blocks)
        self._arrays = empty_arrays(store, store.count if self._holds_all else n_blocks * self._rows)
        self._starts = store.starts
        # row of a record minus its index in the store, by block
        self._shift = np.zeros(len(store.blocks), np.int64)
        self._slot_of: OrderedDict[int, int] = OrderedDict()

    @property
    def is_complete(self) -> bool:
        """Whether the pool contains all blocks of the store."""
        return self._holds_all and len(self._slot_of) == self.n_blocks

    def blocks(self) -> list[int]:
        """Return the blocks in the pool, the most recently used last."""
        return list(self._slot_of)

    def missing(self, blocks: list[int]) -> list[int]:
        """Return the ``blocks`` that are not in the pool; marks the others as recently used."""
        for block in blocks:
            if block in self._slot_of:
                self._slot_of.move_to_end(block)
        return [block for block in blocks if block not in self._slot_of]

    def put(self, block: int, arrays: Arrays) -> None:
        """Add a block, replacing the least recently used one if the pool is full."""
        is_full = len(self._slot_of) == self.n_blocks
        slot = self._slot_of.popitem(last=False)[1] if is_full else len(self._slot_of)
        first = int(self._starts[block]) if self._holds_all else slot * self._rows
        for name, array in arrays.items():
            self._arrays[name][first : first + len(array)] = array
        self._shift[block] = first - self._starts[block]
        self._slot_of[block] = slot

    def rows_of(self, ids: Ids, blocks: Ids) -> Ids:
        """Return the rows, (n,), of records (n,) in the arrays of the pool, which has the block of each."""
        return ids if self._holds_all else ids + self._shift[blocks]

    def take(self, rows: Ids, out: Arrays) -> None:
        """Copy rows, (n,) int64, to ``out``: (n, *shape) per field."""
        for name, array in self._arrays.items():
            # any other mode would need a temporary buffer
            array.take(rows, axis=0, out=out[name], mode="clip")
