"""Suspects: Dask workers that failed recently, or cannot reach each other. Unused for a while."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

FIRST_S = 5.0
"""Seconds for which a Dask worker is not used after it could not host a process, or did not end a process in time. The
time doubles with each failure."""
PARTED_S = 60.0
"""Seconds for which only one of two Dask workers is used after they failed to reach each other. A single failure does
not count while no other pair has failed. The seconds double with each failure."""
MAX_S = 600.0
EVER = sys.float_info.max
"""A time in the far future, at which only permanently suspected Dask workers are still suspected."""


class Suspects:
    """Records which Dask workers, and which pairs of Dask workers, have failed, and how often."""

    def __init__(self) -> None:
        self._failures: dict[frozenset[str], tuple[int, float]] = {}

    def add(self, now: float, *workers: str, for_good: bool = False) -> float:
        """Record a failure of a Dask worker, or of two Dask workers that cannot reach each other.

        Return the seconds for which the failure counts: 0 if it does not count, infinity with ``for_good``.
        """
        key = frozenset(workers)
        n, _ = self._failures.get(key, (0, 0.0))
        parted = {pair: failure for pair, failure in self._failures.items() if len(pair) == len(key) > 1}
        if len(key) > 1 and not n and all(until <= now for _, until in parted.values()):
            seconds = 0.0
        else:
            first_s, n_doubled = (FIRST_S, n) if len(key) == 1 else (PARTED_S, max(n - 1, 0))
            seconds = min(first_s * 2.0 ** min(n_doubled, 9), MAX_S)
        seconds = math.inf if for_good else seconds
        end = now + seconds
        # a pair has failed again, so the network is still broken: extend the failures of all pairs
        self._failures |= {pair: (m, max(end, until)) for pair, (m, until) in parted.items()}
        self._failures[key] = n + 1, end
        return seconds

    def forget(self, worker: str) -> None:
        """Forget the failures of a Dask worker that has left or joined."""
        self._failures = {key: failure for key, failure in self._failures.items() if worker not in key}

    def others(self, now: float, workers: Mapping[str, int], kept: Sequence[str]) -> set[str]:
        """Return as many unsuspected Dask workers as possible that can all reach each other.

        Parameters
        ----------
        now : float
            Current time. `EVER` leaves out only Dask workers that are suspected permanently.
        workers : mapping of str to int
            Number of free threads of each Dask worker.
        kept : sequence of str
            Dask workers to prefer.
        """
        pending = [key for key, (_, until) in self._failures.items() if until > now]
        left = set(workers).difference(*(key for key in pending if len(key) == 1))
        while parted := [key for key in pending if len(key) > 1 and key <= left]:
            n_parted = Counter(worker for key in parted for worker in key)
            worst = max(n_parted, key=lambda worker: (n_parted[worker], worker not in kept, -workers[worker], worker))
            left.remove(worst)
        return left
