"""Host one process of a job on a Dask worker, and read the stacks of its units."""

from __future__ import annotations

import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from singa_dask import fs
from singa_dask.comm.message import Address
from singa_dask.conf import ClusterConf, JobConf
from singa_dask.data.tables.scaling import Scaling
from singa_dask.errors import DataError
from singa_dask.fs.ownership import Ownership
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.state.submission import JobSpec
from singa_dask.runtime.planning.layout import Layout, Rejoin
from singa_dask.runtime.units.run_unit import run_unit
from singa_dask.runtime.units.unit_host import UnitHost


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The description of a process for the Dask worker that hosts it, as plain values.

    Attributes
    ----------
    token : str
        Secret that protects the endpoints of the job.
    incarnation, process : int
        The incarnation in which the process starts, and the number of the process in the job.
    processes : sequence of sequence of Address
        The units of each process.
    workers : sequence of str
        The Dask worker of each process.
    full_incarnation : int
        The last incarnation in which all processes started together.
    threads : int or None
        Number of threads of each worker.
    silent_s : float
        Seconds without an answer after which another process counts as lost.
    start, buddy
        See `act.Host`.
    rejoin : sequence of sequence or None
        Fields of `Rejoin`; None if all processes start together.
    """

    spec: JobSpec
    token: str
    incarnation: int
    process: int
    processes: Sequence[Sequence[Sequence[Any]]]
    workers: Sequence[str]
    full_incarnation: int
    threads: int | None
    silent_s: float
    start: Mapping[str, Any]
    buddy: str
    rejoin: Sequence[Sequence[Any]] | None


class Hosting(UnitHost):
    """Hosts one process of one incarnation of a job on a Dask worker.

    Parameters
    ----------
    job : JobConf
        The parsed job of the placement.
    **options
        Other arguments of `UnitHost`.

    Attributes
    ----------
    key : tuple of str and int
        Id of the job and number of the process.
    buddy : str
        Dask worker that keeps a second copy of the process's snapshots. The buddy may change.
    last_request : int
        Number of the newest `act.CutOff` or `act.Join` that the process has received.
    reports : dict of str to dict
        Report of each unit that has ended.
    mounts : ExitStack
        Context in which the part files of the job are readable. The context is closed with the process.
    """

    def __init__(self, placement: Placement, job: JobConf, **options: Any) -> None:
        processes = tuple(tuple(Address(*unit) for unit in units) for units in placement.processes)
        if not placement.buddy and job.cluster.snapshot_freq is None:
            # without a buddy, snapshots would be lost together with the process, so take none
            cluster = ClusterConf.model_validate({**job.cluster.model_dump(), "snapshot_freq": 0})
            job = job.model_copy(update={"cluster": cluster})
        super().__init__(
            placement.spec.job_id,
            placement.process,
            job,
            assignments=placement.spec.assignments,
            scalings={name: Scaling.from_dict(scaling) for name, scaling in placement.spec.scalings.items()},
            layout=Layout(processes, job.cluster),
            incarnation=placement.incarnation,
            checkpoint_url=fs.join(placement.spec.run_url, "checkpoint"),
            rejoin=_rejoin_of(*placement.rejoin) if placement.rejoin else None,
            threads=placement.threads,
            **options,
        )
        self.placement = placement
        self.buddy = placement.buddy
        self.last_request = 0
        self.key = self.job_id, self.process
        self.reports: dict[str, dict[str, Any]] = {}
        self.mounts = ExitStack()
        self._n_running = 0
        self._is_closed = False
        self._changed = threading.Condition()

    @property
    def n_threads(self) -> int:
        """Number of threads of each worker in this process; 0 if it has no worker."""
        has_worker = any(unit.kind == "worker" for unit in self.local)
        return self.devices.n_threads if has_worker else 0

    def run(
        self, unit: Address, endpoints: Sequence[str], start_point: Callable[[], str | Checkpoint | None]
    ) -> dict[str, Any]:
        """Run a unit to its end, and return its report.

        Parameters
        ----------
        endpoints : sequence of str
            Address of each process.
        start_point : callable
            Returns the checkpoint to start from; see `SnapshotExchange.start_point`.
        """
        with self._changed:
            if self._is_closed:
                return {"state": "aborted", "step": -1}
            self._n_running += 1
        try:
            self.router.connect(endpoints)
            report = run_unit(self, unit, start_point(), self.placement.spec.init_from)
            self.reports[str(unit)] = report
            return report
        finally:
            with self._changed:
                self._n_running -= 1
                self._changed.notify_all()

    def warn_if_unseen(self) -> None:
        """Warn if this host cannot reach the run directory: checkpoints then cannot be completed."""
        url, worker = self.placement.spec.run_url, self.placement.workers[self.process]
        if not url or fs.local_path(url) is None:
            return
        try:
            if Ownership(url, self.job_id).is_taken():
                return
            why = "does not see the run directory of the job"
        except DataError as error:
            why = f"cannot read the run directory of the job: {error}"
        message = (
            f"{url}: the Dask worker {worker} on {socket.gethostname()}, where units are placed now, {why}. No "
            "checkpoint can be completed. Mount the directory there, or retire this Dask worker."
        )
        event = {"event": "log", "unit": str(self.local[0]), "level": "WARNING", "time": time.time()}
        self.emit({**event, "message": message})

    def end(self, reason: str) -> bool:
        """End all units, and free the resources of the process; return whether the units have ended in time."""
        with self._changed:
            self._is_closed = True
        self.abort({"reason": reason}, tell=False)
        has_ended = self.wait(limit("end"))
        self.close()
        self.mounts.close()
        return has_ended

    def wait(self, timeout_s: float) -> bool:
        """Wait until no unit runs; return False if units still run after ``timeout_s`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._n_running, timeout_s)


def _rejoin_of(running: Sequence[Any], left: Sequence[Any], steps: Sequence[Sequence[int]]) -> Rejoin:
    def units(plain: Sequence[Any]) -> frozenset[Address]:
        return frozenset(Address(*unit) for unit in plain)

    return Rejoin(units(running), units(left), {group: step for group, step in steps})


def stacks_of(hostings: Iterable[Hosting]) -> dict[str, dict[str, Any]]:
    """Return the Python stack of each unit, and a description of its wait; see `Views.stacks`."""
    frames = sys._current_frames()
    stacks: dict[str, dict[str, Any]] = {}
    for hosting in hostings:
        waits = hosting.waits()
        for name, thread in list(hosting.threads.items()):
            frame = frames.get(thread.ident or 0)
            if frame is None:
                stacks[name] = {"error": "it has ended"}
            else:
                lines = [line for entry in traceback.format_stack(frame) for line in entry.splitlines()]
                stacks[name] = {"stack": lines, "wait": waits.get(name)}
    return stacks
