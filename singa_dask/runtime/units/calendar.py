"""Calendar: the steps of tests, reports and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from singa_dask.conf import JobConf, Phase

__all__ = ["Calendar"]


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

    def tests(self, step: int) -> Iterator[tuple[Phase, int, bool]]:
        """Yield, for validation and test: the phase, its number of batches, and whether it is due before a step."""
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
