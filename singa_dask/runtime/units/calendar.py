"""Calendar: what a job does at which step besides training."""

from __future__ import annotations

from collections.abc import Iterator

from singa_dask.conf import JobConf, Phase

__all__ = ["Calendar"]


class Calendar:
    """Says what is due at a step.

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
        """Yield each phase of tests, how many batches a test has, and whether there is one before a step."""
        for phase, freq, after, n in self._tests:
            yield phase, n, _is_due(step, freq, after)

    def shows(self, step: int) -> bool:
        """Say whether the metrics of training are shown after a step."""
        return _is_due(step, self._job.disp_freq, self._job.disp_after)

    def saves(self, step: int) -> bool:
        """Say whether there is a checkpoint before a step."""
        return _is_due(step, self._job.checkpoint_freq, self._job.checkpoint_after)


def _is_due(step: int, freq: int, after: int) -> bool:
    """Say whether something that happens every ``freq`` steps, from step ``after`` on, is due at ``step``."""
    return freq > 0 and step >= after and (step - after) % freq == 0
