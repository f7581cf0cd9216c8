"""Sites: the calls of the scheduler to the `Site` of each Dask worker."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from distributed import Scheduler
from distributed.utils import wait_for
from tornado.locks import Lock

from singa_dask.comm.loading import loading_message
from singa_dask.runtime.job import events as ev
from singa_dask.runtime.job.names import SITE, Op
from singa_dask.runtime.job.site import Site
from singa_dask.runtime.job.spec import JobSpec

__all__ = ["ASK_TIMEOUT_S", "Sites"]

HOST_TIMEOUT_S = 50.0
ASK_TIMEOUT_S = 5.0
RESTART_TIMEOUT_S = 10.0


class Sites:
    """Calls Dask workers; installs their `Site` when it is first needed. No call waits without end.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._installed: set[str] = set()
        self._installing: dict[str, Lock] = {}

    @property
    def workers(self) -> list[str]:
        """Dask workers that have a `Site`."""
        return sorted(self._installed)

    def forget(self, worker: str) -> None:
        """Forget a Dask worker that is gone."""
        self._installed.discard(worker)
        self._installing.pop(worker, None)

    async def ask(self, worker: str, timeout_s: float, op: str, **arguments: Any) -> Any:
        """Call a handler of a Dask worker; return its answer, or the exception."""
        message = {"op": op, **arguments}
        try:
            answers = await wait_for(
                self._scheduler.broadcast(msg=message, workers=[worker], on_error="return"), timeout_s
            )
        except Exception as error:
            return error
        return answers[worker]

    async def host(self, spec: JobSpec, action: ev.Host) -> Any:
        """Ask the `Site` of a Dask worker, which is installed if it is not there, to host a process."""
        failed = await self.install(action.worker)
        if failed is not None:
            return failed
        if buddy := action.placement["buddy"]:
            self._scheduler.loop.add_callback(self.install, buddy)
        job = {key: getattr(spec, key) for key in ("job_id", "job", "deals", "sources", "checkpoint_url", "init_from")}
        facts = {**job, "life": action.life, "process": action.process, **action.placement}
        return await self.ask(action.worker, HOST_TIMEOUT_S, Op.HOST, placement=facts)

    async def install(self, worker: str) -> BaseException | None:
        """Install the `Site` of a Dask worker if it is not there; return the error if that fails."""
        async with self._installing.setdefault(worker, Lock()):
            return await self._install(worker)

    async def _install(self, worker: str) -> BaseException | None:
        if worker not in self._installed:
            # loading takes seconds on a busy machine
            for message in (
                loading_message(Site.__module__),
                {"op": "plugin-add", "plugin": pickle.dumps(Site()), "name": SITE},
            ):
                answer = await self.ask(worker, HOST_TIMEOUT_S, **message)
                if isinstance(answer, BaseException):
                    return answer
            self._installed.add(worker)
        return None

    async def ask_process(self, job_id: str, action: ev.CutOff | ev.Join, op: str, **arguments: Any) -> dict[str, Any]:
        """Call a handler for one process of a job; return its answer, or an ``error``."""
        facts = {"job_id": job_id, "life": action.life, "process": action.process}
        answer = await self.ask(action.worker, ASK_TIMEOUT_S, op, **facts, **arguments)
        return answer if isinstance(answer, dict) else {"error": f"{action.worker} does not answer: {answer!r}."}

    async def restart(self, workers: Sequence[str]) -> None:
        """Restart those of some Dask workers that have a nanny, and no task or result of others."""
        known = self._scheduler.workers
        alone = [
            address
            for address in workers
            if address in known and known[address].nanny and not (known[address].processing or known[address].has_what)
        ]
        await self._scheduler.restart_workers(
            alone, timeout=RESTART_TIMEOUT_S, wait_for_workers=False, on_error="return", stimulus_id="units-do-not-end"
        )
