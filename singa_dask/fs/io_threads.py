"""IoThreads: the threads of this process that read from one filesystem, or that decode blocks."""

from __future__ import annotations

import os
import statistics
import sys
import threading
import urllib.parse
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, wait
from functools import partial
from typing import TypeVar

from singa_dask.fs.daemon_threads import HERE, DaemonThreads, R

T = TypeVar("T")

# default number of simultaneous reads from one filesystem
MAX_READS = 32

# number of read times per size: at most MAX_TIMES are kept, and at least MIN_TIMES are needed to call a read late
MAX_TIMES, MIN_TIMES = 32, 8
# maximum number of decoding threads in a process; other work needs cores, too
MAX_DECODING = 4
# number of files that a process opens and decompresses at the same time
MAX_OPENING = 4
LATE_MEDIANS = 3.0
LATE_S = 0.25
# maximum number of repeated reads: EXTRA_READS plus the number of all reads divided by EXTRA_SHARE
EXTRA_READS, EXTRA_SHARE = 4, 8


class IoThreads(DaemonThreads):
    """Threads that read from one filesystem, with additional threads that repeat late reads."""

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
        """Run a call that repeats a late read; return False if too many reads are being repeated."""
        with self._lock:
            if self._repeats >= EXTRA_READS + self._reads // EXTRA_SHARE:
                return False
            self._repeats += 1
        self._extra.submit(call)
        return True

    def add_time(self, n_bytes: int, seconds: float) -> None:
        """Record how long a read took."""
        with self._lock:
            self._times.setdefault(n_bytes.bit_length(), deque(maxlen=MAX_TIMES)).append(seconds)

    def late_after(self, n_bytes: int) -> float | None:
        """Return after how many seconds a read of this size is late; None if too few reads were measured.

        The time is three times the median time of recent reads of about this size, and at least 0.25 s.
        """
        with self._lock:
            times = list(self._times.get(n_bytes.bit_length(), ()))
        return max(LATE_S, LATE_MEDIANS * statistics.median(times)) if len(times) >= MIN_TIMES else None


_OPEN: dict[tuple[int, str, int], IoThreads] = {}


def _shared(use: str, n: int, name: str) -> IoThreads:
    # the key includes the process id, because a forked child does not have the threads of its parent
    return _OPEN.setdefault((os.getpid(), use, n), IoThreads(n, name))


def io_threads(url: str, n: int = MAX_READS) -> IoThreads:
    """Return the reading threads of this process for the filesystem of a URL.

    The process has one pool for each filesystem and each number of threads ``n``.
    """
    parts = urllib.parse.urlsplit(url)
    return _shared(f"{parts.scheme}://{parts.netloc}", n, f"io-{parts.scheme}")


def decode_threads() -> IoThreads:
    """Return the decoding threads of this process: one per core, at most `MAX_DECODING`."""
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
    """Yield the results of a function for items, in order. Threads compute results ahead.

    If the caller is one of ``threads``, it computes the results itself, to avoid a deadlock.

    Parameters
    ----------
    limit : int
        Maximum total size of the items whose results are computed ahead. One item is always allowed.
    size : callable
        Returns the size of an item.

    Raises
    ------
    BaseException
        The first error of the function or the iterable, in the order of the items.
    """
    if getattr(HERE, "threads", None) is threads:
        yield from map(function, items)
        return
    source, waiting, used = iter(items), deque[tuple[int, Future[R]]](), 0
    failed: Exception | None = None
    try:
        while failed is None:
            try:
                item = next(source)
            except Exception as error:  # StopIteration, or an error of the source
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
        # wait for running calls, because the caller may close the source next
        wait([future for _, future in waiting if not future.cancel()])
