"""Calls from the scheduler to the plug-ins of Dask workers."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from distributed import Scheduler, WorkerPlugin
from distributed.comm.addressing import get_address_host
from distributed.core import clean_exception
from distributed.protocol.serialize import Serialize, Serialized, deserialize
from distributed.utils import wait_for
from tornado import gen, util
from tornado.locks import Lock

from singa_dask.comm.remote_import import cannot_load, loading_message
from singa_dask.errors import UnloadableError, text_of
from singa_dask.fs.host_files import Catalog
from singa_dask.runtime.job.dask_worker.site import Site
from singa_dask.runtime.job.driver.driver_host import DriverHost
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import DRIVERS, SITE, Op
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state.submission import JobSpec

PLUGINS: dict[str, type[WorkerPlugin]] = {SITE: Site, DRIVERS: DriverHost}
"""The plug-ins of Dask workers, by name."""


class Sites:
    """Calls Dask workers, with timeouts, and installs the worker plug-ins when they are first needed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._installed: dict[str, set[str]] = {name: set() for name in PLUGINS}
        self._installing: dict[str, Lock] = {}

    @property
    def workers(self) -> Collection[str]:
        """Dask workers that have a `Site`."""
        return self._installed[SITE]

    def forget(self, worker: str) -> None:
        """Forget a Dask worker that is gone."""
        for installed in self._installed.values():
            installed.discard(worker)
        self._installing.pop(worker, None)

    async def ask(self, worker: str, timeout_s: float, op: str, **arguments: Any) -> Any:
        """Call a handler of a Dask worker; return its answer, or an exception (which is not raised)."""
        message = {"op": op, **arguments}
        try:
            answers = await wait_for(
                self._scheduler.broadcast(msg=message, workers=[worker], on_error="return"), timeout_s
            )
        except Exception as error:
            return error
        answer = answers[worker]
        # Dask's own handlers report an error in this form
        if isinstance(answer, dict) and answer.get("status") == "error":
            return _error_of(answer["exception"])
        return answer

    async def ask_all(self, workers: Iterable[str], timeout_s: float, op: str, **arguments: Any) -> dict[str, Any]:
        """Call a handler of several Dask workers at once; return the answers, or exceptions, by address."""
        workers = list(workers)
        answers = await gen.multi([self.ask(each, timeout_s, op, **arguments) for each in workers])
        return dict(zip(workers, answers, strict=True))

    def share(self, record: JobRecord, action: act.Host) -> None:
        """Prepare the description that all processes of an incarnation get, as JSON in ``record.placements``."""
        roster, rejoin = action.roster, action.rejoin
        placement = {
            "spec": asdict(record.spec),
            "processes": roster.layout.processes,
            "workers": roster.workers,
            "full_incarnation": roster.full_incarnation,
            "threads": roster.threads or None,
            "silent_s": limit("silent"),
            "start": action.start,
            "rejoin": rejoin and [sorted(rejoin.running), sorted(rejoin.left), list(rejoin.steps.items())],
        }
        record.placements = {action.incarnation: json.dumps(placement)}

    async def host(self, record: JobRecord, action: act.Host) -> dict[str, Any]:
        """Ask the `Site` of a Dask worker to host a process, unless its incarnation has ended.

        Returns the fields of `ev.Hosted`.
        """
        failed = await self.install(action.worker)
        if failed is not None:
            return _explain(failed)
        if buddy := action.buddy:
            ready = gen.convert_yielded(self.install(buddy))
            with contextlib.suppress(util.TimeoutError):
                await gen.with_timeout(timedelta(seconds=limit("buddy")), ready)
        # the incarnation may have ended during the awaits above
        placement = record.placements.get(action.incarnation)
        if placement is None or not record.state.is_current(action.process, action.incarnation):
            return {"error": f"incarnation {action.incarnation} of the job is over"}
        facts = {
            "job_id": record.spec.job_id,
            "incarnation": action.incarnation,
            "process": action.process,
            "buddy": buddy,
            "token": record.token,
            "placement": placement,
        }
        answer = await self.ask(action.worker, limit("host"), Op.HOST, **facts)
        return _explain(answer) if isinstance(answer, BaseException) else dict(answer)

    async def install(self, worker: str, name: str = SITE) -> BaseException | None:
        """Install one of the `PLUGINS` on a Dask worker unless it is installed; return the error of a failure."""
        installed = self._installed[name]
        if worker in installed:
            return None
        plugin, known = PLUGINS[name], self._scheduler.workers.get(worker)
        add = {"op": "plugin-add", "plugin": pickle.dumps(plugin()), "name": name}
        async with self._installing.setdefault(worker, Lock()):
            for message in () if worker in installed else (loading_message(plugin.__module__), add):
                answer = await self.ask(worker, limit("host"), **message)  # on a busy machine, loading takes seconds
                if known is None or self._scheduler.workers.get(worker) is not known:
                    return OSError("it is gone")  # another Dask worker may have its address now
                if isinstance(answer, ImportError):
                    return UnloadableError(cannot_load("Dask worker", answer))
                if isinstance(answer, BaseException):
                    return answer
            installed.add(worker)
        return None

    async def ask_process(self, job_id: str, action: act.CutOff | act.Join, op: str) -> dict[str, Any]:
        """Send an action to one process of a job; return its answer, or an ``error``."""
        facts = action._asdict()
        answer = await self.ask(facts.pop("worker"), limit("answer"), op, job_id=job_id, **facts)
        return answer if isinstance(answer, dict) else {"error": f"{action.worker} does not answer: {answer!r}."}

    async def servers(self, worker: str) -> list[str]:
        """Return the Dask workers on the host of ``worker`` that have a `Site` and can serve its part files.

        ``worker`` itself may be gone. Dask workers that do not load the package within the limit ``host`` are missing.
        """
        near = sorted(self._on_hosts({get_address_host(worker)}), key=lambda address: address != worker)
        installing = {address: gen.convert_yielded(self.install(address)) for address in near}
        with contextlib.suppress(util.TimeoutError):  # late installations continue in the background
            await gen.with_timeout(timedelta(seconds=limit("host")), gen.multi(list(installing.values())))
        return [address for address, task in installing.items() if task.done() and task.result() is None]

    def _on_hosts(self, hosts: Collection[str]) -> list[str]:
        return [address for address, known in self._scheduler.workers.items() if known.host in hosts]

    async def end_job(self, spec: JobSpec, incarnation: int) -> None:
        """Remove a job's part files, and units and snapshots of all its incarnations, from Dask workers."""
        facts = {"job_id": spec.job_id, "incarnation": incarnation, "reason": "the job is over", "forget": True}
        await self.ask_all(self.workers, limit("answer"), Op.END, **facts)
        await self.drop(spec.catalogs)

    async def drop(self, catalogs: Sequence[Catalog]) -> None:
        """Delete the part files of catalogs on their hosts."""
        if catalogs:
            hosts = {get_address_host(file.worker) for catalog in catalogs for file in catalog.files}
            await gen.multi([self.install(address) for address in self._on_hosts(hosts)])
            tokens = [catalog.token for catalog in catalogs]
            await self.ask_all(self.workers, limit("part"), Op.DROP, tokens=tokens)

    async def restart(self, workers: Sequence[str]) -> None:
        """Restart each of ``workers`` that has a nanny, and holds neither Dask tasks nor results."""
        known = self._scheduler.workers
        alone = [
            address
            for address in workers
            if address in known and known[address].nanny and not (known[address].processing or known[address].has_what)
        ]
        await self._scheduler.restart_workers(
            alone, timeout=limit("question"), wait_for_workers=False, on_error="return", stimulus_id="units-do-not-end"
        )


def _error_of(packed: Any) -> BaseException:
    """Return the exception that one of Dask's own handlers has packed in its answer."""
    if isinstance(packed, Serialized):
        packed = deserialize(packed.header, packed.frames)
    _, error, _ = clean_exception(packed.data if isinstance(packed, Serialize) else packed)
    return error or RuntimeError("an unknown error")


def _explain(error: BaseException) -> dict[str, Any]:
    """Return the fields of `ev.Hosted` for an error of a Dask worker."""
    return {"error": text_of(error), "lasting": isinstance(error, UnloadableError)}
