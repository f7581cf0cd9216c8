"""Hosting: one process of a job on a Dask worker, from the call to host it until nothing of it is left."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.comm import Address
from singa_dask.comm.secret import Secret
from singa_dask.conf import ClusterConf, JobConf, ListenConf
from singa_dask.data.codecs.scaling import Scaling
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.planning.placement import Layout
from singa_dask.runtime.units.initial_state import Rejoin
from singa_dask.runtime.units.unit import run_unit
from singa_dask.runtime.units.unit_host import UnitHost

END_TIMEOUT_S = 8.0


class Hosting:
    """One process of a job in one life, on a Dask worker.

    Parameters
    ----------
    placement : mapping
        What `Jobs` has sent; see `Site.host`.

    Attributes
    ----------
    host : UnitHost
        Set by `start`.
    key : tuple of str and int
        The job and the process.
    reports : dict of str to dict
        Of the units that have ended.
    datasets : list
        Catalogs of the part files that the job reads, as plain values.
    mounts : ExitStack
        Closed at the end: what makes them readable here.
    listen : ListenConf
        Of the job, from `build` on.
    """

    def __init__(self, placement: Mapping[str, Any]) -> None:
        self.job_id: str = placement["job_id"]
        self.life: int = placement["life"]
        self.process: int = placement["process"]
        self.workers: list[str] = list(placement["workers"])
        self.buddy: str = placement["buddy"]
        self.term: int = placement["term"]
        self.rejoin = _rejoin_of(placement["rejoin"])
        self.start_from: Mapping[str, Any] = placement["start"]
        self.checkpoint_url: str = placement["checkpoint_url"]
        self.init_from: list[str] = list(placement["init_from"])
        self.sources = [modules.Source(*source) for source in placement["sources"]]
        self.key = self.job_id, self.process
        self.reports: dict[str, dict[str, Any]] = {}
        self.host: UnitHost
        self.secret: Secret = placement["secret"]
        self.listen = ListenConf()
        self.datasets: list[Any] = list(placement["datasets"])
        self.mounts = ExitStack()
        self._placement = placement
        self._n_running = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def build(self, **given: Any) -> None:
        """Build the `UnitHost`; ``given`` are its other arguments."""
        placement = self._placement
        processes = tuple(tuple(Address(*unit) for unit in units) for units in placement["processes"])
        job = JobConf.from_json(placement["job"], REGISTRIES)
        if not self.buddy and job.cluster.snapshot_freq is None:
            # nobody would have the snapshots of a process that is lost
            cluster = ClusterConf.model_validate({**job.cluster.model_dump(), "snapshot_freq": 0})
            job = job.model_copy(update={"cluster": cluster})
        self.listen = job.cluster.listen
        self.host = UnitHost(
            self.job_id,
            self.process,
            job,
            deals=placement["deals"],
            scalings={name: Scaling.from_dict(each) for name, each in placement["scalings"].items()},
            layout=Layout(processes, job.cluster),
            life=self.life,
            rejoin=self.rejoin,
            threads=placement["threads"],
            **given,
        )

    @property
    def threads(self) -> int:
        """Threads of each worker here; 0 if there is no worker."""
        has_worker = any(unit.kind == "worker" for unit in self.host.local)
        return self.host.devices.n_threads if has_worker else 0

    def run(self, unit: Address, endpoints: Sequence[str], resume: str | Checkpoint | None) -> dict[str, Any]:
        """Run a unit in this thread; return its report."""
        with self._changed:
            if self._is_closed:
                return {"state": "aborted", "step": -1}
            self._n_running += 1
        try:
            self.host.connect(endpoints)
            report = run_unit(self.host, unit, self.checkpoint_url, resume, self.init_from)
            self.reports[str(unit)] = report
            return report
        finally:
            with self._changed:
                self._n_running -= 1
                self._changed.notify_all()

    def end(self, reason: str) -> bool:
        """End all units, and close the host; return whether they have ended in time."""
        with self._changed:
            self._is_closed = True
        self.host.abort({"reason": reason}, tell=False)
        has_ended = self.wait(END_TIMEOUT_S)
        self.host.close()
        self.mounts.close()
        return has_ended

    def wait(self, timeout_s: float) -> bool:
        """Wait until no unit runs; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._n_running, timeout_s)


def _rejoin_of(facts: Mapping[str, Any] | None) -> Rejoin | None:
    if facts is None:
        return None
    running, left = (frozenset(Address(*unit) for unit in facts[key]) for key in ("running", "left"))
    return Rejoin(running, left, {int(group): int(step) for group, step in facts["steps"]})
