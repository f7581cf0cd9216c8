"""UnitTasks: the Dask tasks that run the units of all jobs on a scheduler."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from distributed import Client, Future, Scheduler
from distributed.security import Security

from singa_dask.comm import Address
from singa_dask.errors import LostUnitError, is_out_of_memory, text_of
from singa_dask.runtime.job import events as ev
from singa_dask.runtime.job.job_record import JobRecord
from singa_dask.runtime.job.names import units_key
from singa_dask.runtime.job.site import run_units


class UnitTasks:
    """Starts and cancels the tasks of units, and hands over their reports.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    handle : callable
        (job id, event) hands an event to a job.
    """

    def __init__(self, scheduler: Scheduler, handle: Callable[[str, Any], None]) -> None:
        self._scheduler = scheduler
        self._handle = handle
        self._client: Client | None = None

    async def connect(self) -> None:
        """Connect the client that owns the tasks, unless that is done."""
        if self._client is None:
            security = as_client(self._scheduler.security, "scheduler")
            # asynchronous, on the scheduler's own loop
            self._client = Client(self._scheduler.address, asynchronous=True, set_as_default=False, security=security)
        await self._client

    async def close(self) -> None:
        """Close that client."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def run(self, record: JobRecord, action: ev.RunUnits) -> None:
        """Start the units of a process."""
        assert self._client is not None
        job_id = record.spec.job_id
        for i in range(action.n_tasks):
            units = action.units[i :: action.n_tasks]
            future = self._client.submit(
                run_units,
                job_id,
                action.life,
                action.process,
                [list(unit) for unit in units],
                list(action.endpoints),
                key=units_key(job_id, units[0], action.life),
                workers=[action.worker],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            record.futures[future] = (action.life, action.process)
            self._scheduler.loop.add_callback(self._follow, job_id, future, action.life, units)

    async def _follow(self, job_id: str, future: Future[Any], life: int, units: tuple[Address, ...]) -> None:
        """Wait for the reports of the units of a task."""
        try:
            reports = await future
        except Exception as error:  # units report their own errors, so Dask has lost the task
            if future.cancelled() or future.status == "lost":
                return
            reports = [{"state": "failed", "step": -1, **_explain(units[0], error)}]
        for unit, report in zip(units, reports, strict=False):
            self._handle(job_id, ev.Reported(life, unit, {**report, "unit": str(unit)}))

    async def cancel(self, record: JobRecord | None, up_to_life: int, process: int | None = None) -> None:
        """Release the tasks of lives of a job that are over, or of one process."""
        tasks = record.futures if record else {}
        old = [future for future, (life, of) in tasks.items() if life <= up_to_life and process in (None, of)]
        for future in old:
            del tasks[future]
        if old and self._client is not None:
            await self._client.cancel(old, force=True)


def _explain(unit: Address, error: BaseException) -> dict[str, Any]:
    """Describe the failure of a task without a result."""
    if is_out_of_memory(error):
        return {"reason": f"{unit}: {text_of(error)}", "error": "", "exit_code": 1, "expected": True, "retry": False}
    reason = f"{unit}: its task failed: {error!r}"
    return {
        "reason": reason,
        "error": repr(error),
        "exit_code": LostUnitError.exit_code,
        "expected": True,
        "retry": True,
    }


def as_client(security: Security, role: str) -> Security:
    """Return the security of a Dask process for a client in it; gateways give it no client's certificate.

    Parameters
    ----------
    security : distributed.Security
    role : {"scheduler", "worker"}
        Of the process, whose own certificate is used where there is none for clients.
    """
    own = security.get_tls_config_for_role(role)
    if security.get_tls_config_for_role("client")["cert"] or not own["cert"]:
        return security
    made = copy.copy(security)
    for name in ("cert", "key"):
        setattr(made, f"tls_client_{name}", own[name])
    return made
