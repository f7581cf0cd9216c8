"""Evidence that a silent Dask worker is alive: processes elsewhere make steps that depend on it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping


class Evidence:
    """Finds out which silent Dask workers of a job are alive.

    A Dask worker is alive if another Dask worker reports steps of a worker group that depends on it.
    """

    def __init__(self) -> None:
        self._reached: dict[str, dict[str, int]] = {}
        self._alive_at: dict[str, float] = {}

    def look(self, told: Mapping[str, Mapping[str, int]], needed_by: Mapping[str, Collection[str]], now: float) -> None:
        """Record the steps that Dask workers report now.

        Parameters
        ----------
        told : mapping of str to mapping of str to int
            For each Dask worker of the job, the steps of worker groups that it reports, by group.
        needed_by : mapping of str to collection of str
            For each Dask worker, the worker groups that cannot make a step without it.
        now : float
            Current time in seconds.
        """
        # Group -> the two Dask workers that report its highest steps. Two are needed, because a Dask worker's own
        # report does not count as evidence for this Dask worker.
        leaders: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for address, steps in told.items():
            for group, step in steps.items():
                leaders[group] = sorted([*leaders[group], (step, address)])[-2:]
        reached = {}
        for address, groups in needed_by.items():
            others = {group: [step for step, other in leaders[group] if other != address] for group in groups}
            known = reached[address] = {group: max(steps, default=-1) for group, steps in others.items()}
            before = self._reached.get(address, known)
            if any(step > before.get(group, step) for group, step in known.items()):
                self._alive_at[address] = now
        self._reached = reached

    def is_alive(self, address: str, now: float, within_s: float) -> bool:
        """Return whether, in the last ``within_s`` seconds, a step was made that depends on a Dask worker."""
        return now - self._alive_at.get(address, -math.inf) < within_s
