"""SnapshotSchedule: choose the times of snapshots from their cost."""

from __future__ import annotations

from collections import deque

SHARE = 0.01
"""Share of the training time that snapshots may take."""
LARGER_SHARE = 0.02
"""Share that snapshots may take if they would otherwise be more than `OFTEN_S` seconds apart."""
MIN_S = 1.0
"""Seconds before the first snapshot; also the minimum between two snapshots."""
OFTEN_S = 10.0
FAILED_S = 10.0
"""Seconds from a failed snapshot to the next snapshot. The time doubles with each failure, up to `MAX_FAILED_S`."""
MAX_FAILED_S = 60.0
N_COSTS = 3
"""The cheapest of this many latest snapshots determines the interval, because a single snapshot may take ten times as
long on a busy machine. Before that number of snapshots, the interval is at most `OFTEN_S`."""


def snapshot_interval(cost_s: float) -> float:
    """Return the seconds between two snapshots that cost ``cost_s`` seconds each.

    The interval exceeds `OFTEN_S` only if snapshots would otherwise take more than `LARGER_SHARE` of the time.
    """
    return max(MIN_S, min(cost_s / SHARE, max(OFTEN_S, cost_s / LARGER_SHARE)))


class SnapshotSchedule:
    """Chooses the times of snapshots so that snapshots take 1 or 2 % of the training time.

    Times are values of ``time.perf_counter``. The cost of a snapshot is the pause of the workers, plus the background
    work of a process with servers. That work counts in full, because it may share cores with workers.
    """

    def __init__(self) -> None:
        self._due_at = float("inf")
        self._pause_s = 0.0
        self._costs: deque[float] = deque(maxlen=N_COSTS)
        self._failed_s = FAILED_S

    def begin(self, now: float) -> None:
        """Start counting time. The first snapshot is early, to measure its cost."""
        self._due_at = now + MIN_S

    def is_due(self, now: float) -> bool:
        """Return whether a snapshot is due."""
        return now >= self._due_at

    def paused(self, seconds: float) -> None:
        """Record the pause of the workers for a snapshot."""
        self._pause_s = seconds

    def end(self, now: float, background_s: float) -> None:
        """Schedule the next snapshot, because the current snapshot is complete."""
        self._costs.append(self._pause_s + background_s)
        wait_s = snapshot_interval(min(self._costs))
        self._due_at = now + (wait_s if len(self._costs) == N_COSTS else min(wait_s, OFTEN_S))
        self._failed_s = FAILED_S

    def fail(self, now: float) -> None:
        """Schedule the next snapshot, because the current snapshot has failed."""
        self._due_at = now + self._failed_s
        self._failed_s = min(2 * self._failed_s, MAX_FAILED_S)
