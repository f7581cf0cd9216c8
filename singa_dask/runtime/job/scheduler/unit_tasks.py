"""UnitTasks: start and cancel the Dask tasks that run units, and pass on their reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from dask.base import annotate
from distributed import Client, Future, Scheduler

from singa_dask.comm.message import Address
from singa_dask.errors import LostUnitError, is_out_of_memory, text_of
from singa_dask.runtime.job.client_security import as_client
from singa_dask.runtime.job.dask_worker.units_task import UnitsTask
from singa_dask.runtime.job.names import units_key
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev

MAX_CONNECTS = 5


class UnitTasks:
    """Starts and cancels the tasks of units, and passes on their reports.

    Parameters
    ----------
    handle : callable
        Called as ``handle(job_id, event)`` to pass an event to a job.
    """

    def __init__(self, scheduler: Scheduler, handle: Callable[[str, Any], None]) -> None:
        self._scheduler = scheduler
        self._handle = handle
        self._client: Client | None = None

    async def connect(self) -> None:
        """Connect the Dask client that owns the tasks, unless it is connected."""
        for n_left in reversed(range(MAX_CONNECTS)):
            if self._client is None:
                security, address = as_client(self._scheduler.security, "scheduler"), self._scheduler.address
                # the client is asynchronous, and runs on the scheduler's own loop
                self._client = Client(address, asynchronous=True, set_as_default=False, security=security)
            try:
                await self._client
                return
            except AssertionError:  # Dask expects a single message, but a broadcast arrived with it
                if not n_left:
                    raise
                await self.close()

    async def close(self) -> None:
        """Close the client that owns the tasks."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
            # distributed stops the loop runner only for synchronous clients; stop it here, too, or the loop of an
            # embedded cluster would remain
            client._loop_runner.stop()

    def run(self, record: JobRecord, actions: Sequence[act.RunUnits]) -> None:
        """Start the units of some processes in one graph; a graph for each process takes five times as long."""
        assert self._client is not None
        job_id, endpoints = record.spec.job_id, json.dumps(actions[0].endpoints)
        graph: dict[str, Any] = {}
        places: dict[str, str] = {}
        tasks: dict[str, tuple[act.RunUnits, tuple[Address, ...]]] = {}
        for action in actions:
            for i in range(action.n_tasks):
                units = action.units[i :: action.n_tasks]
                key = units_key(job_id, units[0], action.incarnation)
                graph[key] = (UnitsTask(job_id, action.incarnation, action.process, units, endpoints),)
                places[key], tasks[key] = action.worker, (action, units)
        with annotate(workers=places.__getitem__, allow_other_workers=False, retries=0):
            futures = self._client.get(graph, list(graph), sync=False)
        for future, (action, units) in zip(futures, tasks.values(), strict=True):
            record.futures[future] = (action.incarnation, action.process)
            self._scheduler.loop.add_callback(self._follow, job_id, future, action.incarnation, units)

    async def _follow(self, job_id: str, future: Future[Any], incarnation: int, units: tuple[Address, ...]) -> None:
        """Wait for the reports of a task, and pass them on."""
        try:
            reports = await future
        except Exception as error:  # units report their own errors, so this is an error of Dask
            if future.cancelled() or future.status == "lost":
                return
            reports = [{"state": "failed", "step": -1, **_explain_task(units[0], error)}]
        for unit, report in zip(units, reports, strict=False):
            self._handle(job_id, ev.Reported(incarnation, unit, {**report, "unit": str(unit)}))

    async def cancel(self, record: JobRecord | None, up_to_incarnation: int, process: int | None = None) -> None:
        """Cancel the tasks of a job's incarnations up to a given one.

        With ``process``, cancel only tasks of this process.
        """
        tasks = record.futures if record else {}
        old = [
            future
            for future, (incarnation, of) in tasks.items()
            if incarnation <= up_to_incarnation and process in (None, of)
        ]
        for future in old:
            del tasks[future]
        if old and self._client is not None:
            await self._client.cancel(old, force=True)


def _explain_task(unit: Address, error: BaseException) -> dict[str, Any]:
    """Return the report of a unit whose task failed without a result."""
    if is_out_of_memory(error):
        return {"reason": f"{unit}: {text_of(error)}", "error": "", "exit_code": 1, "expected": True, "retry": False}
    failure = {"reason": f"{unit}: its task failed: {error!r}", "error": repr(error)}
    return {**failure, "exit_code": LostUnitError.exit_code, "expected": True, "retry": True}
