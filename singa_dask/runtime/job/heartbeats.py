"""Heartbeats: tells which Dask workers have not been heard of for long."""

from __future__ import annotations

import time

from distributed import Scheduler
from distributed.scheduler import heartbeat_interval

__all__ = ["SILENT_S", "Heartbeats"]

SILENT_S = 5.0
"""A Dask worker that has not been heard of for so long is given up. Its heartbeats come each half second, and more
rarely in clusters of more than ten workers."""
MAX_LOOK_S = 1.0
"""No more of the time between two looks counts as silence: a scheduler that was held up itself has heard of nobody."""


class Heartbeats:
    """Counts for how long nothing has come from each Dask worker.

    It compares the times of heartbeats, which are those of a clock that may be set, only for being equal.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._looked_at = time.monotonic()
        # time of the last heartbeat, and seconds without another one
        self._silence: dict[str, tuple[float, float]] = {}

    def look(self) -> None:
        """Count the time since the last look for Dask workers without a heartbeat in between."""
        now = time.monotonic()
        passed, self._looked_at = min(now - self._looked_at, MAX_LOOK_S), now
        silence = {}
        for address, known in self._scheduler.workers.items():
            last_seen, seconds = self._silence.get(address, (None, 0.0))
            silence[address] = known.last_seen, seconds + passed if known.last_seen == last_seen else 0.0
        self._silence = silence

    def is_silent(self, address: str) -> bool:
        """Return whether a Dask worker is on the cluster, and has not been heard of for too long."""
        known = self._scheduler.workers.get(address)
        last_seen, seconds = self._silence.get(address, (0.0, 0.0))
        limit = max(SILENT_S, 3 * heartbeat_interval(len(self._scheduler.workers)))
        return known is not None and known.last_seen == last_seen and seconds > limit
