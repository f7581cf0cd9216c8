"""DaemonThreads: daemon threads that run calls in the order of their submission."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

R = TypeVar("R")

# an idle thread ends after this many seconds
IDLE_S = 10.0

# HERE.threads: the `DaemonThreads` object that owns the current thread
HERE = threading.local()


class DaemonThreads:
    """At most ``n`` daemon threads that run calls in the order of their submission.

    Unlike a ThreadPoolExecutor, this class does not join its threads at exit. So a hanging read does not block the
    exit.

    Parameters
    ----------
    n : int
    name : str
        Prefix of the names of the threads.
    """

    def __init__(self, n: int, name: str) -> None:
        self.n, self._name = n, name
        self._calls: deque[Callable[[], object]] = deque()
        self._futures: set[Future[Any]] = set()
        # RLock is written in C, so a signal handler cannot raise between acquiring the lock and entering the body
        self._queue_lock = threading.RLock()
        self._changed = threading.Condition(self._queue_lock)
        self._running = self._idle = 0
        self._is_closed = False

    def submit(self, call: Callable[[], object], first: bool = False) -> None:
        """Run a call in a copy of the caller's context; log its exceptions.

        With ``first=True``, the call runs before calls that are already waiting.
        """
        call = partial(copy_context().run, call)
        with self._queue_lock:
            if self._is_closed:
                return
            (self._calls.appendleft if first else self._calls.append)(call)
            if len(self._calls) > self._idle and self._running < self.n:
                self._running += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._running}", daemon=True).start()
            else:
                self._changed.notify()

    def future(self, function: Callable[[], R]) -> Future[R]:
        """Run a function and return the future of its result. `close` cancels the future if the call still waits."""
        future: Future[R] = Future()
        with self._queue_lock:
            self._futures.add(future)
            self.submit(partial(_answer, future, function))
            is_closed = self._is_closed
        future.add_done_callback(self._futures.discard)
        if is_closed:
            future.cancel()
        return future

    def _work(self) -> None:
        while True:
            with self._queue_lock:
                self._idle += 1
                self._changed.wait_for(lambda: self._calls or self._is_closed, IDLE_S)
                self._idle -= 1
                if not self._calls:
                    self._running -= 1
                    return
                call = self._calls.popleft()
            HERE.threads = self
            try:
                call()
            except Exception:
                logger.exception("%s", self._name)
            # free the result, which the call refers to
            del call

    def close(self) -> None:
        """Drop waiting and later calls. The method does not wait; each thread ends after its current call."""
        with self._queue_lock:
            self._is_closed = True
            self._calls.clear()
            futures = list(self._futures)
            self._changed.notify_all()
        for future in futures:  # a running call completes its future itself
            future.cancel()


def _answer(future: Future[R], call: Callable[[], R]) -> None:
    """Set the result of a call on a future, unless the future was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:  # the thread that waits for the result raises this exception
        future.set_exception(error)
