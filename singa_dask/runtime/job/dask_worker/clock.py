"""Compare clocks with the scheduler's, and keep timers running when a clock is set back."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from distributed import Worker

N_ASKED = 5
ROUNDING_S = 1e-4


class Clock(NamedTuple):
    """Difference of two clocks, in seconds.

    Attributes
    ----------
    offset_s : float
        Add it to ``time.time()`` to get the time of the scheduler. 0 if the difference is within the error.
    error_s : float
    """

    offset_s: float = 0.0
    error_s: float = 0.0


def read_clock() -> float:
    """Return the time on this host, in seconds since the epoch."""
    return time.time()


async def measure_clock(ask: Callable[[], Awaitable[float]]) -> Clock:
    """Measure the clock of the scheduler with Cristian's algorithm (1989).

    The error is half of the time between a call and its answer. Of `N_ASKED` calls the fastest counts.

    Parameters
    ----------
    ask : callable
        Returns the result of `read_clock` on the scheduler.
    """
    best = Clock(0.0, float("inf"))
    for _ in range(N_ASKED):
        asked = time.monotonic()
        theirs = await ask()
        error = (time.monotonic() - asked) / 2
        best = min(best, Clock(theirs - (time.time() - error), error), key=lambda clock: clock.error_s)
    # processes on the same host share a clock, so ignore a small offset
    return best if abs(best.offset_s) > best.error_s + ROUNDING_S else Clock(0.0, best.error_s)


CLOCK_LOOK_S = 1.0


class SteadyTimers:
    """Keeps timers and heartbeats of a Dask worker running when the clock of its host is set back.

    Tornado's timers would wait until the clock shows the old time again, and the Dask worker would seem lost.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._ahead = time.time() - time.monotonic()
        self._timer = worker.loop.call_later(CLOCK_LOOK_S, self._look)

    def _look(self) -> None:
        before, self._ahead = self._ahead, time.time() - time.monotonic()
        if self._ahead < before - CLOCK_LOOK_S:
            for each in self._worker.periodic_callbacks.values():
                if each.is_running():
                    each.stop()
                    each.start()
        self._timer = self._worker.loop.call_later(CLOCK_LOOK_S, self._look)

    def close(self) -> None:
        """Stop."""
        self._worker.loop.remove_timeout(self._timer)
