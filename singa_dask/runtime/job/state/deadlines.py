"""Deadlines: the waits of a job, and the deadline of each wait."""

from __future__ import annotations

from singa_dask.runtime.job.limits import limit

WAITS = {
    "start": "all units have started; if they have not in time, the incarnation fails",
    "ended": "the units of an ended incarnation have ended; if they have not in time, the job continues without them",
    "stop": "a job that lost its client has stopped with a checkpoint; if it has not in time, it fails",
    "aborted": "a failed unit explains why others were aborted; if none does in time, the job restarts",
    "pause": "the pause after a restart without progress is over, so that units are placed again",
    "losses": "all Dask workers that were lost together are found silent, so that units are placed again",
}
"""For each wait of a `JobState`: its end, and the effect if the deadline passes first. A `Move` and a `Replacement`
have deadlines of their own."""


class Deadlines:
    """The deadlines of the `WAITS` of one job. Each wait has at most one deadline."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}

    def begin(self, wait: str, now: float, seconds: float | None = None) -> None:
        """Begin a wait of ``seconds``; the default is the limit with the same name as the wait."""
        assert wait in WAITS
        self._ends[wait] = now + (limit(wait) if seconds is None else seconds)

    def end(self, *waits: str) -> None:
        """End waits, whether they have begun or not."""
        for wait in waits:
            self._ends.pop(wait, None)

    def __contains__(self, wait: str) -> bool:
        return wait in self._ends

    def has_passed(self, wait: str, now: float) -> bool:
        """Return whether a wait has begun, and its deadline has passed."""
        return wait in self._ends and now >= self._ends[wait]

    def is_waiting(self, wait: str, now: float) -> bool:
        """Return whether a wait has begun, and its deadline is still to come."""
        return wait in self._ends and now < self._ends[wait]
