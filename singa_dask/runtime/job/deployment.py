"""Deployment: the plug-ins, the event topic and the tasks of a job on a Dask cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from distributed import Client, Future
from distributed.client import ClosedClientError

from singa_dask import modules
from singa_dask.comm import Address
from singa_dask.conf import JobConf
from singa_dask.runtime.job.host_plugin import HostPlugin, host_address, host_unit
from singa_dask.runtime.job.job_plugin import JobPlugin, plugin_name
from singa_dask.runtime.planning.placement import Layout

__all__ = ["Deployment"]

logger = logging.getLogger(__name__)

# Errors of calls of a client whose scheduler is gone. A client that has given up has no scheduler and no workers.
GONE = (AttributeError, ClosedClientError, KeyError, OSError, RuntimeError)


class Deployment:
    """Installs one job on its Dask workers, and removes it again.

    Parameters
    ----------
    client : distributed.Client
    job_id : str
    layout : Layout

    Attributes
    ----------
    units : dict of distributed.Future to Address
        The task of each unit.
    """

    def __init__(self, client: Client, job_id: str, layout: Layout) -> None:
        self.units: dict[Future[Any], Address] = {}
        self._client = client
        self._job_id = job_id
        self._layout = layout
        self._name = plugin_name(job_id)
        self._workers: list[str] = []

    def host(
        self,
        job: JobConf,
        workers: Sequence[str],
        deals: Mapping[str, Sequence[int]],
        sources: Sequence[modules.Source],
        on_event: Callable[[dict[str, Any]], None],
    ) -> list[str]:
        """Start a `UnitHost` on each Dask worker; return their addresses.

        Parameters
        ----------
        job : JobConf
        workers : sequence of str
            Address of the Dask worker of each process.
        deals : mapping of str to sequence of int
            By input layer: the order in which its blocks are dealt.
        sources : sequence of Source
            The user's own modules.
        on_event : callable
            Takes each event of the job, in a thread of the client.

        Raises
        ------
        UnitError
            A process cannot host its units, as a module of the user cannot be loaded there.
        """
        self._workers = list(workers)
        client = self._client
        client.subscribe_topic(self._name, lambda event: on_event(event[1]))
        client.register_plugin(JobPlugin(self._job_id, self._workers, client.id), name=self._name)
        plugin = HostPlugin(self._job_id, job.model_dump_json(), self._workers, deals, sources)
        client.register_plugin(plugin, name=self._name)
        addresses = client.run(host_address, self._job_id, workers=self._workers)
        return [addresses[worker] for worker in self._workers]

    def submit(self, on_done: Callable[[Future[Any]], None], *args: Any) -> None:
        """Start a task for each unit.

        Parameters
        ----------
        on_done : callable
            Takes the future of a task that has ended, in a thread of the client.
        *args
            Of `host_unit`, after the unit.
        """
        for unit, process in self._layout.process_of.items():
            future = self._client.submit(
                host_unit,
                self._job_id,
                tuple(unit),
                *args,
                key=f"{self._name}-{unit}",
                workers=[self._workers[process]],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            self.units[future] = unit
            future.add_done_callback(on_done)

    def signal(self, action: str, reason: str = "") -> None:
        """Send an action, stop or abort, to every host that is still there."""
        message = {"op": self._name, "action": action, "reason": reason}
        scheduler: Any = self._client.scheduler
        try:
            present = set(self._client.scheduler_info(n_workers=-1)["workers"])
            workers = [worker for worker in self._workers if worker in present]
            self._client.sync(scheduler.broadcast, msg=message, workers=workers, on_error="ignore")
        except GONE as error:  # the scheduler is gone; Dask ends the tasks
            logger.debug("%s: %s", action, error)

    def restart(self, units: Collection[Address]) -> str:
        """Restart the Dask workers of some units; return why that failed, empty if it did not."""
        processes = {self._layout.process_of[unit] for unit in units}
        try:
            self._client.restart_workers([self._workers[process] for process in processes], timeout=10)
        except (*GONE, ValueError, TimeoutError) as error:
            return f"Dask workers could not be restarted: {error}"
        return ""

    def remove(self) -> None:
        """Remove every task, plug-in and topic of the job."""
        client = self._client
        for undo in (
            partial(client.unsubscribe_topic, self._name),
            partial(client.cancel, list(self.units), force=True),
            partial(client.unregister_worker_plugin, self._name),
            partial(client.unregister_scheduler_plugin, self._name),
        ):
            try:
                undo()
            except (*GONE, ValueError) as error:  # it did not exist, or the scheduler is gone
                logger.debug("%s: %s", self._name, error)
        self.units.clear()
