"""IoThreads: the threads of this process that read from one filesystem, and how long their reads take.

Other threads decode what was read: pyarrow and Pillow do so without Python's lock.
"""

from __future__ import annotations

import logging
import os
import statistics
import sys
import threading
import urllib.parse
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, wait
from contextvars import copy_context
from functools import partial
from typing import TypeVar

logger = logging.getLogger(__name__)


T = TypeVar("T")
R = TypeVar("R")

# simultaneous reads of a file system, unless a job says otherwise
MAX_READS = 32

# a thread without work ends after this time
IDLE_S = 10.0
# reads of a size that are remembered, and that must be known before one is late
MAX_TIMES, MIN_TIMES = 32, 8
# of a process that decode: it has other work for its cores
MAX_DECODING = 4
# files of stores that a process opens at the same time: gzipped ones are decompressed
MAX_OPENING = 4
LATE_MEDIANS = 3.0
LATE_S = 0.25
# reads are repeated at most this often: EXTRA_READS, and one in EXTRA_SHARE
EXTRA_READS, EXTRA_SHARE = 4, 8


# by thread: the threads that it is one of
_HERE = threading.local()


class DaemonThreads:
    """At most ``n`` daemon threads that run calls in the order in which they come.

    The threads of concurrent.futures are joined when the interpreter ends, so a read that hangs would keep it.

    Parameters
    ----------
    n : int
    name : str
        Begins the names of the threads.
    """

    def __init__(self, n: int, name: str) -> None:
        self.n, self._name = n, name
        self._calls: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._running = self._idle = 0
        self._is_closed = False

    def submit(self, call: Callable[[], object], first: bool = False) -> None:
        """Run a call, which should not raise, in a copy of the caller's context; before others if ``first``."""
        call = partial(copy_context().run, call)
        with self._changed:
            if self._is_closed:
                return
            (self._calls.appendleft if first else self._calls.append)(call)
            if len(self._calls) > self._idle and self._running < self.n:
                self._running += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._running}", daemon=True).start()
            else:
                self._changed.notify()

    def future(self, function: Callable[[], R]) -> Future[R]:
        """Return the future result of a function."""
        future: Future[R] = Future()
        self.submit(partial(_answer, future, function))
        return future

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._calls or self._is_closed, IDLE_S)
                self._idle -= 1
                if not self._calls:
                    self._running -= 1
                    return
                call = self._calls.popleft()
            _HERE.threads = self
            try:
                call()
            except Exception:
                logger.exception("%s", self._name)
            # the call holds what it has read
            del call

    def close(self) -> None:
        """Drop the calls that have not begun, and later ones; wait for none. The threads end after those that have."""
        with self._changed:
            self._is_closed = True
            self._calls.clear()
            self._changed.notify_all()


class IoThreads(DaemonThreads):
    """The threads that read from one filesystem; some more repeat reads that take too long."""

    def __init__(self, n: int, name: str = "io") -> None:
        super().__init__(n, name)
        self._extra = DaemonThreads(max(1, n // 4), f"{name}-again")
        self._lock = threading.Lock()
        self._times: dict[int, deque[float]] = {}
        self._reads = self._repeats = 0

    def submit(self, call: Callable[[], object], first: bool = False) -> None:
        with self._lock:
            self._reads += 1
        super().submit(call, first)

    def repeat(self, call: Callable[[], object]) -> bool:
        """Run a call that repeats a late read; returns False, and does not run it, if too many were repeated."""
        with self._lock:
            if self._repeats >= EXTRA_READS + self._reads // EXTRA_SHARE:
                return False
            self._repeats += 1
        self._extra.submit(call)
        return True

    def add_time(self, n_bytes: int, seconds: float) -> None:
        """Remember how long a read took."""
        with self._lock:
            self._times.setdefault(n_bytes.bit_length(), deque(maxlen=MAX_TIMES)).append(seconds)

    def late_after(self, n_bytes: int) -> float | None:
        """Return after how many seconds a read of some bytes is late; None if too few were read to tell.

        It is late after three times the median of recent reads of about its size, but not before 0.25 s.
        """
        with self._lock:
            times = list(self._times.get(n_bytes.bit_length(), ()))
        return max(LATE_S, LATE_MEDIANS * statistics.median(times)) if len(times) >= MIN_TIMES else None


_OPEN: dict[tuple[int, str, int], IoThreads] = {}


def _shared(use: str, n: int, name: str) -> IoThreads:
    # a forked child has none of the threads of its parent
    return _OPEN.setdefault((os.getpid(), use, n), IoThreads(n, name))


def io_threads(url: str, n: int = MAX_READS) -> IoThreads:
    """Return the threads of this process for the filesystem of a URL: one set per filesystem and number."""
    parts = urllib.parse.urlsplit(url)
    return _shared(f"{parts.scheme}://{parts.netloc}", n, f"io-{parts.scheme}")


def decode_threads() -> IoThreads:
    """Return the threads of this process that decode blocks: as many as it has cores, at most `MAX_DECODING`."""
    n_cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return _shared("decode", min(n_cores, MAX_DECODING), "decode")


def open_threads() -> IoThreads:
    """Return the threads of this process that open the files of stores."""
    return _shared("open", MAX_OPENING, "open")


def map_ahead(
    function: Callable[[T], R],
    items: Iterable[T],
    threads: IoThreads,
    limit: int,
    size: Callable[[T], int] = lambda item: 1,
) -> Generator[R, None, None]:
    """Yield the results of a function for some items, in their order, computed ahead by some threads.

    One of these threads computes them itself: it would wait for those that all wait like it.

    Parameters
    ----------
    limit : int
        Maximum total size of the items that are taken and whose results are not yet yielded; one at least.
    size : callable
        Size of an item.

    Raises
    ------
    BaseException
        The first error, in the order of the items, of the function or of the iterator of the items.
    """
    if getattr(_HERE, "threads", None) is threads:
        yield from map(function, items)
        return
    source, waiting, used = iter(items), deque[tuple[int, Future[R]]](), 0
    failed: Exception | None = None
    try:
        while failed is None:
            try:
                item = next(source)
            except Exception as error:  # also that there are no more
                failed = error
                break
            while waiting and used + size(item) > limit:
                used -= waiting[0][0]
                yield waiting.popleft()[1].result()
            waiting.append((size(item), threads.future(partial(function, item))))
            used += size(item)
        while waiting:
            yield waiting.popleft()[1].result()
        if failed is not None and not isinstance(failed, StopIteration):
            raise failed
    finally:
        # nothing runs once the caller goes on, who may close what is read
        wait([future for _, future in waiting if not future.cancel()])


def _answer(future: Future[R], call: Callable[[], R]) -> None:
    """Give a future the result of a call, unless it was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:  # raised in the thread that asked
        future.set_exception(error)
