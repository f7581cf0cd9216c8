"""What a loader reads ahead: MemoryBudget, how it divides its memory, and Fetcher, which reads the next blocks.

A `LookAhead` knows these blocks; many are read at the same time.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from singa_dask.data.sampler import MAX_STEPS, Sampler
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays, Block
from singa_dask.errors import Aborted, DataError
from singa_dask.fs.io_threads import IoThreads

# MemoryBudget: how a loader divides the memory that it may take. No I/O.


DEFAULT_BYTES = 1280 << 20
# batches that are read together
BUFFER_BYTES = 4 << 20
# more batches than these do not help: they would leave the caches of the CPU before they are used
BATCHES_BYTES = 8 << 20
BATCHES_STEPS = 2 * MAX_STEPS
# of a local file that are decoded ahead, beside one: more would leave the caches of the CPU before they are used
LOCAL_BLOCKS = 5
MIB = 1 << 20


class MemoryBudget:
    """The memory of a loader, and what each of its parts may take of it. The sum of the parts is within the bound.

    What is needed comes first: two buffers of batches, the block that is being read with what decodes it, and in file
    order those of which batches are views. What is left goes to the blocks that a shuffled order alternates between,
    then to more batches and blocks in flight, then to blocks that are kept for the next epoch: all, if they fit, else
    those that were read first. Of the most recently used ones the next epoch would find none.

    Blocks of a mapped store cost nothing: their pages belong to the system, which takes them back.

    Parameters
    ----------
    chosen : int or None
        Maximum bytes of a loader, if somebody chose them; else `DEFAULT_BYTES`, or more if blocks are large.
    share : int or None
        What they can be at most if nobody chose them: the loader's share of the memory of this process, if known.
    store : Store
    sampler : Sampler
    n_workers : int
        Number of workers of the group.
    in_flight : int
        Maximum bytes in flight.
    decodes_ahead : bool
        Whether blocks in flight are decoded, so that each takes `decoding_bytes` more.

    Raises
    ------
    DataError
        One block, or two batches, are larger than the bound.

    Attributes
    ----------
    bytes_bound : int
        Of all parts.
    buffer_steps : int
        Batches per buffer.
    buffer_bytes : int
        Of a buffer, and of blocks of which its batches are views.
    batches : int
        Bytes of all buffers: in use, waiting, and being read; two at least.
    in_flight : int
        Bytes of blocks that are requested from a remote filesystem, or decoded ahead, and not yet used; one block at
        least.
    pool_blocks : int
        Blocks in a `BlockPool`; 0 if those in use do not fit.
    n_kept : int
        Blocks that the reader keeps, the most recently used ones.
    resident_bytes : int
        Of the blocks that stay in memory beside these: the first ones that are read.
    horizon : int
        Steps whose blocks are read ahead.
    n_in_use : int
        Blocks that the order alternates between.
    n_runs : int
        Runs of blocks, see `Store.runs`, that are kept when they have been read in part; 0 if each block is a run.
    runs_in_use : int
        Runs that the order alternates between.
    """

    def __init__(
        self,
        chosen: int | None,
        share: int | None,
        store: Store,
        sampler: Sampler,
        n_workers: int,
        in_flight: int,
        decodes_ahead: bool = False,
    ) -> None:
        self._store, self._sampler, self._decodes_ahead = store, sampler, decodes_ahead
        self._in_order = sampler.shuffle == "none"
        bound = chosen or min(DEFAULT_BYTES, share or DEFAULT_BYTES)
        self._record = store.record_bytes
        self._largest = max(store.blocks, key=self._reading)
        self._decoded = 0 if store.mapped else self._record * max(block.n for block in store.blocks)
        # in file order a batch can span two blocks
        self._min_kept = 2 if self._in_order else 1
        batch = max(high - low for low, high in pairwise(sampler.bounds(n_workers))) * self._record
        self.buffer_steps = max(1, min(MAX_STEPS, min(BUFFER_BYTES, bound // 8) // max(batch, 1)))
        # batches in file order are views of blocks, or in buffers
        times = 2 if self._in_order and not store.mapped else 1
        self.buffer_bytes = self.buffer_steps * batch * times
        self.n_in_use = min(len(store.blocks), sampler.blocks_in_use(n_workers) or len(store.blocks))
        self.runs_in_use, self._run_bytes = self._runs()
        self.bytes_bound = bound if self._needed() <= bound else self._needed_beyond_bound(chosen, share)
        rest = self.bytes_bound - self._needed()
        self.n_runs = min(self.runs_in_use, 1 + rest // max(self._run_bytes, 1))
        rest -= max(self.n_runs - 1, 0) * self._run_bytes
        self.pool_blocks, pool_bytes = self._pool(rest - min(rest // 8, BATCHES_BYTES + in_flight))
        rest -= pool_bytes
        most = min(BATCHES_BYTES * times, BATCHES_STEPS // self.buffer_steps * self.buffer_bytes)
        more = max(0, min(most - 2 * self.buffer_bytes, rest // 2))
        self.batches = 2 * self.buffer_bytes + more
        rest -= more
        ahead = max(0, min(in_flight - self._one_in_flight, self._ahead(rest)))
        self.in_flight = self._one_in_flight + ahead
        self.horizon = self.in_flight // max(batch, 1)
        self.n_kept, self.resident_bytes = self._kept(rest - ahead)

    def _runs(self) -> tuple[int, int]:
        """Return between how many runs the order alternates, and what one takes in memory."""
        store = self._store
        if store.runs is None:
            return 0, 0
        of_run = np.bincount(store.runs, [block.length for block in store.blocks])
        # a stream has one run, and two blocks when it goes from one to the next
        of_full = int(np.count_nonzero(of_run))
        n = {"none": 1, "block": max(self.n_in_use // 2, 1), "full": of_full}[self._sampler.shuffle]
        return n, int(of_run.max()) if store.remote else 0

    def _reading(self, block: Block) -> int:
        """Return what one block takes while it is read: its bytes, and its records while they are decoded."""
        return 0 if self._store.mapped else block.length + decoding_bytes(self._store, block)

    def _needed(self) -> int:
        # batches that are handed out can be views of one more block
        kept = (self._min_kept + self._in_order) * self._decoded
        reading = 0 if self._decodes_ahead else self._reading(self._largest)
        return 2 * self.buffer_bytes + reading + kept + self._one_in_flight + self._run_bytes

    @property
    def _one_in_flight(self) -> int:
        if self._decodes_ahead:
            return self._reading(self._largest)
        return max(block.length for block in self._store.blocks) if self._store.remote else 0

    def _needed_beyond_bound(self, chosen: int | None, share: int | None) -> int:
        """Return the bytes that are needed, which exceed the bound; raise an error if so many may not be taken."""
        needed, most = self._needed(), chosen or share
        if most is None or (needed <= most and not chosen):
            return needed
        block, largest = self._largest, self._reading(self._largest)
        says = "memory_mb allows" if chosen else "the share of this reader of the memory of its process is"
        advice = "or write the records in smaller blocks" if largest > 2 * self.buffer_bytes else "or lower batchsize"
        raise DataError(
            f"{self._store.url}, block {block.id}: {block.n} records, {_mib(block.n * self._record)} MiB. Reading "
            f"takes {_mib(needed)} MiB of memory: a block of that size, and batches of {_mib(2 * self.buffer_bytes)} "
            f"MiB. {says} {most // MIB} MiB. Set memory_mb: {_mib(needed)}, {advice}."
        )

    def _ahead(self, free: int) -> int:
        """Return how many of ``free`` bytes may be in flight at most."""
        if self._store.remote:
            return free
        # of local files only decoding takes time: what is kept for the next epoch is worth more
        return min(free // 8, LOCAL_BLOCKS * self._one_in_flight) if self._decodes_ahead else 0

    def _kept(self, free: int) -> tuple[int, int]:
        """Divide ``free`` bytes, for more than the least: return `n_kept` and `resident_bytes`."""
        n_blocks = len(self._store.blocks)
        if self._store.mapped or self._store.count * self._record <= free:
            return n_blocks, 0
        if self._in_order and self._sampler.count * self._record > free:
            return self._min_kept, free
        # of a pool the reader reads substitutes for bad records alone
        resident = free - free // 8 if 0 < self.pool_blocks < n_blocks else 0
        return min(n_blocks, self._min_kept + (free - resident) // max(self._decoded, 1)), resident

    def _pool(self, free: int) -> tuple[int, int]:
        """Return how many blocks a pool of at most ``free`` bytes has, and its bytes."""
        store = self._store
        if self._in_order:
            return 0, 0
        if store.count * self._record <= free:
            return len(store.blocks), store.count * self._record
        n_bytes = self.n_in_use * max(block.n for block in store.blocks) * self._record
        return (self.n_in_use, n_bytes) if n_bytes <= free else (0, 0)


def decoding_bytes(store: Store, block: Block) -> int:
    """Return what the records of a block take while they are decoded."""
    return 2 * block.n * store.record_bytes


def _mib(n_bytes: int) -> int:
    """Return a size in MiB, rounded up."""
    return -(-n_bytes // MIB)


Ids = npt.NDArray[np.int64]


@dataclass(eq=False)
class _Fetch:
    """A block that is read, or waits for a thread.

    Attributes
    ----------
    step : int
        First of the steps that are read together and need it.
    length : int
        Bytes that are read.
    memory : int
        Bytes that count as in flight.
    result : dict of str to ndarray, list of memoryview, or None
        The block, or its bytes if it is not decoded ahead.
    error : BaseException or None
        Of the first read that failed.
    running : int
        Number of reads that have begun and not ended; decoding is part of them.
    started : float or None
        When the first read began.
    repeated : bool
        Whether it will not be requested again if it is late: it was, or its bytes are here.
    dropped : bool
        Whether nobody wants it any more.
    """

    block: int
    step: int
    length: int
    memory: int
    result: Arrays | list[memoryview] | None = None
    error: BaseException | None = None
    running: int = 0
    started: float | None = None
    repeated: bool = False
    dropped: bool = False

    @property
    def done(self) -> bool:
        return self.result is not None or (self.error is not None and not self.running)


class Fetcher:
    """Reads the blocks that come next by some threads, and hands them out in any order.

    At most ``bytes_bound`` bytes are in flight: requested and not yet handed out; one block at least. A block that is
    late when it is needed is read again, by another connection, and the first answer is used; see `IoThreads`.
    Blocks that were not announced are read as well. Those that take no request are read when they are needed.

    With ``decoders``, these threads decode blocks ahead, and read those that take no request. Others are decoded by
    the thread that needs them.

    Used by one thread at a time, but for `wake`.

    Parameters
    ----------
    store : RangeStore
    threads : IoThreads
    bytes_bound : int
    cancelled : callable
        Returns whether to stop waiting.
    decoders : IoThreads, optional
        See `decode_threads`.
    """

    def __init__(
        self,
        store: RangeStore,
        threads: IoThreads,
        bytes_bound: int,
        cancelled: Callable[[], bool] = lambda: False,
        decoders: IoThreads | None = None,
    ) -> None:
        self._store, self._threads, self._decoders = store, threads, decoders
        self._bytes_bound, self._cancelled = bytes_bound, cancelled
        self._ahead: LookAhead | None = None
        self._coming: deque[tuple[int, int]] = deque()
        self._fetches: dict[int, _Fetch] = {}
        self._in_flight = self._decoding = self._step = 0
        self._changed = threading.Condition()

    def follow(self, ahead: LookAhead, step: int) -> None:
        """Read the blocks of a look-ahead from now on; the batches from ``step`` on are read next.

        Blocks that were announced for earlier steps are dropped.
        """
        if ahead is not self._ahead:
            self._coming.clear()
        self._ahead, self._step = ahead, step
        for fetch in [fetch for fetch in self._fetches.values() if fetch.step < step]:
            self._drop(fetch)
        self._fill()

    def read_block(self, block: int) -> Arrays:
        """Read a block, see `RangeStore.read_block`.

        Raises
        ------
        DataError
            It cannot be read, or its checksum differs.
        Aborted
            Waiting was cancelled.
        """
        if block not in self._fetches and self._is_near(block):
            # faster than another thread
            return self._store.read_block(block)
        fetch = self._fetches.get(block) or self._start(block, self._step, first=True)
        try:
            self._wait(fetch)
        finally:
            self._drop(fetch)
        self._fill()
        if fetch.result is None:
            assert fetch.error is not None
            raise fetch.error
        return fetch.result if isinstance(fetch.result, dict) else self._store.read_block(block, fetch.result)

    def drop(self) -> None:
        """Forget the blocks that were announced, and what was read of them.

        Waits for threads that decode, which may use the store, but not for reads.
        """
        self._ahead = None
        self._coming.clear()
        for fetch in list(self._fetches.values()):
            self._drop(fetch)
        with self._changed:
            self._changed.wait_for(lambda: not self._decoding)

    def wake(self) -> None:
        """Make a waiting thread look at ``cancelled``. Any thread may call it."""
        with self._changed:
            self._changed.notify_all()

    # -- methods of the loader's thread ---------------------------------------------------------------

    def _fill(self) -> None:
        """Request the next blocks, as far as the bound allows."""
        while self._ahead is not None:
            if not self._coming:
                blocks = self._ahead.next_blocks(self._step)
                if blocks is None:
                    return
                self._coming.extend(blocks)
                continue
            step, block = self._coming[0]
            if step >= self._step and (self._decoders is not None or not self._is_near(block)):
                has_room = not self._fetches or self._in_flight + self._memory(block) <= self._bytes_bound
                if block in self._fetches or not has_room:
                    return
                self._start(block, step)
            self._coming.popleft()

    def _is_near(self, block: int) -> bool:
        """Return whether reading a block takes no request."""
        return not self._store.remote or self._store.is_cached(block)

    def _memory(self, block: int) -> int:
        """Return the bytes that a block takes while it is in flight."""
        decoded = 0 if self._decoders is None else decoding_bytes(self._store, self._store.blocks[block])
        return self._store.fetch_bytes(block) + decoded

    def _start(self, block: int, step: int, first: bool = False) -> _Fetch:
        fetch = self._fetches[block] = _Fetch(block, step, self._store.fetch_bytes(block), self._memory(block))
        with self._changed:
            self._in_flight += fetch.memory
        # in a copy of this context, which knows whether the job has ended: then its reads end
        if self._decoders is not None and self._is_near(block):
            fetch.repeated = True
            self._decoders.submit(partial(self._read_near, fetch), first)
        else:
            self._threads.submit(partial(self._read, fetch, False), first)
        return fetch

    def _drop(self, fetch: _Fetch) -> None:
        del self._fetches[fetch.block]
        with self._changed:
            fetch.dropped = True
            if not fetch.running:
                self._in_flight -= fetch.memory

    def _wait(self, fetch: _Fetch) -> None:
        with self._changed:
            while not fetch.done:
                if self._cancelled():
                    raise Aborted(f"{self._store.url}, block {fetch.block}: reading was cancelled.")
                left = self._seconds_left(fetch)
                if left is not None and left <= 0:
                    fetch.repeated = True
                    self._threads.repeat(partial(self._read, fetch, True))
                else:
                    self._changed.wait(left)

    def _seconds_left(self, fetch: _Fetch) -> float | None:
        """Return the time until a block is late; None if it will not be read again."""
        if fetch.repeated or fetch.started is None:
            return None
        late_s = self._threads.late_after(fetch.length)
        return None if late_s is None else fetch.started + late_s - time.monotonic()

    # -- methods of the reading threads ---------------------------------------------------------------

    def _begin(self, fetch: _Fetch) -> bool:
        """Note that a read begins; returns False if it is no longer needed."""
        with self._changed:
            if fetch.dropped or fetch.done:
                return False
            fetch.running += 1
            fetch.started = fetch.started or time.monotonic()
            # whoever waits knows now when it is late
            self._changed.notify_all()
            return True

    def _end(self, fetch: _Fetch, result: Arrays | list[memoryview] | None, error: BaseException | None) -> None:
        """Note that a read has ended."""
        with self._changed:
            fetch.running -= 1
            if fetch.result is None:
                fetch.result, fetch.error = result, fetch.error or error
            if fetch.dropped and not fetch.running:
                self._in_flight -= fetch.memory
            self._changed.notify_all()

    def _read(self, fetch: _Fetch, again: bool) -> None:
        """Read a block, unless that is no longer needed."""
        if not self._begin(fetch):
            return
        started = time.monotonic()
        try:
            data = self._store.fetch(fetch.block, again)
            self._threads.add_time(fetch.length, time.monotonic() - started)
        except BaseException as error:  # raised in the loader's thread
            self._end(fetch, None, error)
            return
        if self._decoders is None:
            self._end(fetch, data, None)
        else:
            fetch.repeated = True
            self._decoders.submit(partial(self._decode, fetch, data))

    def _read_near(self, fetch: _Fetch) -> None:
        """Read and decode a block that takes no request, unless that is no longer needed."""
        if self._begin(fetch):
            self._decode(fetch, None)

    def _decode(self, fetch: _Fetch, data: list[memoryview] | None) -> None:
        """Decode a block, unless that is no longer needed."""
        with self._changed:
            is_needed = not (fetch.dropped or fetch.done)
            self._decoding += is_needed
        arrays: Arrays | None = None
        error: BaseException | None = None
        if is_needed:
            try:
                arrays = self._store.read_block(fetch.block, data)
            except BaseException as raised:  # raised in the loader's thread
                error = raised
        with self._changed:
            self._decoding -= is_needed
        self._end(fetch, arrays, error)


class LookAhead:
    """The records of the next steps of a worker, and the blocks that will have to be read for them.

    The sampler is asked once for each step: for many steps at a time, and in order.

    Parameters
    ----------
    sampler : Sampler
    worker, n_workers : int
        Index of the worker in the group, and size of the group.
    n_steps : int
        Steps that are read together, at most MAX_STEPS.
    starts : (n_blocks + 1,) int64
        Index of the first record of each block, and the number of records.
    n_kept : int
        Number of blocks that the reader keeps, the most recently used ones.
    horizon : int
        Number of steps to look ahead.
    resident : collection of int
        Blocks that stay in memory, as they are now; see `BlockReader`.
    """

    def __init__(
        self,
        sampler: Sampler,
        worker: int,
        n_workers: int,
        n_steps: int,
        starts: Ids,
        n_kept: int = 0,
        horizon: int = 0,
        resident: Collection[int] = (),
    ) -> None:
        self._resident = resident
        self._sampler, self._worker, self._n_workers = sampler, worker, n_workers
        self._n_steps, self._starts, self._n_kept = n_steps, starts, n_kept
        self._length = MAX_STEPS - MAX_STEPS % n_steps
        self._horizon = max(horizon, 2 * self._length)
        self._chunks: deque[tuple[int, Ids]] = deque()
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._next = 0

    def restart(self, step: int, kept: Iterable[int] = ()) -> None:
        """Go to a step, at which these blocks are in memory, the most recently used last."""
        self._chunks.clear()
        self._kept = OrderedDict.fromkeys(kept)
        self._next = step

    def ids(self, step: int) -> Ids:
        """Return the records of the steps that are read together from one on, (n_steps, B / n_workers) int64."""
        while self._chunks and step >= self._chunks[0][0] + self._length:
            self._chunks.popleft()
        if not self._chunks or not 0 <= step - self._chunks[0][0] <= self._length - self._n_steps:
            self._chunks.clear()
            self._extend(step)
        first, ids = self._chunks[0]
        return ids[step - first : step - first + self._n_steps]

    def next_blocks(self, step: int) -> list[tuple[int, int]] | None:
        """Return the blocks that have to be read for the steps that come next; None if these are beyond the horizon.

        Parameters
        ----------
        step : int
            The first of those that are read now.

        Returns
        -------
        list of (step, block)
            The first of these steps, and a block, in the order in which they are read.
        """
        ahead = max(self._next, step)
        if ahead >= step + self._horizon or len(self._kept) == len(self._starts) - 1 == self._n_kept:
            return None
        while not self._chunks or ahead >= self._chunks[-1][0] + self._length:
            self._extend(self._chunks[-1][0] + self._length if self._chunks else ahead)
        first, ids = next(chunk for chunk in self._chunks if chunk[0] <= ahead < chunk[0] + self._length)
        self._next = ahead + self._n_steps
        return [(ahead, block) for block in self._missing(ids[ahead - first : self._next - first])]

    def _extend(self, first: int) -> None:
        self._chunks.append((first, self._sampler.rows(first, self._worker, self._n_workers, self._length)))

    def _missing(self, ids: Ids) -> list[int]:
        """Return the blocks of some records that are not in memory by then, and keep them."""
        blocks = np.searchsorted(self._starts, ids.reshape(-1), side="right") - 1
        if self._sampler.shuffle == "none":
            # one after another; at the end of an epoch the first block follows the last
            used = blocks[np.flatnonzero(np.diff(blocks, prepend=-1))].tolist()
            return [block for block in used if self._keep(block)]
        used = np.flatnonzero(np.bincount(blocks)).tolist()
        new = [block for block in used if block not in self._kept]
        for block in used:
            if block in self._kept:
                self._kept.move_to_end(block)
        return [block for block in new if self._keep(block)]

    def _keep(self, block: int) -> bool:
        """Keep a block as the most recently used one; return whether it has to be read."""
        if block in self._kept:
            self._kept.move_to_end(block)
            return False
        self._kept[block] = None
        if len(self._kept) > self._n_kept:
            self._kept.popitem(last=False)
        return block not in self._resident
