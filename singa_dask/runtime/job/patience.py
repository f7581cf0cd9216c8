"""Patience: the time to wait for a cluster, and a function for messages during the wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from singa_dask.cancellation import pause
from singa_dask.errors import ClusterError

ATTEMPT_S = 0.5
"""Time between two attempts, while waiting for a cluster."""
AGAIN_S = 10.0
"""Shortest time between two messages that differ only in numbers, e.g. of free threads."""

T = TypeVar("T")


class Patience(NamedTuple):
    """A time to wait for a cluster, and a function for messages to the user.

    Attributes
    ----------
    seconds : float
        Maximum time to wait; 0 means not to wait.
    say : callable
        Called with each message for the user, one line of text.
    """

    seconds: float = 0.0
    say: Callable[[str], None] = lambda line: None

    def until(self, attempt: Callable[[], T]) -> T:
        """Repeat an attempt until it raises no `ClusterError`; return its result.

        The user sees the first error in full. Later, only a changed first sentence is shown, at most once in `AGAIN_S`.

        Raises
        ------
        ClusterError
            All attempts failed. This is the error of the last attempt.
        """
        end = time.monotonic() + self.seconds
        obstacle, said, said_at = "", "", 0.0
        while True:
            try:
                return attempt()
            except ClusterError as error:
                left = end - time.monotonic()
                if left <= 0:
                    if not self.seconds:
                        raise
                    raise ClusterError(f"{error} Waited {self.seconds:g} s.") from error
                text = str(error)
                (before, found), now = (text.partition(mark)[0] for mark in (": ", ". ")), time.monotonic()
                if before != obstacle:
                    obstacle, said, said_at = before, found, now
                    self.say(f"waiting, {left:.0f} s at most: {text}")
                elif found != said and now - said_at >= AGAIN_S:
                    said, said_at = found, now
                    self.say(f"still waiting, {left:.0f} s at most: {found.removesuffix('.')}.")
            # poll, because clusters send no event when they start, or when threads become free
            pause(min(ATTEMPT_S, left))


AT_ONCE = Patience()
