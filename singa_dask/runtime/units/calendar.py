"""Calendar: the steps of tests, reports and checkpoints; and when snapshots are due by time."""

from __future__ import annotations

from collections.abc import Iterator

from singa_dask.conf import JobConf, Phase


class Calendar:
    """Decides what is due at a step.

    Parameters
    ----------
    job : JobConf
    """

    def __init__(self, job: JobConf) -> None:
        self._job = job
        self._tests = (
            (Phase.VALIDATION, job.validate_freq, job.validate_after, job.validate_steps),
            (Phase.TEST, job.test_freq, job.test_after, job.test_steps),
        )

    def tests(self, step: int) -> Iterator[tuple[Phase, int | None, bool]]:
        """Yield, for validation and test: the phase, its number of batches, and whether it is due before a step.

        The number is None where every record counts once.
        """
        for phase, freq, after, n in self._tests:
            yield phase, n, _is_due(step, freq, after)

    def shows(self, step: int) -> bool:
        """Return whether the metrics of training are reported after a step."""
        return _is_due(step, self._job.disp_freq, self._job.disp_after)

    def saves(self, step: int) -> bool:
        """Return whether a checkpoint is due before a step."""
        return _is_due(step, self._job.checkpoint_freq, self._job.checkpoint_after)

    def takes_snapshot(self, step: int) -> bool:
        """Return whether the job wants a snapshot before a step."""
        return _is_due(step, self._job.cluster.snapshot_freq or 0, 0)


def _is_due(step: int, freq: int, after: int) -> bool:
    """Return whether something that happens every ``freq`` steps, from step ``after`` on, is due at ``step``."""
    return freq > 0 and step >= after and (step - after) % freq == 0


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
