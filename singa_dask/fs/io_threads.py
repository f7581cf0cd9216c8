"""IoThreads: the threads of this process that read from one filesystem, and how long their reads take.

Other threads decode what was read: pyarrow and Pillow do so without Python's lock.
"""

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

# simultaneous reads of a file system, unless a job says otherwise
MAX_READS = 32

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
    if getattr(HERE, "threads", None) is threads:
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
