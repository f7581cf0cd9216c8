"""Who the scheduler talks to: Dask workers, by calls to each `Site`, tasks and heartbeats."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import pickle
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pkgutil import resolve_name
from typing import Any

import dask.config
from dask.base import annotate
from dask.utils import parse_timedelta
from distributed import Client, Future, Scheduler
from distributed.comm.addressing import get_address_host
from distributed.scheduler import heartbeat_interval
from distributed.security import Security
from distributed.utils import wait_for
from tornado import gen, util
from tornado.locks import Lock

from singa_dask.comm.message import Address
from singa_dask.comm.remote_import import cannot_load, loading_message
from singa_dask.errors import LostUnitError, UnloadableError, is_out_of_memory, text_of
from singa_dask.fs.host_files import Catalog
from singa_dask.runtime.job import events as ev
from singa_dask.runtime.job.events import JobSpec
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import DRIVERS, PLACEMENT, SITE, Op, units_key
from singa_dask.runtime.job.record import JobRecord
from singa_dask.runtime.job.site import UnitsTask

RESTART_TIMEOUT_S = 10.0
# a process may send its first snapshot soon; a buddy that hangs holds up its start no longer than this
BUDDY_TIMEOUT_S = 2.0


PLUGINS = {SITE: "singa_dask.runtime.job.site:Site", DRIVERS: "singa_dask.runtime.job.detached:DriverHost"}
"""Where the plug-ins of Dask workers are, by name; loaded when they are first needed, as drivers build on this file."""


class Sites:
    """Calls Dask workers; installs their plug-ins when they are first needed. No call waits without end.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    """

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
        """Call a handler of a Dask worker; return its answer, or the exception."""
        message = {"op": op, **arguments}
        try:
            answers = await wait_for(
                self._scheduler.broadcast(msg=message, workers=[worker], on_error="return"), timeout_s
            )
        except Exception as error:
            return error
        answer = answers[worker]
        if isinstance(answer, dict) and answer.get("status") == "error":  # as Dask's own handlers report one
            return RuntimeError(answer["exception_text"])
        return answer

    async def ask_all(self, workers: Iterable[str], timeout_s: float, op: str, **arguments: Any) -> dict[str, Any]:
        """Call a handler of some Dask workers at the same time; return the answers, or exceptions, by address."""
        workers = list(workers)
        answers = await gen.multi([self.ask(each, timeout_s, op, **arguments) for each in workers])
        return dict(zip(workers, answers, strict=True))

    def share(self, record: JobRecord, action: ev.Host) -> None:
        """Have ready what all processes of a life are told, and choose who asks for it on each host."""
        keys = ("job", "assignments", "sources", "checkpoint_url", "init_from", "datasets", "scalings")
        facts = {**{key: getattr(record.spec, key) for key in keys}, **action.placement}
        record.shared = {f"{action.life} {PLACEMENT}": json.dumps(facts)}
        # the first of a host is the last to be put here; some may be gone, as their processes are done
        there = [each for each in reversed(action.placement["workers"]) if each in self._scheduler.workers]
        record.leaders = {get_address_host(each): each for each in there}

    async def host(self, record: JobRecord, action: ev.Host) -> dict[str, Any]:
        """Ask the `Site` of a Dask worker, which is installed if it is not there, to host a process.

        It is not asked if the life is over by then. Return the fields of `ev.Hosted`.
        """
        leader = record.leader_of(action.worker)
        failed = await self.install(action.worker)
        if failed is not None:
            return _explain(failed)
        if leader != action.worker and await self.install(leader) is not None:
            leader = action.worker
        if not record.state.is_current(action.process, action.life):
            return {"error": f"life {action.life} of the job is over"}
        if buddy := action.placement["buddy"]:
            ready = gen.convert_yielded(self.install(buddy))
            with contextlib.suppress(util.TimeoutError):
                await gen.with_timeout(timedelta(seconds=BUDDY_TIMEOUT_S), ready)
        facts = {"job_id": record.spec.job_id, "life": action.life, "process": action.process, "buddy": buddy}
        facts |= {"leader": leader, "token": record.token}
        answer = await self.ask(action.worker, limit("host"), Op.HOST, **facts)
        return _explain(answer) if isinstance(answer, BaseException) else dict(answer)

    async def install(self, worker: str, name: str = SITE) -> BaseException | None:
        """Install one of `PLUGINS` on a Dask worker if it is not there; return the error if that fails."""
        installed = self._installed[name]
        if worker in installed:
            return None
        plugin = await self._scheduler.loop.run_in_executor(None, resolve_name, PLUGINS[name])
        add = {"op": "plugin-add", "plugin": pickle.dumps(plugin()), "name": name}
        async with self._installing.setdefault(worker, Lock()):
            for message in () if worker in installed else (loading_message(plugin.__module__), add):
                answer = await self.ask(worker, limit("host"), **message)  # loading takes seconds on a busy machine
                if isinstance(answer, BaseException):
                    why = re.search(r"(?:ImportError|ModuleNotFoundError)\((.*)\)", str(answer))
                    return UnloadableError(cannot_load("Dask worker", why[1][1:-1])) if why else answer
            installed.add(worker)
        return None

    async def ask_process(self, job_id: str, action: ev.CutOff | ev.Join, op: str, **arguments: Any) -> dict[str, Any]:
        """Call a handler for one process of a job; return its answer, or an ``error``."""
        facts = {"job_id": job_id, "life": action.life, "process": action.process}
        answer = await self.ask(action.worker, limit("answer"), op, **facts, **arguments)
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
        await self.ask_all(self.workers, limit("answer"), Op.END, **facts)
        await self.drop(spec.catalogs)

    async def drop(self, catalogs: Sequence[Catalog]) -> None:
        """Delete part files on their hosts."""
        if catalogs:
            hosts = {get_address_host(file.worker) for catalog in catalogs for file in catalog.files}
            await gen.multi([self.install(address) for address in self._on_hosts(hosts)])
            tokens = [catalog.token for catalog in catalogs]
            await self.ask_all(self.workers, limit("part"), Op.DROP, tokens=tokens)

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
    return {"error": text_of(error), "lasting": isinstance(error, UnloadableError)}


MAX_CONNECTS = 5


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
        for n_left in reversed(range(MAX_CONNECTS)):
            if self._client is None:
                security, address = as_client(self._scheduler.security, "scheduler"), self._scheduler.address
                # asynchronous, on the scheduler's own loop
                self._client = Client(address, asynchronous=True, set_as_default=False, security=security)
            try:
                await self._client
                return
            except AssertionError:  # distributed expects its first message alone, and all clients were told something
                if not n_left:
                    raise
                await self.close()

    async def close(self) -> None:
        """Close that client."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
            # as distributed does for other clients; else the loop of a cluster in this process stays,
            # with its threads and descriptors
            client._loop_runner.stop()

    def run(self, record: JobRecord, actions: Sequence[ev.RunUnits]) -> None:
        """Start the units of some processes, in one graph: a graph each costs the scheduler five times as much."""
        assert self._client is not None
        job_id = record.spec.job_id
        graph: dict[str, Any] = {}
        places: dict[str, str] = {}
        tasks: dict[str, tuple[ev.RunUnits, tuple[Address, ...]]] = {}
        for action in actions:
            for i in range(action.n_tasks):
                units = action.units[i :: action.n_tasks]
                key = units_key(job_id, units[0], action.life)
                leader = record.leader_of(action.worker)
                graph[key] = (UnitsTask(job_id, action.life, action.process, units, leader),)
                places[key], tasks[key] = action.worker, (action, units)
        with annotate(workers=places.__getitem__, allow_other_workers=False, retries=0):
            futures = self._client.get(graph, list(graph), sync=False)
        for future, (action, units) in zip(futures, tasks.values(), strict=True):
            record.futures[future] = (action.life, action.process)
            self._scheduler.loop.add_callback(self._follow, job_id, future, action.life, units)

    async def _follow(self, job_id: str, future: Future[Any], life: int, units: tuple[Address, ...]) -> None:
        """Wait for the reports of the units of a task."""
        try:
            reports = await future
        except Exception as error:  # units report their own errors, so Dask has lost the task
            if future.cancelled() or future.status == "lost":
                return
            reports = [{"state": "failed", "step": -1, **_explain_task(units[0], error)}]
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


