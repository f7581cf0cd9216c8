"""Site: host the units of any number of jobs on a Dask worker."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from distributed import TimeoutError as LateError
from distributed import Worker, WorkerPlugin
from distributed.comm.addressing import get_address_host
from distributed.utils import wait_for

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.comm.message import Address
from singa_dask.comm.shared import segment_bytes
from singa_dask.comm.transport import Transport
from singa_dask.conf import JobConf
from singa_dask.conf.cluster import ListenConf
from singa_dask.errors import DataError, SingaError, is_out_of_memory, text_of
from singa_dask.observe.files.trace_file import write_spans
from singa_dask.runtime.job.dask_worker.clock import Clock, SteadyTimers, measure_clock
from singa_dask.runtime.job.dask_worker.freed_memory import keep_freed_memory
from singa_dask.runtime.job.dask_worker.host_names import host_names_of
from singa_dask.runtime.job.dask_worker.hosting import Hosting, Placement, stacks_of
from singa_dask.runtime.job.dask_worker.job_log import LogToClient
from singa_dask.runtime.job.dask_worker.part_files import PartFiles
from singa_dask.runtime.job.dask_worker.snapshot_exchange import SnapshotExchange
from singa_dask.runtime.job.frames import guard_frames
from singa_dask.runtime.job.limits import check_limits, limit
from singa_dask.runtime.job.names import EVENTS, SITE, Op
from singa_dask.runtime.job.state.submission import JobSpec
from singa_dask.runtime.units.job_of_thread import in_job

logger = logging.getLogger(__name__)

LONG_WAIT_S = 10.0


class Site(WorkerPlugin):
    """Worker plug-in that hosts the units of all jobs on a Dask worker."""

    name = SITE

    def setup(self, worker: Worker) -> None:
        """Register the handlers that `Jobs` and other sites call."""
        check_limits(f"the Dask worker at {worker.address}")
        guard_frames()
        self.worker = worker
        self.snapshots = SnapshotExchange(worker)
        # changed only by the event loop
        self.hostings: dict[tuple[str, int], Hosting] = {}
        # (job, process) -> oldest incarnation of the process that may still start here
        self._oldest: dict[tuple[str, int], int] = {}
        self._clock = Clock()
        self._timers = SteadyTimers(worker)
        self._files = PartFiles(worker)
        self._threads: ThreadPoolExecutor | None = ThreadPoolExecutor(4, thread_name_prefix=f"{SITE}-site")
        handlers: dict[str, Callable[..., Any]] = {
            Op.HOST: self._host,
            Op.END: self._end,
            Op.CUT: self._cut,
            Op.JOIN: self._join,
            Op.REQUEST: self._request,
            Op.STACKS: lambda job_id: stacks_of(self._of(job_id)),
            **self.snapshots.handlers,
            **self._files.handlers,
        }
        worker.handlers.update(handlers)
        worker.metrics[SITE] = self._metrics  # Dask sends these metrics with each heartbeat of the Dask worker

    async def teardown(self, worker: Worker) -> None:
        """Wait until the scheduler has moved the units away. Without a scheduler, stop them with a checkpoint."""
        worker.metrics.pop(SITE, None)
        self._timers.close()
        self.snapshots.is_leaving = True
        hostings = list(self.hostings.values())
        if hostings:
            try:
                await wait_for(getattr(worker.scheduler, Op.LEAVING)(worker=worker.address), limit("leaving"))
            except Exception as error:
                is_late = isinstance(error, LateError)
                why = "does not answer" if is_late else f"cannot be reached: {text_of(error)}"
                logger.warning("this Dask worker closes, and the scheduler %s: units stop with a checkpoint", why)
                for hosting in hostings:
                    hosting.request("stop")
            for hosting in hostings:
                await self._in_thread(hosting.wait, limit("has-ended"))
            with suppress(Exception):  # other processes may be reading snapshots from here
                await wait_for(getattr(worker.scheduler, Op.LEFT)(worker=worker.address), limit("has-ended"))
        for op in [op for op in worker.handlers if op.startswith("singa_dask_")]:
            del worker.handlers[op]
        self._oldest.clear()  # so that processes that are still being built end, in threads of the event loop
        for hosting in list(self.hostings.values()):
            await self._close(hosting, "the Dask worker closes")
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)
        self._files.close()

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a blocking function in a thread, without blocking the event loop."""
        return await self.worker.loop.run_in_executor(self._threads, partial(function, *arguments))

    async def _host(
        self, job_id: str, incarnation: int, process: int, buddy: str, token: str, placement: str
    ) -> dict[str, Any]:
        """Host a process of a job; return the fields of `ev.Hosted`.

        ``placement`` has, as JSON, the fields of `Placement` that are not among the parameters.
        """
        key, over = (job_id, process), {"error": f"incarnation {incarnation} of the job is over"}
        self._oldest[key] = max(incarnation, self._oldest.get(key, 0))
        if incarnation < self._oldest[key]:
            return over
        common = json.loads(placement)
        common["spec"] = JobSpec(**common["spec"])
        mine = Placement(**common, incarnation=incarnation, process=process, buddy=buddy, token=token)
        for before in self._of(job_id):
            if before.incarnation < mine.full_incarnation or (before.key == key and before.incarnation < incarnation):
                await self._close(before, "a newer incarnation of the job begins")
        try:
            hosting: Hosting = await self._in_thread(self._build, mine)
        except Exception as error:
            problem = modules.blame(error)
            if problem is None and not isinstance(error, SingaError) and not is_out_of_memory(error):
                raise
            why = f"{problem.place}: {problem.text}" if problem else text_of(error)
            return {"error": f"process {process} at {self.worker.address}: {why}", "final": True}
        try:
            if hosting.trace is not None:
                self._clock = await measure_clock(getattr(self.worker.scheduler, Op.CLOCK))
        except BaseException:
            await self._in_thread(hosting.end, "the scheduler does not tell its time")
            raise
        # during the awaits above, this incarnation of the process may have been ended, or replaced by a newer one
        if incarnation < self._oldest.get(key, incarnation + 1):
            await self._in_thread(hosting.end, "this incarnation is over")
            return over
        self.hostings[key] = hosting
        to_client = LogToClient(hosting)
        to_client.attach()
        hosting.mounts.callback(to_client.detach)
        if incarnation > mine.spec.first_incarnation:  # in the first incarnation, the driver checks this
            await self._in_thread(hosting.warn_if_unseen)
        return {"endpoint": hosting.address, "threads": hosting.n_threads}

    def _of(self, job_id: str) -> list[Hosting]:
        return [hosting for hosting in self.hostings.values() if hosting.job_id == job_id]

    def _build(self, placement: Placement) -> Hosting:
        mine = get_address_host(self.worker.address)
        neighbours = [i for i, worker in enumerate(placement.workers) if get_address_host(worker) == mine]
        limit, n_peers = self.worker.memory_manager.memory_limit, len(neighbours) - 1
        with ExitStack() as mounts:
            user = f"job {placement.spec.job_id}"
            mounts.enter_context(modules.using(placement.spec.modules, REGISTRIES.values(), user))
            job = JobConf.from_json(placement.spec.job, REGISTRIES)
            shared_bytes = segment_bytes(n_peers, limit) if job.cluster.listen.shared_memory else 0
            transport = partial(self._transport(placement, job.cluster.listen), shared_bytes=shared_bytes)
            mounts.enter_context(self._files.reading(placement.spec.datasets))
            mounts.enter_context(keep_freed_memory())
            hosting: Hosting = Hosting(
                placement,
                job,
                transport=transport if len(placement.workers) > 1 else None,
                emit=partial(self._emit, placement),
                host_names=host_names_of(self.worker),
                neighbours=neighbours,
                store_part=lambda *part: self.snapshots.put(hosting, *part),
                memory_limit=limit and limit - 2 * n_peers * shared_bytes,
            )
            hosting.mounts = mounts.pop_all()
        return hosting

    def _transport(self, placement: Placement, conf: ListenConf) -> Callable[..., Transport]:
        scheme, _, endpoint = self.worker.address.partition("://")
        security = self.worker.security
        return partial(
            Transport,
            f"{scheme}://{endpoint.rpartition(':')[0]}",
            incarnation=placement.full_incarnation,  # equal in all processes, unlike the incarnation of a replacement
            retry_s=placement.silent_s,
            timeout_s=min(limit("attempt"), placement.silent_s / 3),
            token=placement.token,
            interface=conf.interface,
            ports=conf.port_range,
            listen_args=security.get_listen_args("worker"),
            connect_args=security.get_connection_args("worker"),
            name=f"transport-{placement.spec.job_id}",
        )

    async def _end(
        self, job_id: str, incarnation: int, reason: str, forget: bool = False, process: int | None = None
    ) -> dict[str, Any]:
        """End the units of a job's incarnations up to the given one; return their reports.

        With ``process``, only units of that process are ended. With ``forget``, snapshots of the job are deleted, too.
        """
        for key in [*self._oldest, *([] if process is None else [(job_id, process)])]:
            if key[0] == job_id and process in (None, key[1]):
                self._oldest[key] = max(incarnation + 1, self._oldest.get(key, 0))
        reports: dict[str, Any] = {}
        for hosting in self._of(job_id):
            if hosting.incarnation <= incarnation and process in (None, hosting.process):
                await self._close(hosting, reason)
                reports |= hosting.reports
        if forget:
            self.snapshots.store.forget(job_id)
            self._oldest = {key: oldest for key, oldest in self._oldest.items() if key[0] != job_id}
        return reports

    def _asked(self, job_id: str, incarnation: int, process: int, request: int) -> Hosting | None:
        """Return the process for a request; None if it is not here, or has received a later request."""
        hosting = self.hostings.get((job_id, process))
        if hosting is None or hosting.incarnation != incarnation or request < hosting.last_request:
            return None
        hosting.last_request = request
        return hosting

    def _refuse(self, process: int) -> dict[str, Any]:
        where = f"process {process} of the job is not on {self.worker.address}"
        return {"error": f"{where}, or has received a later request"}

    def _cut(self, processes: list[int], groups: list[int], **asked: Any) -> dict[str, Any]:
        """Disconnect a process from other processes; see `UnitHost.cut`."""
        hosting = self._asked(**asked)
        return {"applied": hosting.cut(processes, groups)} if hosting else self._refuse(asked["process"])

    def _join(
        self, endpoints: Mapping[int, str], left: Sequence[Sequence[Any]], buddy: str, **asked: Any
    ) -> dict[str, Any]:
        """Pass to a process the endpoints of replacement processes, and its new ``buddy``; see `Router.join`."""
        hosting = self._asked(**asked)
        if hosting is None:
            return self._refuse(asked["process"])
        hosting.buddy = buddy
        hosting.router.join({int(p): address for p, address in endpoints.items()}, {Address(*unit) for unit in left})
        return {}

    async def _close(self, hosting: Hosting, reason: str) -> None:
        if not await self._in_thread(hosting.end, reason):
            with in_job(hosting.job_id):
                logger.warning("units of %s on %s do not end", hosting.job_id, self.worker.address)
        if self.hostings.get(hosting.key) is hosting:
            del self.hostings[hosting.key]

    def _request(self, job_id: str, incarnation: int, what: str) -> None:
        """Carry out an `act.Request`, except in processes of later incarnations, which get their own requests."""
        for hosting in self._of(job_id):
            if hosting.incarnation <= incarnation:
                hosting.request(what)

    def _metrics(self, worker: Worker) -> dict[str, Any]:
        progress: dict[str, list[dict[str, Any]]] = {job_id: [] for job_id in list(self.snapshots.store.jobs)}
        for hosting in list(self.hostings.values()):
            waits = {unit: wait for unit, wait in hosting.waits().items() if wait[1] > LONG_WAIT_S}
            facts = {
                "process": hosting.process,
                "incarnation": hosting.incarnation,
                "steps": hosting.steps(),
                "waits": waits,
            }
            progress.setdefault(hosting.job_id, []).append({**facts, **hosting.progress()})
        return progress

    def _emit(self, placement: Placement, event: Mapping[str, Any]) -> Future[Any] | None:
        """Send an event of a unit to `Jobs`. Any thread may call this method.

        For a snapshot, return a future that is done once `Jobs` has the event; otherwise None.
        """
        facts = {"job_id": placement.spec.job_id, "incarnation": placement.incarnation, "what": dict(event)}
        if event["event"] == "snapshot":
            there = Future[Any]()
            self.worker.loop.add_callback(self._tell, there, **facts)
            return there
        if event["event"] == "profile":
            self._write_spans(placement, event)
            facts["what"] = {"event": "profile", "process": event["process"]}
        self.worker.loop.add_callback(self.worker.batched_send, {"op": EVENTS, **facts})
        return None

    def _write_spans(self, placement: Placement, event: Mapping[str, Any]) -> None:
        host = {
            "incarnation": placement.incarnation,
            "host": get_address_host(self.worker.address),
            **self._clock._asdict(),
        }
        try:
            write_spans(placement.spec.run_url, {**event, **host})
        except DataError as error:
            logger.warning("%s The trace of the job lacks what process %d has recorded.", error, event["process"])

    async def _tell(self, there: Future[Any], **facts: Any) -> None:
        try:
            there.set_result(await getattr(self.worker.scheduler, Op.SNAPSHOT)(**facts))
        except Exception as error:
            there.set_exception(error)

    def __getstate__(self) -> dict[str, Any]:
        return {}
