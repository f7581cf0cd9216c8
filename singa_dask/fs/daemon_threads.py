"""DaemonThreads: threads that run calls in the order in which they come, and end with the process."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import TypeVar

logger = logging.getLogger(__name__)

R = TypeVar("R")

# a thread without work ends after this time
IDLE_S = 10.0

# by thread: the threads that it is one of
HERE = threading.local()


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
            HERE.threads = self
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


def _answer(future: Future[R], call: Callable[[], R]) -> None:
    """Give a future the result of a call, unless it was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:  # raised in the thread that asked
        future.set_exception(error)
