"""Life: the units of a job from one placement to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from singa_dask.comm import Address
from singa_dask.runtime.job.replacing import Roster

__all__ = ["Life"]


@dataclass
class Life:
    """What is known of one life of a job.

    Attributes
    ----------
    roster : Roster
    endpoints : dict of int to str
        Where each process is reached, once it is hosted.
    started : set of str
        Units that run.
    reports : dict of str to dict
        Of the units that have ended.
    ending : set of str
        Dask workers that have not ended their units yet.
    """

    roster: Roster
    endpoints: dict[int, str] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    ending: set[str] = field(default_factory=set)

    def units_on(self, worker: str) -> tuple[Address, ...]:
        """Return the units on a Dask worker."""
        process = self.roster.process_on(worker)
        return () if process is None else self.roster.layout.processes[process]

    def known_step(self, steps: Mapping[str, int]) -> int:
        """Return the newest step that is known, from reports and from the ``steps`` of worker groups; else -1."""
        reported = [int(each.get("step", -1)) for each in self.reports.values()]
        return max([*reported, *steps.values(), -1])
