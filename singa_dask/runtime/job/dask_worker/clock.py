"""Compare this host's clock with the scheduler's clock; keep timers running if a clock is set back."""

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
        Seconds to add to ``time.time()`` to get the time of the scheduler; 0 if the difference is within the error.
    error_s : float
        Maximum error of the offset.
    """

    offset_s: float = 0.0
    error_s: float = 0.0


def read_clock() -> float:
    """Return the time on this host, in seconds since the epoch."""
    return time.time()


async def measure_clock(ask: Callable[[], Awaitable[float]]) -> Clock:
    """Measure the offset of the scheduler's clock with Cristian's algorithm (1989).

    The error is half of the time between a call and its answer. The fastest of `N_ASKED` calls counts.

    Parameters
    ----------
    ask : callable
        Calls `read_clock` on the scheduler.
    """
    best = Clock(0.0, float("inf"))
    for _ in range(N_ASKED):
        asked = time.monotonic()
        theirs = await ask()
        error = (time.monotonic() - asked) / 2
        best = min(best, Clock(theirs - (time.time() - error), error), key=lambda clock: clock.error_s)
    # ignore small offsets, which are only noise if both processes share the clock of one host
    return best if abs(best.offset_s) > best.error_s + ROUNDING_S else Clock(0.0, best.error_s)


CLOCK_LOOK_S = 1.0


class SteadyTimers:
    """Keeps timers and heartbeats of a Dask worker running when the clock of its host is set back.

    Without this class, Tornado's timers would wait until the clock shows the old time again. The Dask worker would send
    no heartbeats until then, and count as lost.
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
        """Stop looking at the clock."""
        self._worker.loop.remove_timeout(self._timer)
