"""Limits on the threads of libraries such as BLAS, in this process or in one thread.

Dask's nannies start processes with one thread for every library. These limits replace that setting.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from threadpoolctl import LibController, ThreadpoolController, threadpool_limits

# lock for the other variables; active limits on BLAS threads in this process; restores the threads after the last limit
_lock, _asked, _restore = threading.Lock(), list[int](), ExitStack()


@contextmanager
def limit_process(n: int) -> Iterator[None]:
    """Limit BLAS to ``n`` threads in this process during the context.

    If several limits are active, the lowest limit counts.
    """
    with _lock:
        if not _asked:
            _restore.enter_context(threadpool_limits(n, user_api="blas"))
        _asked.append(n)
        threadpool_limits(min(_asked), user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _asked.remove(n)
            if _asked:
                threadpool_limits(min(_asked), user_api="blas")
            else:
                _restore.close()


def limit_thread(n: int) -> AbstractContextManager[object]:
    """Limit loaded OpenMP libraries to ``n`` threads for calls from this thread, until the context ends."""
    limits: AbstractContextManager[object] = threadpool_limits(n, user_api="openmp")
    return limits


class _OpenMPLimit:
    """Limits OpenMP for calls from this thread, as threadpoolctl does, but in a few microseconds."""

    def __init__(self, libraries: Sequence[LibController], n: int) -> None:
        self._libraries, self._n = libraries, n

    def __enter__(self) -> None:
        self._before = [(each, count) for each in self._libraries if (count := each.num_threads or 0) > self._n]
        for each, _ in self._before:
            each.set_num_threads(self._n)

    def __exit__(self, *_: object) -> None:
        for each, count in self._before:
            each.set_num_threads(count)


class ThreadPools:
    """The libraries with thread pools that are loaded when this object is created.

    Keep the object: finding the libraries takes longer than computing a small net.
    """

    def __init__(self) -> None:
        self._found = ThreadpoolController()
        self._openmp = [each for each in self._found.lib_controllers if each.user_api == "openmp"]
        self._selected: dict[tuple[str, ...], ThreadpoolController] = {}

    def limit(self, n: int, blas: bool = True) -> AbstractContextManager[object]:
        """Limit all libraries that have more than ``n`` threads to ``n`` threads, until the context ends.

        With ``blas=False``, only OpenMP is limited, which takes less time.
        """
        if not blas:
            return _OpenMPLimit(self._openmp, n)
        larger = tuple(each.filepath for each in self._found.lib_controllers if (each.num_threads or 0) > n)
        if not larger:
            return nullcontext()
        # selecting libraries takes longer than limiting them
        if larger not in self._selected:
            self._selected[larger] = self._found.select(filepath=list(larger))
        limits: AbstractContextManager[object] = self._selected[larger].limit(limits=n)
        return limits
