"""UnitsTask: the Dask task that runs units of a process in threads of its Dask worker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from distributed import get_worker

from singa_dask.comm.message import Address
from singa_dask.fs.daemon_threads import DaemonThreads
from singa_dask.runtime.job.dask_worker.site import Site
from singa_dask.runtime.job.names import SITE


@dataclass(frozen=True)
class UnitsTask:
    """A Dask task that runs units of a process, and returns their reports.

    Attributes
    ----------
    units : sequence of Address
        The units that this task runs, each in a thread.
    endpoints : str
        Addresses of all processes, as JSON. All tasks of an incarnation share this text.
    """

    job_id: str
    incarnation: int
    process: int
    units: Sequence[tuple[str, int, int]]
    endpoints: str

    def __call__(self) -> list[dict[str, Any]]:
        """Run the units."""
        site = get_worker().plugins[SITE]
        assert isinstance(site, Site)
        hosting = site.hostings.get((self.job_id, self.process))
        if hosting is None or hosting.incarnation != self.incarnation:
            return [{"state": "aborted", "step": -1} for _ in self.units]
        endpoints, start = json.loads(self.endpoints), partial(site.snapshots.start_point, hosting)
        threads = DaemonThreads(len(self.units), "units")
        reports = [threads.future(partial(hosting.run, Address(*unit), endpoints, start)) for unit in self.units]
        try:
            return [report.result() for report in reports]
        finally:
            threads.close()

    def __dask_tokenize__(self) -> tuple[str, int, int]:
        # By default, Dask would hash all units to name the task. This would take most of the time of a start.
        return self.job_id, self.incarnation, self.process
