"""Cancellation: where the threads of one unit wait, and where they see that their job has ended.

A thread that works for a unit knows its `Cancellation`, see
`working_for`, so that what reads files deep below looks at it too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from singa_dask.errors import Aborted


class Cancellation:
    """Where the threads of one unit wait; closing it ends every present and future wait.

    Attributes
    ----------
    condition : Condition
        Notify it when something has changed that a thread may wait for.
    reason : str
        Why it is closed; empty while it is open. A thread that never waits looks here.
    on_waited : callable or None
        Called with what was waited for, and since when, once a wait has ended.
    """

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.reason = ""
        self.on_waited: Callable[[str, float], None] | None = None
        self._waiting_for: tuple[str, float] | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def waiting_for(self) -> tuple[str, float] | None:
        """What the unit waits for, and since when, a value of ``time.monotonic``; None while it computes."""
        return self._waiting_for

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Let `waiting_for` say what the unit waits for, as long as the context lasts, and report that wait then."""
        self._waiting_for = since = (what, time.monotonic())
        try:
            yield
        finally:
            self._waiting_for = None
            if self.on_waited is not None:
                self.on_waited(*since)

    def cancel(self, reason: str) -> None:
        """End every present and future wait with `Aborted`, and call what `on_cancel` was given. Never waits."""
        with self.condition:
            self.reason = self.reason or reason or "closed"
            callbacks, self._callbacks = self._callbacks, []
            self.condition.notify_all()
        for callback in callbacks:
            callback()

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call a function once the cancellation closes, in the thread that closes it; at once if it is closed."""
        with self.condition:
            if not self.reason:
                self._callbacks.append(callback)
                return
        callback()

    def check(self) -> None:
        """Raise `Aborted` if the cancellation is closed."""
        if self.reason:
            raise Aborted(self.reason)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition is true; it is checked whenever `condition` is notified.

        Parameters
        ----------
        condition : callable
        what : str
            What is waited for, for `waiting_for`.

        Raises
        ------
        Aborted
            The cancellation was closed before.
        """
        with self.condition:
            if condition():
                return
            with self.waiting(what):
                while not condition():
                    self.check()
                    self.condition.wait()


_CANCELLATION: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)


@contextmanager
def working_for(cancellation: Cancellation) -> Iterator[None]:
    """Let this thread, and those that it starts in a copy of its context, work for the unit of a cancellation."""
    token = _CANCELLATION.set(cancellation)
    try:
        yield
    finally:
        _CANCELLATION.reset(token)


def check_cancelled() -> None:
    """Raise `Aborted` if this thread works for a unit whose job has ended."""
    cancellation = _CANCELLATION.get()
    if cancellation is not None:
        cancellation.check()


def pause(seconds: float) -> None:
    """Wait before something is tried again; `Aborted` ends the pause of a thread whose job ends."""
    cancellation = _CANCELLATION.get()
    if cancellation is None:
        time.sleep(seconds)
        return
    until = time.monotonic() + seconds
    with cancellation.condition:
        cancellation.check()
        while (left := until - time.monotonic()) > 0:
            cancellation.condition.wait(left)
            cancellation.check()
