"""Sites: the calls of the scheduler to the `Site` of each Dask worker."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from distributed import Scheduler, WorkerPlugin
from distributed.comm.addressing import get_address_host
from distributed.protocol.serialize import to_serialize
from distributed.utils import wait_for
from tornado import gen, util
from tornado.locks import Lock

from singa_dask.comm.loading import loading_message
from singa_dask.comm.secret import Secret
from singa_dask.data.fs.host_files import Catalog
from singa_dask.errors import text_of
from singa_dask.runtime.job import events as ev
from singa_dask.runtime.job.names import SITE, Op
from singa_dask.runtime.job.site import Site
from singa_dask.runtime.job.spec import JobSpec
from singa_dask.version import __version__

HOST_TIMEOUT_S = 50.0
ASK_TIMEOUT_S = 5.0
RESTART_TIMEOUT_S = 10.0
DROP_TIMEOUT_S = 60.0
# a process may send its first snapshot soon; a buddy that hangs holds up its start no longer than this
BUDDY_TIMEOUT_S = 2.0


class Plugin(NamedTuple):
    """A plug-in of Dask workers, as it is sent to them.

    Attributes
    ----------
    name, module : str
        Its name, and the module that has it.
    pickled : bytes
    """

    name: str
    module: str
    pickled: bytes

    @classmethod
    def of(cls, plugin: WorkerPlugin) -> Plugin:
        """Make one of a plug-in with a name."""
        return cls(str(getattr(plugin, "name", "")), type(plugin).__module__, pickle.dumps(plugin))


SITE_PLUGIN = Plugin.of(Site())


class Sites:
    """Calls Dask workers; installs their plug-ins when they are first needed. No call waits without end.

    Parameters
    ----------
    scheduler : distributed.Scheduler

    Attributes
    ----------
    handlers : dict of str to callable
        By operation, for the scheduler.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._installed: dict[str, set[str]] = {SITE: set()}
        self._installing: dict[str, Lock] = {}
        self.handlers: dict[str, Callable[..., Any]] = {Op.SERVERS: self.servers}

    @property
    def workers(self) -> list[str]:
        """Dask workers that have a `Site`."""
        return sorted(self._installed[SITE])

    def forget(self, worker: str) -> None:
        """Forget a Dask worker that is gone."""
        for installed in self._installed.values():
            installed.discard(worker)
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

    async def ask_all(self, workers: Sequence[str], timeout_s: float, op: str, **arguments: Any) -> dict[str, Any]:
        """Call a handler of some Dask workers at the same time; return the answers, or exceptions, by address."""
        answers = await gen.multi([self.ask(each, timeout_s, op, **arguments) for each in workers])
        return dict(zip(workers, answers, strict=True))

    async def host(self, spec: JobSpec, secret: Secret, action: ev.Host, is_over: Callable[[], bool]) -> dict[str, Any]:
        """Ask the `Site` of a Dask worker, which is installed if it is not there, to host a process.

        It is not asked if the life ``is_over`` by then. Return the fields of `ev.Hosted`.
        """
        failed = await self.install(action.worker)
        if failed is not None:
            return _explain(failed)
        if is_over():
            return {"error": f"life {action.life} of the job is over"}
        if buddy := action.placement["buddy"]:
            ready = gen.convert_yielded(self.install(buddy))
            with contextlib.suppress(util.TimeoutError):
                await gen.with_timeout(timedelta(seconds=BUDDY_TIMEOUT_S), ready)
        keys = ("job_id", "job", "deals", "sources", "checkpoint_url", "init_from", "datasets", "scalings")
        job = {key: getattr(spec, key) for key in keys}
        facts = {**job, "life": action.life, "process": action.process, "secret": to_serialize(secret)}
        answer = await self.ask(action.worker, HOST_TIMEOUT_S, Op.HOST, placement={**facts, **action.placement})
        return _explain(answer) if isinstance(answer, BaseException) else dict(answer)

    async def install(self, worker: str, plugin: Plugin = SITE_PLUGIN) -> BaseException | None:
        """Install a plug-in on a Dask worker if it is not there; return the error if that fails."""
        async with self._installing.setdefault(worker, Lock()):
            return await self._install(worker, plugin)

    async def _install(self, worker: str, plugin: Plugin) -> BaseException | None:
        installed = self._installed.setdefault(plugin.name, set())
        if worker not in installed:
            # loading takes seconds on a busy machine
            for message in (
                loading_message(plugin.module),
                {"op": "plugin-add", "plugin": plugin.pickled, "name": plugin.name},
            ):
                answer = await self.ask(worker, HOST_TIMEOUT_S, **message)
                if isinstance(answer, BaseException):
                    return answer
            installed.add(worker)
        return None

    async def ask_process(self, job_id: str, action: ev.CutOff | ev.Join, op: str, **arguments: Any) -> dict[str, Any]:
        """Call a handler for one process of a job; return its answer, or an ``error``."""
        facts = {"job_id": job_id, "life": action.life, "process": action.process}
        answer = await self.ask(action.worker, ASK_TIMEOUT_S, op, **facts, **arguments)
        return answer if isinstance(answer, dict) else {"error": f"{action.worker} does not answer: {answer!r}."}

    async def servers(self, worker: str) -> list[str]:
        """Return the Dask workers on the host of one, which may be gone; each has a `Site`, which serves part files."""
        near = sorted(self._on_hosts({get_address_host(worker)}), key=lambda address: address != worker)
        failed = await gen.multi([self.install(address) for address in near])
        return [address for address, error in zip(near, failed, strict=True) if error is None]

    def _on_hosts(self, hosts: Collection[str]) -> list[str]:
        return [address for address, known in self._scheduler.workers.items() if known.host in hosts]

    async def end_job(self, spec: JobSpec, life: int) -> None:
        """Remove what is left of a job on Dask workers, those of earlier lives among them, and its part files."""
        facts = {"job_id": spec.job_id, "life": life, "reason": "the job is over", "forget": True}
        await self.ask_all(self.workers, ASK_TIMEOUT_S, Op.END, **facts)
        await self.drop(spec.catalogs)

    async def drop(self, catalogs: Sequence[Catalog]) -> None:
        """Delete part files on their hosts."""
        if catalogs:
            hosts = {get_address_host(file.worker) for catalog in catalogs for file in catalog.files}
            await gen.multi([self.install(address) for address in self._on_hosts(hosts)])
            tokens = [catalog.token for catalog in catalogs]
            await self.ask_all(self.workers, DROP_TIMEOUT_S, Op.DROP, tokens=tokens)

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


def _explain(error: BaseException) -> dict[str, Any]:
    """Return the fields of `ev.Hosted` for an error of a Dask worker."""
    # a scheduler gets errors of Dask workers as text
    if "ModuleNotFoundError(" in repr(error) or "ImportError(" in repr(error):
        advice = f"Install singa-dask {__version__} on all Dask workers, and start them again."
        return {"error": f"the package cannot be loaded there: {error}. {advice}", "lasting": True}
    return {"error": text_of(error)}
