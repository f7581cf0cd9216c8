"""Warn when a job has made no step for a long time."""

from __future__ import annotations

from collections.abc import Mapping

STALL_S = 60.0
"""Seconds without a step until the first warning. The time doubles with each further warning."""


class Stalls:
    """Watches the steps of one job."""

    def __init__(self) -> None:
        self._steps: Mapping[str, int] = {}
        self._since: float | None = None
        self._next = STALL_S

    def look(self, steps: Mapping[str, int], waits: Mapping[str, tuple[str, float]], now: float) -> str:
        """Return a warning if the job has made no step for a long time, else an empty string.

        Parameters
        ----------
        steps : mapping of str to int
            Step of each worker group.
        waits : mapping of str to (str, float)
            For each unit that waits, a description of the wait, e.g. ``"records"``, and its duration in seconds.
        now : float
            Current time in seconds.
        """
        if self._since is None or steps != self._steps:
            self._steps, self._since, self._next = dict(steps), now, STALL_S
        still = now - self._since
        if still < self._next:
            return ""
        self._next *= 2
        longest = sorted(waits.items(), key=lambda item: -item[1][1])
        said = "; ".join(f"{unit} waits for {what} ({seconds:.0f} s)" for unit, (what, seconds) in longest)
        return f"no step for {still:.0f} s. {said or 'No unit is waiting, so a step, test or startup is slow'}."
