"""Move: the units of a job are about to move to other Dask workers."""

from __future__ import annotations

from typing import Literal

from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.state import actions as act


class Move:
    """A move of all units to other Dask workers, which begins once their state is saved.

    Parameters
    ----------
    why : str
        Why the units move, for messages.
    is_urgent : bool
        True if a Dask worker leaves: then units move at the deadline even if their state is not saved.
    step : int
        Step that the job has reached. A snapshot or checkpoint of an earlier step was not requested for this move.
    """

    def __init__(self, why: str, is_urgent: bool, step: int) -> None:
        self.why = why
        self.is_urgent = is_urgent
        self.step = step
        self._deadline = float("inf")

    def save(self, what: Literal["snapshot", "checkpoint"], now: float, first_worker: str) -> act.Request:
        """Return the request to save the state of the units, and wait for it from ``now``."""
        self._deadline = now + limit("hand-over")
        return act.Request(first_worker, what)

    def is_late(self, now: float) -> bool:
        """Return whether the state was not saved in time."""
        return now >= self._deadline

    def is_ready(self, step: int) -> bool:
        """Return whether the units can move, now that a snapshot or checkpoint of ``step`` is complete."""
        return step >= self.step
