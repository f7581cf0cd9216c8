"""SnapshotSchedule: when the next snapshot of a job is taken, if the job does not say."""

from __future__ import annotations

__all__ = ["SnapshotSchedule"]

SHARE = 0.01
"""Part of the time of training that snapshots may take."""
MIN_S = 1.0
"""Seconds before the first snapshot, and between two."""
FAILED_S = 60.0
"""Seconds after a snapshot that failed."""


class SnapshotSchedule:
    """Chooses the times of snapshots so that they take about 1 % of the time of training.

    All times are values of ``time.perf_counter``. What a snapshot costs is measured: the pause of the workers, and the
    seconds that a process of servers works on it in the background, as it may share its cores with workers.
    """

    def __init__(self) -> None:
        self._due_at = float("inf")
        self._pause_s = 0.0

    def begin(self, now: float) -> None:
        """Begin to train; the first snapshot is taken early, to measure it."""
        self._due_at = now + MIN_S

    def is_due(self, now: float) -> bool:
        """Return whether it is time for a snapshot."""
        return now >= self._due_at

    def paused(self, seconds: float) -> None:
        """Count the pause of the workers for a snapshot."""
        self._pause_s = seconds

    def end(self, now: float, background_s: float) -> None:
        """Schedule the snapshot after one that is complete."""
        self._due_at = now + max(MIN_S, (self._pause_s + background_s) / SHARE)

    def fail(self, now: float) -> None:
        """Schedule the snapshot after one that has failed."""
        self._due_at = now + FAILED_S
