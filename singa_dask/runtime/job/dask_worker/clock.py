"""Compare clocks with the scheduler's, and keep timers going where a clock is set back."""

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
        What is to be added to ``time.time()`` here; 0 if the clocks may well be the same.
    error_s : float
        By how much that can be wrong.
    """

    offset_s: float = 0.0
    error_s: float = 0.0


def read_clock() -> float:
    """Return the time on this host, in seconds since the epoch."""
    return time.time()


async def measure_clock(ask: Callable[[], Awaitable[float]]) -> Clock:
    """Measure the clock of the scheduler, as Cristian's algorithm does (1989).

    The scheduler reads its clock at some moment between the question and its answer: half of the time between these is
    the error. Of some questions the one that was answered first counts.

    Parameters
    ----------
    ask : callable
        Returns what `read_clock` returns on the scheduler.
    """
    best = Clock(0.0, float("inf"))
    for _ in range(N_ASKED):
        asked = time.monotonic()
        theirs = await ask()
        error = (time.monotonic() - asked) / 2
        best = min(best, Clock(theirs - (time.time() - error), error), key=lambda clock: clock.error_s)
    # processes of one host have one clock, and are aligned best by leaving it alone
    return best if abs(best.offset_s) > best.error_s + ROUNDING_S else Clock(0.0, best.error_s)


CLOCK_LOOK_S = 1.0


class SteadyTimers:
    """Keeps the timers of a Dask worker going, its heartbeats among them, where the clock of its host is set back.

    Those of tornado would wait until the clock shows the old time again, and the Dask worker would be taken for lost.
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
        """Look no more."""
        self._worker.loop.remove_timeout(self._timer)