def _explain_task(unit: Address, error: BaseException) -> dict[str, Any]:
    """Describe the failure of a task without a result."""
    if is_out_of_memory(error):
        return {"reason": f"{unit}: {text_of(error)}", "error": "", "exit_code": 1, "expected": True, "retry": False}
    failure = {"reason": f"{unit}: its task failed: {error!r}", "error": repr(error)}
    return {**failure, "exit_code": LostUnitError.exit_code, "expected": True, "retry": True}


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
    own_client = copy.copy(security)
    for name in ("cert", "key"):
        setattr(own_client, f"tls_client_{name}", own[name])
    return own_client


PHI = 8.0
"""A Dask worker is given up when its silence is so long that by the usual gaps between heartbeats it would come once
in 10^8 times: after 18 times the usual gap, which is some 10 s on a calm cluster. This is the phi accrual failure
detector of Hayashibara et al. (2004) for gaps whose length is distributed exponentially."""
RECENT = 0.1
"""Weight of the newest gap in the usual one."""
MAX_LOOK_S = 1.0
"""No more of the time between two looks counts as silence: a scheduler that was held up itself has heard of nobody."""


@dataclass
class _Beats:
    """The heartbeats of a Dask worker.

    Attributes
    ----------
    last_seen : float
        Time of the last one, of a clock that may be set: compared only for being equal.
    silence : float
        Seconds without another one.
    usual : float
        Weighted mean of the gaps between them, in seconds.
    """

    last_seen: float
    silence: float
    usual: float


