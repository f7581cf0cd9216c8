"""Fetcher: read the blocks that a `LookAhead` names, many at the same time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from singa_dask.data.loading.look_ahead import LookAhead
from singa_dask.data.loading.memory_budget import decoding_bytes
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.types import Arrays
from singa_dask.errors import Aborted
from singa_dask.fs.io_threads import IoThreads


@dataclass(eq=False)
class _Fetch:
    """A block that a thread reads or is going to read.

    Attributes
    ----------
    step : int
        First step of the buffer that needs the block.
    length : int
        Number of bytes to read.
    memory : int
        Number of bytes of memory that the block takes while it is in flight.
    result : dict of str to ndarray, list of memoryview, or None
        The block, or its bytes if it is not decoded ahead; None before it is read.
    error : BaseException or None
        Error of the first read that failed; None if none has.
    running : int
        Number of threads that read or decode the block.
    started : float or None
        Time at which the first read began.
    repeated : bool
        Whether the block will not be requested again, because it was already requested twice, or because its bytes
        have arrived.
    dropped : bool
        Whether the block is no longer needed.
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
    """Reads the next blocks in several threads, and returns a block when it is asked for it.

    Blocks that are requested and not yet used are called in flight. They have at most ``bytes_bound`` bytes together,
    but one block is always allowed. If a needed block is late, another connection requests it again, and the first
    answer is used; see `IoThreads`. A block that needs no request to the filesystem is read when it is needed.

    If ``decoders`` is passed, its threads decode blocks ahead, and also read the blocks that need no request. Otherwise
    the calling thread decodes.

    Only one thread may use a fetcher at a time, except for `wake`.

    Parameters
    ----------
    store : RangeStore
    threads : IoThreads
    bytes_bound : int
    cancelled : callable
        Called without arguments; returns True to stop waiting.
    decoders : IoThreads, optional
        Threads that decode blocks ahead; see `decode_threads`.
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
        # RLock is written in C, so a signal handler cannot raise between acquiring the lock and entering the body
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def follow(self, ahead: LookAhead, step: int) -> None:
        """From now on, read the blocks that ``ahead`` names; drop blocks for steps before ``step``."""
        if ahead is not self._ahead:
            self._coming.clear()
        self._ahead, self._step = ahead, step
        for fetch in [fetch for fetch in self._fetches.values() if fetch.step < step]:
            self._drop(fetch)
        self._fill()

    def read_block(self, block: int) -> Arrays:
        """Read a block; see `RangeStore.read_block`.

        Raises
        ------
        DataError
            The block cannot be read, or its checksum differs.
        Aborted
            The wait was cancelled.
        """
        if block not in self._fetches and self._is_near(block):
            # it is faster to read in this thread than to pass the block from another thread
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
        """Drop all blocks.

        This method waits for threads that decode, because they use the store. It does not wait for reads.
        """
        self._ahead = None
        self._coming.clear()
        for fetch in list(self._fetches.values()):
            self._drop(fetch)
        with self._lock:
            self._changed.wait_for(lambda: not self._decoding)

    def wake(self) -> None:
        """Make a waiting thread check ``cancelled``. Any thread may call it."""
        with self._lock:
            self._changed.notify_all()

    # -- methods of the loader's thread ---------------------------------------------------------------

    def _fill(self) -> None:
        """Request the next blocks, as far as ``bytes_bound`` permits."""
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
        """Return whether a block can be read without a request to the filesystem."""
        return not self._store.remote or self._store.is_cached(block)

    def _memory(self, block: int) -> int:
        """Return the bytes that a block takes while it is in flight."""
        decoded = 0 if self._decoders is None else decoding_bytes(self._store, self._store.blocks[block])
        return self._store.fetch_bytes(block) + decoded

    def _start(self, block: int, step: int, first: bool = False) -> _Fetch:
        fetch = self._fetches[block] = _Fetch(block, step, self._store.fetch_bytes(block), self._memory(block))
        with self._lock:
            self._in_flight += fetch.memory
        # run the threads in a copy of this thread's context, so that reads end when the job ends
        if self._decoders is not None and self._is_near(block):
            fetch.repeated = True
            self._decoders.submit(partial(self._read_near, fetch), first)
        else:
            self._threads.submit(partial(self._read, fetch, False), first)
        return fetch

    def _drop(self, fetch: _Fetch) -> None:
        del self._fetches[fetch.block]
        with self._lock:
            fetch.dropped = True
            if not fetch.running:
                self._in_flight -= fetch.memory

    def _wait(self, fetch: _Fetch) -> None:
        with self._lock:
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
        """Return the seconds until a block is late; None if a late block will not be requested again."""
        if fetch.repeated or fetch.started is None:
            return None
        late_s = self._threads.late_after(fetch.length)
        return None if late_s is None else fetch.started + late_s - time.monotonic()

    # -- methods of the reading threads ---------------------------------------------------------------

    def _begin(self, fetch: _Fetch) -> bool:
        """Record that a read begins; return False if the block is no longer needed."""
        with self._lock:
            if fetch.dropped or fetch.done:
                return False
            fetch.running += 1
            fetch.started = fetch.started or time.monotonic()
            # wake a thread that waits for this block: it can now compute after which time the read is late
            self._changed.notify_all()
            return True

    def _end(self, fetch: _Fetch, result: Arrays | list[memoryview] | None, error: BaseException | None) -> None:
        """Record that a read has ended, with its result or its error."""
        with self._lock:
            fetch.running -= 1
            if fetch.result is None:
                fetch.result, fetch.error = result, fetch.error or error
            if fetch.dropped and not fetch.running:
                self._in_flight -= fetch.memory
            self._changed.notify_all()

    def _read(self, fetch: _Fetch, again: bool) -> None:
        """Read a block, unless it is no longer needed."""
        if not self._begin(fetch):
            return
        started = time.monotonic()
        try:
            data = self._store.fetch(fetch.block, again)
            self._threads.add_time(fetch.length, time.monotonic() - started)
        except BaseException as error:  # the loader's thread raises this exception
            self._end(fetch, None, error)
            return
        if self._decoders is None:
            self._end(fetch, data, None)
        else:
            fetch.repeated = True
            self._decoders.submit(partial(self._decode, fetch, data))

    def _read_near(self, fetch: _Fetch) -> None:
        """Read and decode a block without a request, unless it is no longer needed."""
        if self._begin(fetch):
            self._decode(fetch, None)

    def _decode(self, fetch: _Fetch, data: list[memoryview] | None) -> None:
        """Decode a block, unless it is no longer needed."""
        with self._lock:
            is_needed = not (fetch.dropped or fetch.done)
            self._decoding += is_needed
        arrays: Arrays | None = None
        error: BaseException | None = None
        if is_needed:
            try:
                arrays = self._store.read_block(fetch.block, data)
            except BaseException as raised:  # the loader's thread raises this exception
                error = raised
        with self._lock:
            self._decoding -= is_needed
        self._end(fetch, arrays, error)
