"""Cancellation: wakes and stops the threads of a unit when its job ends.

`working_for` binds a thread to the `Cancellation` of its unit, so that code that reads files can check it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from singa_dask.errors import Aborted


class Cancellation:
    """The condition on which all threads of a unit wait. `cancel` ends every present and future wait.

    Attributes
    ----------
    condition : Condition
        Condition variable to notify when something has changed that a thread may wait for.
    reason : str
        Why the unit was cancelled; empty before `cancel`. Threads that never wait should check this attribute.
    on_waited : callable or None
        Called after each wait, with a description of the wait and its start time.
    """

    def __init__(self) -> None:
        # RLock is written in C, so a signal handler cannot raise between acquiring the lock and entering the body
        self._lock = threading.RLock()
        self.condition = threading.Condition(self._lock)
        self.reason = ""
        self.on_waited: Callable[[str, float], None] | None = None
        self._waiting_for: tuple[str, float] | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def waiting_for(self) -> tuple[str, float] | None:
        """Description of the current wait and its start (``time.monotonic``); None while the unit computes."""
        return self._waiting_for

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Set `waiting_for` during the context, and report the wait to `on_waited` at its end."""
        self._waiting_for = since = (what, time.monotonic())
        try:
            yield
        finally:
            self._waiting_for = None
            if self.on_waited is not None:
                self.on_waited(*since)

    def cancel(self, reason: str) -> None:
        """End every present and future wait with `Aborted`, and run the callbacks of `on_cancel`. Never waits."""
        with self._lock:
            self.reason = self.reason or reason or "closed"
            callbacks, self._callbacks = self._callbacks, []
            self.condition.notify_all()
        for callback in callbacks:
            callback()

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Register a function that `cancel` calls, in the thread that cancels.

        If `cancel` has been called already, the function is called immediately.
        """
        with self._lock:
            if not self.reason:
                self._callbacks.append(callback)
                return
        callback()

    def off_cancel(self, callback: Callable[[], None]) -> None:
        """Undo `on_cancel`; do nothing if the function is not registered."""
        with self._lock, suppress(ValueError):
            self._callbacks.remove(callback)

    def check(self) -> None:
        """Raise `Aborted` after `cancel`."""
        if self.reason:
            raise Aborted(self.reason)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until ``condition()`` is true; this is checked whenever the attribute `condition` is notified.

        Parameters
        ----------
        condition : callable
        what : str
            Description of the wait, for `waiting_for`.

        Raises
        ------
        Aborted
            The unit was cancelled before the condition became true.
        """
        with self._lock:
            if condition():
                return
            with self.waiting(what):
                while not condition():
                    self.check()
                    self.condition.wait()


_CANCELLATION: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)


@contextmanager
def working_for(cancellation: Cancellation) -> Iterator[None]:
    """Bind this thread, and threads that run in copies of its context, to the cancellation of a unit."""
    token = _CANCELLATION.set(cancellation)
    try:
        yield
    finally:
        _CANCELLATION.reset(token)


def check_cancelled() -> None:
    """Raise `Aborted` if this thread is bound to a unit whose job has ended."""
    cancellation = _CANCELLATION.get()
    if cancellation is not None:
        cancellation.check()


def pause(seconds: float) -> None:
    """Sleep before a retry; raise `Aborted` when the job of this thread ends."""
    cancellation = _CANCELLATION.get()
    if cancellation is None:
        time.sleep(seconds)
        return
    until = time.monotonic() + seconds
    with cancellation.condition:  # only unit threads call this function, and they handle no signals
        cancellation.check()
        while (left := until - time.monotonic()) > 0:
            cancellation.condition.wait(left)
            cancellation.check()
