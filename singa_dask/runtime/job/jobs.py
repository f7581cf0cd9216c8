"""Jobs: the Dask scheduler's part of every job. It carries out what each `JobState` decides."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from distributed import Client, Future, Scheduler, SchedulerPlugin, Status
from distributed.scheduler import WorkerState, heartbeat_interval

from singa_dask.comm import Address
from singa_dask.errors import A_BUG, ClusterError, LostUnitError
from singa_dask.runtime.job import events as ev
from singa_dask.runtime.job.departures import Departures
from singa_dask.runtime.job.job_state import JobState
from singa_dask.runtime.job.names import EVENTS, JOBS, SITE, Op, topic_of
from singa_dask.runtime.job.placer import place_again
from singa_dask.runtime.job.site import run_units
from singa_dask.runtime.job.sites import ASK_TIMEOUT_S, Sites
from singa_dask.runtime.job.spec import JobSpec
from singa_dask.runtime.job.stalls import Stalls
from singa_dask.runtime.planning.placement import plan_processes

__all__ = ["Jobs"]

TICK_S = 0.5
SILENT_S = 5.0
"""A Dask worker that has not been heard of for so long is given up. Its heartbeats come each half second, and more
rarely in clusters of more than ten workers."""
CLIENT_BACK_S = 10.0
"""How long a client that has lost its connection may take to come back."""
END_TIMEOUT_S = 10.0

logger = logging.getLogger(__name__)


class Jobs(SchedulerPlugin):
    """Owns the jobs on a cluster: starts their units, watches their Dask workers, and starts them again.

    One instance serves all jobs, and stays on the scheduler.
    """

    name = JOBS
    idempotent = True

    async def start(self, scheduler: Scheduler) -> None:
        """Take messages of clients and of `Site`."""
        self.scheduler = scheduler
        self._jobs: dict[str, JobState] = {}
        self._futures: dict[str, dict[Future[Any], tuple[int, int]]] = {}
        self._stalls: dict[str, Stalls] = {}
        self._sites = Sites(scheduler)
        self._client: Client | None = None
        self._ticked_at = time.monotonic()
        self._is_ticking = False
        departures = Departures(scheduler, self._jobs, self._handle)
        handlers: dict[str, Callable[..., Any]] = {
            Op.SUBMIT: self.submit,
            Op.SIGNAL: self.signal,
            Op.FIND: self.find,
            Op.LEAVING: departures.announce,
            Op.LEFT: departures.wait,
        }
        scheduler.handlers.update(handlers)
        scheduler.stream_handlers[EVENTS] = self._on_event

    # -- what clients and Dask workers ask ---------------------------------------------------------------------------

    async def submit(self, spec: Mapping[str, Any]) -> dict[str, str]:
        """Start a job; return why it is refused, under ``refused``, or nothing."""
        job = JobSpec(**spec)
        if job.job_id in self._jobs:
            return {"refused": f"a job with the id {job.job_id} runs on this cluster. Give another --run-dir."}
        state = JobState(job)
        try:
            self._check_room(state)
        except ClusterError as error:
            return {"refused": str(error)}
        self._jobs[job.job_id] = state
        self._futures[job.job_id] = {}
        if self._client is None:
            # asynchronous, on the scheduler's own loop: the owner of the tasks of all jobs
            self._client = Client(
                self.scheduler.address, asynchronous=True, set_as_default=False, security=self.scheduler.security
            )
        await self._client
        # the client's own request to subscribe may come later than its job
        self.scheduler.subscribe_topic(topic_of(job.job_id), job.client)
        self._do(state, state.begin(time.monotonic(), self._facts(job.job_id)))
        self._keep_ticking()
        return {}

    def _check_room(self, state: JobState) -> None:
        """Check that a job fits beside jobs whose tasks may not have begun."""
        facts = self._facts("")
        claimed: dict[str, int] = {}
        for other in self._jobs.values():
            for address, n in other.threads.items():
                claimed[address] = claimed.get(address, 0) + n
        busy = {address: max(each.busy, claimed.get(address, 0)) for address, each in facts.items()}
        workers = state.spec.workers
        chosen = {address: facts[address]._replace(busy=busy[address]) for address in workers if address in facts}
        layout = plan_processes(state.cluster)
        place_again(layout, chosen, (), (1, len(workers)), packed=len(workers) < len(layout.processes))

    def signal(self, job_id: str, name: str) -> None:
        """Stop a job with a checkpoint; the second time, end it at once."""
        self._handle(job_id, ev.Signal(name))

    def find(self, job_id: str) -> str:
        """Return the phase of a job, ``"over"`` until its client was told; empty if it is not known."""
        state = self._jobs.get(job_id)
        return state.phase if state else ""

    def _on_event(self, job_id: str, life: int, what: Mapping[str, Any], worker: str = "") -> None:
        self._handle(job_id, ev.Said(life, what))

    # -- what the scheduler tells --------------------------------------------------------------------------------------

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Tell jobs of a new Dask worker."""
        for job_id in list(self._jobs):
            self._handle(job_id, ev.Arrived(worker))

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """Tell jobs of a Dask worker that is gone."""
        self._sites.forget(worker)
        for job_id in list(self._jobs):
            self._handle(job_id, ev.Gone(worker, "it is gone"))

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """End the jobs of a client that went away, unless it comes back soon."""
        for job_id, state in self._jobs.items():
            if state.spec.client == client:
                scheduler.loop.call_later(CLIENT_BACK_S, self._check_client, job_id)

    def _check_client(self, job_id: str) -> None:
        state = self._jobs.get(job_id)
        if state is not None and state.spec.client not in self.scheduler.clients:
            self._handle(job_id, ev.ClientGone())

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[WorkerState]) -> list[WorkerState]:
        """Keep Dask workers that have units."""
        needed = {address for state in self._jobs.values() for address in state.workers}
        return [each for each in workers if each.address not in needed]

    async def before_close(self) -> None:
        """Close the client that owns the tasks."""
        self._jobs.clear()
        await self._close_client()

    async def _close_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # -- time ----------------------------------------------------------------------------------------------------------

    def _keep_ticking(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            self._ticked_at = time.monotonic()
            self.scheduler.loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        now = time.monotonic()
        # a scheduler that was held up itself has heard of nobody
        was_held_up, self._ticked_at = now - self._ticked_at > 2 * TICK_S + 1, now
        for job_id, state in list(self._jobs.items()):
            if not was_held_up:
                for address in state.workers:
                    if self._is_silent(address):
                        self._handle(job_id, ev.Gone(address, f"it has not been heard of for {SILENT_S:g} s"))
            self._tell_steps(job_id, state)
            self._handle(job_id, ev.Tick())
        is_left = self._end_left_over()
        if (self._jobs or is_left) and self.scheduler.status != Status.closed:
            self._keep_ticking()

    def _end_left_over(self) -> bool:
        """End lives that are over, or jobs, on Dask workers that could not be reached then; return whether any are."""
        is_left = False
        for address, known in self.scheduler.workers.items():
            for job_id, hosted in known.metrics.get(SITE, {}).items():
                state = self._jobs.get(job_id)
                for told in hosted:
                    if state is not None and state.roster.has(told["process"], told["life"]):
                        continue
                    is_left = True
                    if not self._is_silent(address):
                        reason = "the job goes on elsewhere" if state else "the job is over"
                        facts = {"life": told["life"], "process": told["process"], "forget": state is None}
                        self._ask_later(address, Op.END, job_id=job_id, reason=reason, **facts)
        return is_left

    def _is_silent(self, address: str) -> bool:
        known = self.scheduler.workers.get(address)
        limit = max(SILENT_S, 3 * heartbeat_interval(len(self.scheduler.workers)))
        return known is not None and time.time() - known.last_seen > limit

    def _tell_steps(self, job_id: str, state: JobState) -> None:
        """Pass on the steps that came with the heartbeats of Dask workers; warn if there are none for long."""
        steps: dict[str, int] = {}
        waits: dict[str, tuple[str, float]] = {}
        for address in state.workers:
            known = self.scheduler.workers.get(address)
            for told in known.metrics.get(SITE, {}).get(job_id, ()) if known else ():
                if told["life"] in state.roster.lives:
                    waits |= told["waits"]
                    for group, step in told["steps"].items():
                        steps[group] = min(step, steps.get(group, step))
        if steps and steps != state.steps:
            what = {"event": "steps", "steps": steps}
            self._handle(job_id, ev.Said(state.life, what))
            self.scheduler.log_event(topic_of(job_id), what)
        stall = self._stalls.setdefault(job_id, Stalls()).look(steps, waits, time.monotonic())
        if stall and state.phase == "running":
            self._tell(job_id, {"event": "log", "level": "WARNING", "message": stall})

    def _facts(self, job_id: str) -> dict[str, ev.WorkerFacts]:
        """Return what is known of each Dask worker, as a job sees it: its own tasks do not count."""
        mine = {future.key for future in self._futures.get(job_id, ())}
        return {
            address: ev.WorkerFacts(
                nthreads=known.nthreads,
                busy=sum(task.key not in mine for task in known.processing),
                host=known.host,
                name=str(known.name),
                has_nanny=bool(known.nanny),
                usable=known.status == Status.running and not self._is_silent(address),
            )
            for address, known in self.scheduler.workers.items()
        }

    # -- actions -------------------------------------------------------------------------------------------------------

    def _handle(self, job_id: str, event: Any) -> None:
        state = self._jobs.get(job_id)
        if state is None:
            return
        try:
            self._do(state, state.handle(event, time.monotonic(), self._facts(job_id)))
        except Exception as error:  # nobody else would end the job
            logger.exception("%s: %s", job_id, event)
            failure = {"reason": f"the scheduler: {error!r}", "exit_code": 1, "error": traceback.format_exc() + A_BUG}
            self._do(state, state.break_off(failure))

    def _do(self, state: JobState, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, ev.Tell):
                self._tell(state.spec.job_id, action.what)
            elif isinstance(action, ev.RunUnits):
                self._run(state.spec.job_id, action)
            elif isinstance(action, ev.Host):
                self.scheduler.loop.add_callback(self._host, state.spec, action)
            elif isinstance(action, ev.EndLife):
                self.scheduler.loop.add_callback(self._end_life, state.spec.job_id, action)
            elif isinstance(action, ev.CutOff):
                self.scheduler.loop.add_callback(self._cut, state.spec.job_id, action)
            elif isinstance(action, ev.Join):
                self.scheduler.loop.add_callback(self._join, state.spec.job_id, action)
            elif isinstance(action, ev.StopUnits):
                self._ask_later(action.worker, Op.STOP, job_id=state.spec.job_id)
            elif isinstance(action, ev.RequestSnapshot):
                self._ask_later(action.worker, Op.SNAPSHOT, job_id=state.spec.job_id)
            else:
                self.scheduler.loop.add_callback(self._end, state.spec.job_id, action)

    def _tell(self, job_id: str, what: Mapping[str, Any]) -> None:
        self.scheduler.log_event(topic_of(job_id), {"unit": "driver", "time": time.time(), **what})

    def _ask_later(self, worker: str, op: str, **arguments: Any) -> None:
        async def ask() -> None:
            await self._sites.ask(worker, ASK_TIMEOUT_S, op, **arguments)

        self.scheduler.loop.add_callback(ask)

    async def _host(self, spec: JobSpec, action: ev.Host) -> None:
        answer = await self._sites.host(spec, action)
        if isinstance(answer, BaseException):
            missing = isinstance(answer, ImportError)
            what = f"the package cannot be loaded there: {answer}" if missing else f"{type(answer).__name__}: {answer}"
            answer = {"error": what}
        self._handle(spec.job_id, ev.Hosted(action.life, action.process, **answer))

    async def _end_life(self, job_id: str, action: ev.EndLife) -> None:
        arguments = {"job_id": job_id, "life": action.life, "reason": action.reason, "forget": action.forget}
        answer = await self._sites.ask(action.worker, END_TIMEOUT_S, Op.END, process=action.process, **arguments)
        await self._cancel(job_id, action.life, action.process)
        if isinstance(answer, dict):
            self._handle(job_id, ev.Ended(action.life, action.worker, answer, action.process))
        else:
            logger.warning("%s: %s does not end life %d: %s", job_id, action.worker, action.life, answer)

    async def _cut(self, job_id: str, action: ev.CutOff) -> None:
        arguments = {"processes": list(action.processes), "groups": list(action.groups)}
        answer = await self._sites.ask_process(job_id, action, Op.CUT, **arguments)
        self._handle(job_id, ev.Cut(action.life, action.process, **answer))

    async def _join(self, job_id: str, action: ev.Join) -> None:
        left = [list(unit) for unit in action.left]
        facts = {"endpoints": dict(action.endpoints), "left": left, "buddy": action.buddy}
        if action.buddy:
            self.scheduler.loop.add_callback(self._sites.install, action.buddy)
        answer = await self._sites.ask_process(job_id, action, Op.JOIN, **facts)
        self._handle(job_id, ev.Joined(action.life, action.process, **answer))

    async def _cancel(self, job_id: str, up_to_life: int, process: int | None = None) -> None:
        """Release the tasks of lives that are over, or of one process."""
        tasks = self._futures.get(job_id, {})
        old = [future for future, (life, of) in tasks.items() if life <= up_to_life and process in (None, of)]
        for future in old:
            del tasks[future]
        if old and self._client is not None:
            await self._client.cancel(old, force=True)

    def _run(self, job_id: str, action: ev.RunUnits) -> None:
        assert self._client is not None
        for i in range(action.n_tasks):
            units = action.units[i :: action.n_tasks]
            future = self._client.submit(
                run_units,
                job_id,
                action.life,
                action.process,
                [list(unit) for unit in units],
                list(action.endpoints),
                key=f"{topic_of(job_id)}-{units[0]}-life-{action.life}",
                workers=[action.worker],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            self._futures[job_id][future] = (action.life, action.process)
            self.scheduler.loop.add_callback(self._follow, job_id, future, action.life, units)

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

    async def _end(self, job_id: str, action: ev.Over) -> None:
        try:
            await self._clean_up(job_id, self._jobs[job_id].life, action)
        finally:
            self._tell(job_id, action.what)
            self._jobs.pop(job_id, None)  # as long as a client may look for it, it is known

    async def _clean_up(self, job_id: str, life: int, action: ev.Over) -> None:
        """Remove what is left of a job on the cluster."""
        await self._cancel(job_id, life)
        for address in self._sites.workers:  # also those that were of earlier lives, or keep snapshots of others
            self._ask_later(address, Op.END, job_id=job_id, life=life, reason="the job is over", forget=True)
        self._futures.pop(job_id, None)
        self._stalls.pop(job_id, None)
        if action.stuck:
            self.scheduler.loop.add_callback(self._sites.restart, action.stuck)
        if list(self._jobs) == [job_id]:
            await self._close_client()

    def __getstate__(self) -> dict[str, Any]:
        return {}


def _explain(unit: Address, error: BaseException) -> dict[str, Any]:
    """Describe the failure of a task without a result."""
    reason = f"{unit}: its task failed: {error!r}"
    return {
        "reason": reason,
        "error": repr(error),
        "exit_code": LostUnitError.exit_code,
        "expected": True,
        "retry": True,
    }