class Heartbeats:
    """Tells of which Dask workers nothing has come for too long, for their own recent delays and those of others.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._looked_at = time.monotonic()
        self._beats: dict[str, _Beats] = {}
        self._gaps: list[float] = []
        self._least_s = limit("silent")
        ttl = dask.config.get("distributed.scheduler.worker-ttl")
        self._most_s = float(parse_timedelta(ttl)) if ttl else float("inf")

    def look(self) -> None:
        """Count the time since the last look for Dask workers without a heartbeat in between."""
        now = time.monotonic()
        passed, self._looked_at = min(now - self._looked_at, MAX_LOOK_S), now
        interval, all_beats = heartbeat_interval(len(self._scheduler.workers)), {}
        for address, known in self._scheduler.workers.items():
            beats = self._beats.get(address) or _Beats(known.last_seen, 0.0, interval)
            beats.silence += passed
            if known.last_seen != beats.last_seen:
                beats.usual += RECENT * (max(beats.silence, interval) - beats.usual)
                beats.last_seen, beats.silence = known.last_seen, 0.0
            all_beats[address] = beats
        self._beats = all_beats
        self._gaps = sorted(max(each.usual, each.silence) for each in all_beats.values())

    def limit_of(self, address: str) -> float:
        """Return after how many seconds of silence a Dask worker is given up.

        Where most others are late at this moment, too, it is the network or the scheduler that is.
        """
        beats, gaps = self._beats.get(address), self._gaps
        usual = beats.usual if beats else 0.0
        n_others = len(gaps) - (beats is not None)
        if n_others > 0:
            quarter = (n_others - 1) // 4
            # of the others only: its own gap may be among the shortest
            quarter += beats is not None and max(usual, beats.silence) <= gaps[quarter]
            usual = max(usual, gaps[quarter])
        return min(max(self._least_s, PHI * math.log(10) * usual), self._most_s)

    def is_silent(self, address: str) -> bool:
        """Return whether a Dask worker is on the cluster, and has not been heard of for too long."""
        known, beats = self._scheduler.workers.get(address), self._beats.get(address)
        if known is None or beats is None or known.last_seen != beats.last_seen or beats.silence <= self._least_s:
            return False
        return beats.silence > self.limit_of(address)
