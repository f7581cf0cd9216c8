"""Site: hosts the units of any number of jobs on a Dask worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from distributed import Worker, WorkerPlugin, get_worker
from distributed.comm.addressing import get_address_host
from distributed.protocol.serialize import to_serialize
from distributed.utils import sync, wait_for

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.comm import Address
from singa_dask.comm.transport import Transport
from singa_dask.errors import ConfigError, LostUnitError, SingaError, is_out_of_memory, text_of
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.snapshots import SnapshotStore
from singa_dask.runtime.job.clock import Clock, measure_clock
from singa_dask.runtime.job.hosting import Hosting
from singa_dask.runtime.job.locality import host_names_of
from singa_dask.runtime.job.names import EVENTS, SITE, Op
from singa_dask.runtime.job.part_files import PartFiles
from singa_dask.runtime.job.site_views import SiteLog, stacks_of
from singa_dask.runtime.units.unit_host import UnitHost

LEAVE_TIMEOUT_S = 10.0
LONG_WAIT_S = 10.0
PART_TIMEOUT_S = 30.0
KEEP_TIMEOUT_S = 3.0
KEEP_BYTES_PER_S = 20e6

logger = logging.getLogger(__name__)


class Site(WorkerPlugin):
    """Hosts units on a Dask worker, and keeps parts of snapshots in its memory.

    One instance serves all jobs, and stays on the Dask worker.
    """

    name = SITE

    def setup(self, worker: Worker) -> None:
        """Take messages of `Jobs` and of other sites."""
        self.worker = worker
        self.store = SnapshotStore()
        # changed by the event loop alone
        self.hostings: dict[tuple[str, int], Hosting] = {}
        # of each process of a job: the oldest life that may still begin here
        self._oldest: dict[tuple[str, int], int] = {}
        self._is_leaving = False
        self._clock = Clock()
        self._log = SiteLog()
        self._files = PartFiles(worker)
        self._threads = ThreadPoolExecutor(4, thread_name_prefix=f"{SITE}-site")
        handlers: dict[str, Callable[..., Any]] = {
            Op.HOST: self._host,
            Op.END: self._end,
            Op.CUT: self._cut,
            Op.JOIN: self._join,
            Op.STOP: self._stop,
            Op.SNAPSHOT: self._request_snapshot,
            Op.CHECKPOINT: self._request_checkpoint,
            Op.STACKS: self._stacks,
            Op.KEEP: self._keep,
            Op.PART: self._part,
            **self._files.handlers,
        }
        worker.handlers.update(handlers)
        worker.metrics[SITE] = self._metrics  # goes with the heartbeat of the Dask worker

    async def teardown(self, worker: Worker) -> None:
        """Hand the units over, or stop them with a checkpoint if the scheduler is gone."""
        worker.metrics.pop(SITE, None)
        self._is_leaving = True
        hostings = list(self.hostings.values())
        if hostings:
            try:
                await wait_for(worker.scheduler.singa_dask_leaving(worker=worker.address), 2.0)
            except Exception as error:
                logger.warning("the scheduler is gone (%s): jobs stop with a checkpoint", error)
                for hosting in hostings:
                    hosting.host.request("stop")
            await self._in_thread(self._wait_for_all, hostings)
            with suppress(Exception):  # what is kept here may be read until then
                await wait_for(worker.scheduler.singa_dask_left(worker=worker.address), LEAVE_TIMEOUT_S)
        for hosting in list(self.hostings.values()):
            await self._close(hosting, "the Dask worker closes")
        self._threads.shutdown(wait=False)
        self._files.close()
        for op in [op for op in worker.handlers if op.startswith("singa_dask_")]:
            del worker.handlers[op]

    def _wait_for_all(self, hostings: Sequence[Hosting]) -> None:
        for hosting in hostings:
            hosting.wait(LEAVE_TIMEOUT_S)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function beside the event loop of the Dask worker, which it would hold up."""
        return await self.worker.loop.run_in_executor(self._threads, partial(function, *arguments))

    # -- lives -------------------------------------------------------------------------------------------------------

    async def _host(self, placement: Mapping[str, Any]) -> dict[str, Any]:
        """Start to host a process of a job; return its ``endpoint``, or an ``error`` and whether it is ``final``.

        Parameters
        ----------
        placement : mapping
            ``job_id``, ``life``, ``process``, ``processes`` (units of each), ``workers`` (Dask worker of each),
            ``buddy``, ``term`` (the life in which all processes began together), ``rejoin`` (fields of `Rejoin`, for a
            process that joins others), ``threads`` (of each worker, or None), ``start`` (``manifest`` of a snapshot,
            ``url`` of a checkpoint, or nothing), ``job`` as JSON, ``deals``, ``sources``, ``datasets``,
            ``checkpoint_url``, ``init_from``, ``scalings``, ``secret``.
        """
        hosting = Hosting(placement)
        key = hosting.key
        self._oldest[key] = max(hosting.life, self._oldest.get(key, 0))
        for before in self._of(hosting.job_id):
            if before.life < hosting.term or (before.key == key and before.life < hosting.life):
                await self._close(before, "a newer life of the job begins")
        try:
            await self._in_thread(self._build, hosting)
        except Exception as error:
            hosting.mounts.close()
            found = modules.blame(error)
            if found is None and not isinstance(error, SingaError) and not is_out_of_memory(error):
                raise
            why = f"{found.place}: {found.text}" if found else text_of(error)
            return {"error": f"process {hosting.process} at {self.worker.address}: {why}", "final": True}
        if hosting.life < self._oldest.get(key, 0):  # meanwhile it was ended, or another life has begun
            await self._in_thread(hosting.end, "this life is over")
            return {"error": f"life {hosting.life} of the job is over"}
        if hosting.rejoin is None and (manifest := hosting.start_from.get("manifest")):
            # what a life that is over has left after this snapshot was never complete, and must not push it out
            self.store.discard(hosting.job_id, manifest["step"], manifest["step"])
        if hosting.host.trace is not None:
            self._clock = await measure_clock(self.worker.scheduler.singa_dask_clock)
        self.hostings[key] = hosting
        self._log.add(hosting.host)
        return {"endpoint": hosting.host.address, "threads": hosting.threads}

    def _of(self, job_id: str) -> list[Hosting]:
        return [each for each in self.hostings.values() if each.job_id == job_id]

    def _build(self, hosting: Hosting) -> None:
        self._check_modules(hosting)
        modules.load(hosting.sources, REGISTRIES.values())
        hosting.mounts.enter_context(self._files.reading(hosting.datasets))
        mine = get_address_host(self.worker.address)
        hosting.build(
            transport=self._transport(hosting) if len(hosting.workers) > 1 else None,
            emit=partial(self._emit, hosting.job_id, hosting.life),
            host_names=host_names_of(self.worker),
            neighbours=[i for i, each in enumerate(hosting.workers) if get_address_host(each) == mine],
            keep=partial(self._keep_part, hosting),
            memory_limit=self.worker.memory_manager.memory_limit,
        )

    def _check_modules(self, hosting: Hosting) -> None:
        """Refuse modules of which a running job in this process has others of the same names."""
        texts = {source.name: source for source in hosting.sources}
        for other in list(self.hostings.values()):  # the event loop adds and removes some meanwhile
            changed = [source.file for source in other.sources if texts.get(source.name, source) != source]
            if changed:
                raise ConfigError(
                    f"{', '.join(changed)}: job {other.job_id} runs in this process with another version of it. "
                    "Rename the file, or wait for that job."
                )

    def _transport(self, hosting: Hosting) -> Callable[..., Transport]:
        scheme, _, endpoint = self.worker.address.partition("://")
        security = self.worker.security

        def make(*callbacks: Any, life: int, **given: Any) -> Transport:
            # processes that were replaced have a newer life than those that they talk to
            return Transport(
                f"{scheme}://{endpoint.rpartition(':')[0]}",
                *callbacks,
                life=hosting.term,
                secret=hosting.secret,
                interface=hosting.listen.interface,
                ports=hosting.listen.port_range,
                listen_args=security.get_listen_args("worker"),
                connect_args=security.get_connection_args("worker"),
                name=f"transport-{hosting.job_id}",
                **given,
            )

        return make

    async def _end(
        self, job_id: str, life: int, reason: str, forget: bool = False, process: int | None = None
    ) -> dict[str, Any]:
        """End a life and all before it, or one process of it; return the reports of its units."""
        for key in {(job_id, process), *self.hostings} if process is not None else set(self.hostings):
            if key[0] == job_id and process in (None, key[1]):
                self._oldest[key] = max(life + 1, self._oldest.get(key, 0))
        reports: dict[str, Any] = {}
        for hosting in self._of(job_id):
            if hosting.life <= life and process in (None, hosting.process):
                await self._close(hosting, reason)
                reports |= hosting.reports
        if forget:
            self.store.forget(job_id)
            self._oldest = {key: oldest for key, oldest in self._oldest.items() if key[0] != job_id}
        return reports

    def _cut(self, job_id: str, life: int, process: int, processes: list[int], groups: list[int]) -> dict[str, Any]:
        """Separate a process from others, see `UnitHost.cut`."""
        host = self._current(job_id, life, process)
        if host is None:
            return {"error": f"process {process} of the job is not on {self.worker.address}"}
        return {"applied": host.cut(processes, groups)}

    def _join(
        self,
        job_id: str,
        life: int,
        process: int,
        endpoints: Mapping[int, str],
        left: Sequence[Sequence[Any]],
        buddy: str,
    ) -> dict[str, Any]:
        """Tell a process of those that replace others, see `Router.join`, and of its ``buddy`` from now on."""
        host = self._current(job_id, life, process)
        if host is None:
            return {"error": f"process {process} of the job is not on {self.worker.address}"}
        self.hostings[job_id, process].buddy = buddy
        host.router.join({int(p): address for p, address in endpoints.items()}, {Address(*unit) for unit in left})
        return {}

    async def _close(self, hosting: Hosting, reason: str) -> None:
        if not await self._in_thread(hosting.end, reason):
            logger.warning("units of %s on %s do not end", hosting.job_id, self.worker.address)
        self._log.remove(hosting.host)
        if self.hostings.get(hosting.key) is hosting:
            del self.hostings[hosting.key]

    def _current(self, job_id: str, life: int, process: int) -> UnitHost | None:
        hosting = self.hostings.get((job_id, process))
        return hosting.host if hosting is not None and hosting.life == life else None

    def _stop(self, job_id: str) -> None:
        for hosting in self._of(job_id):
            hosting.host.request("stop")

    def _request_snapshot(self, job_id: str) -> None:
        for hosting in self._of(job_id):
            hosting.host.request("snapshot")

    def _request_checkpoint(self, job_id: str) -> None:
        for hosting in self._of(job_id):
            hosting.host.request("checkpoint")

    def _stacks(self, job_id: str) -> dict[str, dict[str, Any]]:
        return stacks_of(self._of(job_id))

    # -- what is told ------------------------------------------------------------------------------------------------

    def _metrics(self, worker: Worker) -> dict[str, Any]:
        told: dict[str, list[dict[str, Any]]] = {}
        for each in list(self.hostings.values()):
            waits = {unit: wait for unit, wait in each.host.waits().items() if wait[1] > LONG_WAIT_S}
            facts = {"process": each.process, "life": each.life, "steps": each.host.steps(), "waits": waits}
            told.setdefault(each.job_id, []).append({**facts, **each.host.progress()})
        return told

    def _emit(self, job_id: str, life: int, event: Mapping[str, Any]) -> None:
        """Send an event of a unit to `Jobs`, which passes on what people see; called from any thread."""
        if event["event"] == "profile":
            event = {**event, "host": get_address_host(self.worker.address), **self._clock._asdict()}
        message = {"op": EVENTS, "job_id": job_id, "life": life, "what": dict(event)}
        self.worker.loop.add_callback(self.worker.batched_send, message)

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def _keep_part(self, hosting: Hosting, step: int, file: str, content: bytes) -> list[str]:
        """Keep a part of a snapshot here and at the buddy; return the Dask workers that have it."""
        self.store.put(hosting.job_id, file, step, content)
        holders = [self.worker.address]
        if hosting.buddy and not self._is_leaving:
            # a checkpoint may wait behind this
            timeout_s = KEEP_TIMEOUT_S + len(content) / KEEP_BYTES_PER_S
            try:
                sync(self.worker.loop, self._send_part, hosting, step, file, content, callback_timeout=timeout_s)
                holders.append(hosting.buddy)
            except Exception as error:
                logger.warning("%s has no copy of the snapshot of step %d: %s", hosting.buddy, step, error)
        return holders

    async def _send_part(self, hosting: Hosting, step: int, file: str, content: bytes) -> None:
        facts = {"job_id": hosting.job_id, "step": step, "file": file}
        await self.worker.rpc(hosting.buddy).singa_dask_keep(**facts, content=to_serialize(content))

    def _keep(self, job_id: str, step: int, file: str, content: bytes) -> None:
        self.store.put(job_id, file, step, content)

    def _part(self, job_id: str, file: str) -> Any:
        found = self.store.get(job_id, file)
        return None if found is None else to_serialize(found)

    def start_point(self, hosting: Hosting) -> str | Checkpoint | None:
        """Return what the units of a life start from."""
        manifest = hosting.start_from.get("manifest")
        if manifest is None:
            url: str | None = hosting.start_from.get("url")
            return url
        holders = {part["file"]: part["holders"] for part in (*manifest["parts"], *manifest.get("states", ()))}
        name = f"the snapshot of step {manifest['step']}"
        return Checkpoint.from_manifest(
            manifest, lambda file: self._read_part(hosting.job_id, file, holders[file]), name
        )

    def _read_part(self, job_id: str, file: str, holders: Sequence[str]) -> bytes:
        """Return a part of a snapshot from here or from another Dask worker; called by the threads of units."""
        found = self.store.get(job_id, file)
        errors = []
        for holder in holders:
            if found is not None:
                return found
            if holder != self.worker.address:
                try:
                    found = sync(
                        self.worker.loop, self._fetch_part, holder, job_id, file, callback_timeout=PART_TIMEOUT_S
                    )
                except Exception as error:
                    errors.append(f"{holder}: {error}")
        if found is None:
            # those who had it are lost, or have newer snapshots by now: the job may start again from one of these
            raise LostUnitError(f"{file} of a snapshot of {job_id}: nobody has it any more. {' '.join(errors)}")
        return found

    async def _fetch_part(self, holder: str, job_id: str, file: str) -> bytes | None:
        found: bytes | None = await self.worker.rpc(holder).singa_dask_part(job_id=job_id, file=file)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {}


def run_units(
    job_id: str, life: int, process: int, units: Sequence[tuple[str, int, int]], endpoints: Sequence[str]
) -> list[dict[str, Any]]:
    """Run some units on this Dask worker, the first one in this thread; a task of the job. Return their reports."""
    site = get_worker().plugins[SITE]
    assert isinstance(site, Site)
    hosting = site.hostings.get((job_id, process))
    if hosting is None or hosting.life != life:
        return [{"state": "aborted", "step": -1} for _ in units]
    reports: dict[Address, dict[str, Any]] = {}

    def run(unit: Address) -> None:
        reports[unit] = hosting.run(unit, endpoints, site.start_point(hosting))

    addresses = [Address(*unit) for unit in units]
    threads = [threading.Thread(target=run, args=(unit,), name=str(unit), daemon=True) for unit in addresses[1:]]
    for thread in threads:
        thread.start()
    run(addresses[0])
    for thread in threads:
        thread.join()
    return [reports[unit] for unit in addresses]
