"""DetachedJob: a detached job, and the phases of its driver."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from singa_dask.fs.host_files import Catalog


class Phase(Enum):
    """Phase of the driver of a detached job."""

    WAITING = "no driver runs: the job is queued, or no Dask worker can run its driver"
    RUNNING = "a driver starts or runs on a Dask worker"
    ENDED = "the job was refused or stopped, or its run directory is complete"


NEXT = {
    Phase.WAITING: {Phase.WAITING, Phase.RUNNING, Phase.ENDED},
    Phase.RUNNING: {Phase.WAITING, Phase.RUNNING, Phase.ENDED},
    Phase.ENDED: set[Phase](),
}
"""The phases that may follow each phase. An ended job gets no driver again."""


@dataclass
class DetachedJob:
    """A detached job and its driver.

    Attributes
    ----------
    run : mapping
        Fields of the `JobRun`.
    host : str
        Host of the client. The paths of the job most likely exist there.
    number : int
        Number of the newest driver. Each new driver gets the next number.
    first_incarnation : int
        First incarnation of the job under this scheduler.
    incarnation : int
        Newest incarnation of the job; -1 before the first.
    phase : Phase
    worker : str
        Dask worker where the driver runs; empty if no driver runs.
    since : float
        Time at which the job began to wait for a Dask worker, got a driver or ended; 0 before.
    silent_since : float
        Time since which the Dask worker of the driver sends no heartbeats; 0 while it sends heartbeats.
    not_before : float
        Earliest time of the next start, if the last driver found that the job does not fit on the cluster.
    barred : dict of str to str
        For each Dask worker that could not run the driver, the reason.
    passing : str
        A reason in ``barred`` that may be temporary; empty if all reasons are permanent.
    failure : mapping
        Why the job was refused or stopped, or why its driver failed; empty otherwise.
    """

    run: Mapping[str, Any]
    host: str
    number: int = 0
    first_incarnation: int = 0
    incarnation: int = -1
    phase: Phase = Phase.WAITING
    worker: str = ""
    since: float = 0.0
    silent_since: float = 0.0
    not_before: float = 0.0
    barred: dict[str, str] = field(default_factory=dict)
    passing: str = ""
    failure: Mapping[str, Any] = field(default_factory=dict)

    @property
    def job_id(self) -> str:
        """Id of the job."""
        return str(self.run["job_id"])

    @property
    def catalogs(self) -> list[Catalog]:
        """The part files that the job reads."""
        return [Catalog.of(catalog) for catalog in self.run.get("datasets", ())]

    @property
    def has_ended(self) -> bool:
        """Whether the job needs no driver any more."""
        return self.phase is Phase.ENDED

    def drive(self, worker: str) -> None:
        """Assign the next driver to ``worker``. If ``worker`` is empty, wait for a Dask worker."""
        if worker or self.worker or not self.since:
            self.since = time.monotonic()
        self._enter(Phase.RUNNING if worker else Phase.WAITING, worker)
        self.number += bool(worker)

    def wait(self, seconds: float) -> None:
        """Wait for some seconds without a driver. Then all Dask workers may be tried again."""
        self._enter(Phase.WAITING)
        self.not_before = time.monotonic() + seconds
        self.passing = ""
        self.barred.clear()

    def bar(self, worker: str, why: str, passes: bool = False) -> None:
        """Record why a Dask worker could not run the driver, and whether the reason may be temporary."""
        self.barred[worker] = why
        if passes:
            self.passing = why

    def end(self, failure: Mapping[str, Any]) -> None:
        """End the job."""
        self._enter(Phase.ENDED)
        self.failure, self.since = failure, time.monotonic()

    def _enter(self, phase: Phase, worker: str = "") -> None:
        if phase not in NEXT[self.phase]:
            raise RuntimeError(f"{self.job_id}: {phase.name} cannot follow {self.phase.name}")
        self.phase, self.worker = phase, worker
