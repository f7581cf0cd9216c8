"""Jobs: the scheduler plug-in that carries out the decisions of each job's `JobState`."""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any

from dask.utils import format_bytes
from distributed import Scheduler, SchedulerPlugin, Status
from distributed.scheduler import WorkerState, heartbeat_interval
from tornado import gen

from singa_dask.conf import ClusterConf
from singa_dask.conf.cluster import WorkersConf
from singa_dask.errors import A_BUG, NotNowError, SchedulerError, text_of
from singa_dask.redaction import redact
from singa_dask.runtime.dashboard.pages import add_dashboard
from singa_dask.runtime.job.dask_worker.clock import read_clock
from singa_dask.runtime.job.frames import guard_frames
from singa_dask.runtime.job.job_end import Failure
from singa_dask.runtime.job.limits import check_limits, limit
from singa_dask.runtime.job.names import EVENTS, JOBS, SITE, TAKEN_OVER, Op, in_use
from singa_dask.runtime.job.scheduler.demand import count_demand, missing_of, sizes_of
from singa_dask.runtime.job.scheduler.departures import RETIRE, Departures
from singa_dask.runtime.job.scheduler.detached_jobs import DetachedJobs
from singa_dask.runtime.job.scheduler.heartbeats import Heartbeats
from singa_dask.runtime.job.scheduler.history import History
from singa_dask.runtime.job.scheduler.job_queue import JobQueue
from singa_dask.runtime.job.scheduler.left_over import LeftOver
from singa_dask.runtime.job.scheduler.performing import perform
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.job.scheduler.seen_workers import SeenWorkers
from singa_dask.runtime.job.scheduler.sites import Sites
from singa_dask.runtime.job.scheduler.unit_tasks import UnitTasks
from singa_dask.runtime.job.scheduler.views import Views
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev
from singa_dask.runtime.job.state.job_state import JobState
from singa_dask.runtime.job.state.submission import JobSpec
from singa_dask.runtime.planning.layout import plan_processes
from singa_dask.runtime.planning.worker_choice import TO_WAIT, WorkerFacts, place_again, place_first
from singa_dask.shown import plural

logger = logging.getLogger(__name__)

TICK_S = 0.5
# A lost Dask worker that used at least this share of its memory was probably ended by its nanny. Nannies end Dask
# workers at 0.95.
FULL = 0.7
TARGET = "adaptive_target"
ANY = WorkersConf()
# for messages: senders of a signal that stops a detached job
NEWER = "a newer scheduler"
NO_DRIVER = "the end of its driver"

# events of units that users do not see
UNSEEN = frozenset(("training", "snapshot"))


class Jobs(SchedulerPlugin):
    """Manages all jobs on a cluster: starts their units, watches their Dask workers, and restarts them.

    Attributes
    ----------
    records : dict of str to JobRecord
        The running jobs, by id.
    """

    name = JOBS
    idempotent = True

    async def start(self, scheduler: Scheduler) -> None:
        """Register the handlers that clients and Dask workers (`Site`) call."""
        if vars(self).get("scheduler") is scheduler:
            return  # Dask starts a plug-in twice if it was added by a preload module
        check_limits(f"the scheduler at {scheduler.address}")
        guard_frames()
        self.scheduler = scheduler
        self.records: dict[str, JobRecord] = {}
        self.history = History()
        self.sites = Sites(scheduler)
        self.tasks = UnitTasks(scheduler, self.handle)
        self._heartbeats = Heartbeats(scheduler)
        self._is_ticking = False
        # (job, error) for each error of the scheduler that was already logged
        self._told: set[tuple[str, str]] = set()
        self._news_at = 0.0  # time at which most Dask workers will have sent their next heartbeat
        self._present = dict(scheduler.workers)
        self.left_over = LeftOver(self)
        self.queue = JobQueue(scheduler, self.history)
        self.detached = DetachedJobs(
            scheduler, self.records, self.history, self.sites, self.queue, self.tell, self._heartbeats.is_silent
        )
        views = Views(self)
        self._remove_metrics = add_dashboard(scheduler, views)
        departures = Departures(self)
        handlers: dict[str, Callable[..., Any]] = {
            Op.SUBMIT: self.submit,
            Op.REFUSAL: self._when_read(self.refusal),
            Op.ROOM: self._room_for,
            Op.EVENTS: self._when_read(self.events),
            Op.SNAPSHOT: self._on_event,
            Op.DETACH: self._detach,
            Op.DETACHED: self.detached.state_of,
            Op.RENEW: self.detached.renew,
            Op.DRIVER_ENDED: self.detached.end_driver,
            Op.TURN: self._turn,
            Op.LEAVE: self.queue.leave,
            Op.CLOCK: read_clock,
            Op.LEAVING: departures.announce,
            Op.LEFT: lambda worker: departures.wait({worker}),
            Op.SERVERS: self.sites.servers,
            Op.LIST: views.list,
            Op.VIEW: self._when_read(views.view),
            Op.RUNS: self._when_read(views.runs_in),
            Op.UNREAD: self.detached.wait_until_read,
            Op.SIGNAL: self._when_read(views.signal),
            Op.CHECKPOINT: self._when_read(views.checkpoint),
            Op.STACKS: self._when_read(views.stacks),
            Op.TOKENS: self._when_read(views.tokens),
        }
        self._nthreads = 0
        scheduler.handlers.update({op: _guard(op, handler) for op, handler in handlers.items()})
        # Replace two operations of Dask. Before a Dask worker is retired, its units move away. An adaptive cluster also
        # gets the Dask workers that jobs need.
        replaced: dict[str, Callable[..., Any]] = {RETIRE: departures.retire, TARGET: self._adaptive_target}
        scheduler.handlers.update(replaced)
        setattr(scheduler, TARGET, self._adaptive_target)  # dask-gateway calls the method of the scheduler
        scheduler.stream_handlers[EVENTS] = self._on_event
        # clients read this metadata before they call the operations, because Dask does not answer unknown operations
        scheduler.set_metadata([JOBS], True)
        # restore jobs after this method: until this method returns, clients that connect find no plug-in
        scheduler.loop.add_callback(self._restore)

    async def _restore(self) -> None:
        await self.detached.restore()
        self._keep_ticking()

    # -- handlers for clients and Dask workers -----------------------------------------------------------------------

    def _when_read(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Return a handler that first waits until the jobs of an earlier scheduler are known.

        For a call about a known job, the handler does not wait.
        """

        async def handle(**arguments: Any) -> Any:
            job_id = arguments.get("job_id", "")
            if not (self.detached.has(job_id) or self.queue.has(job_id) or job_id in self.history.facts):
                await self.detached.wait_until_read()
            answer = handler(**arguments)
            return await answer if isawaitable(answer) else answer

        return handle

    def refusal(self, job_id: str, priority: int | None = None) -> str:
        """Return why a new job would be refused; empty if it would be accepted.

        Pass ``priority`` for a job that does not wait in the queue. Such a job is refused if jobs of this or a higher
        priority are queued.
        """
        if self.detached.has(job_id):
            return in_use(job_id)
        return "" if priority is None else self._queue_refusal(job_id, priority)

    def _queue_refusal(self, job_id: str, priority: int) -> str:
        ahead = self.queue.ahead_of(job_id, priority)
        waiting = f"queued on this cluster: {plural(len(ahead), 'job')} of this priority or a higher one"
        return f"{waiting}, {ahead[0]} first. {TO_WAIT}" if ahead else ""

    async def submit(self, spec: Mapping[str, Any]) -> tuple[str, bool]:
        """Start a job.

        Return the reason if the job is refused, else an empty string; and whether it may be submitted again later.
        """
        job = JobSpec(**spec)
        await self.detached.restored.wait()
        known = self.records.get(job.job_id)
        if known and (known.spec.client, known.spec.driver) == (job.client, job.driver):
            return "", False  # the client repeats its call, because the answer was late
        if known or (not job.driver and self.detached.has(job.job_id)):
            return in_use(job.job_id), False
        if job.driver and not self.detached.renew(job.job_id, job.driver):
            return f"another driver has taken over the job {job.job_id}.", False
        if job.driver and job.job_id in self.history.facts:
            return "the job has ended.", False  # this call came after the end of the job
        if self.queue.is_stopped(job.job_id):
            return "somebody has stopped the job.", True  # the client then asks the queue who it was
        if refusal := self._queue_refusal(job.job_id, job.priority):
            return refusal, True
        record = JobRecord(job)
        try:
            self._check_workers(record.state)
            self.records[job.job_id] = record
            await self.tasks.connect()
        except Exception as error:
            self.records.pop(job.job_id, None)
            if isinstance(error, NotNowError):
                return str(error), True
            return f"the scheduler cannot start tasks: {text_of(error)}", False
        self.queue.leave(job.job_id)
        self.history.drop(job.job_id)
        self._do(record, record.state.begin(time.monotonic(), self._facts(job.job_id)))
        if job.driver and (loss := self.detached.loss_of(json.loads(job.job))):
            self.tell(job.job_id, {"event": "log", "level": "WARNING", "message": loss})
        if job.client not in self.scheduler.clients:
            self.remove_client(self.scheduler, job.client)  # the client left before its job was accepted
        self._keep_ticking()
        return "", False

    async def _detach(self, run: Mapping[str, Any], client: str) -> str:
        job_id = run["job_id"]
        await self.detached.wait_until_read()  # if this takes too long, the job is refused
        refusal = "" if run["queue"] else self._queue_refusal(job_id, run["priority"])
        if refusal := refusal or self.detached.detach(run, client):
            return refusal
        if refusal := await self.detached.save(job_id):
            self.detached.stop(job_id, "SIGTERM")
            return refusal
        self._try(self.detached.start_next, self._check_room)
        self._keep_ticking()
        return ""

    async def _turn(self, **arguments: Any) -> dict[str, Any]:
        """Answer the client of a queued job; see `JobQueue.turn`."""
        await self.detached.restored.wait()
        self._keep_ticking()
        return self.queue.turn(**arguments)

    def _check_room(self, cluster: ClusterConf) -> None:
        """Raise `ClusterError` if a queued job does not fit on the cluster."""
        place_first(plan_processes(cluster), self._room(self.scheduler.workers, cluster.workers))

    def _check_workers(self, state: JobState) -> None:
        """Raise `ClusterError` if a job does not fit on the Dask workers that were chosen for it."""
        workers, layout = state.spec.workers, plan_processes(state.cluster)
        packed = len(workers) < len(layout.processes)
        try:
            place_again(layout, self._room(workers, state.cluster.workers), (), (1, len(workers)), packed=packed)
        except NotNowError:
            self._check_room(state.cluster)  # this error describes all Dask workers
            raise NotNowError(
                "the Dask workers that were chosen for this job have too few free threads now. There is room on "
                "others: start the job again."
            ) from None

    def _room_for(self, wanted: Mapping[str, Any], beside_tasks: bool = True) -> dict[str, WorkerFacts]:
        """Return facts about the Dask workers, such as free threads, for a job that is to be placed.

        Parameters
        ----------
        wanted : mapping
            The block ``cluster.workers`` of the job.
        beside_tasks : bool
            Whether threads that run other Dask tasks than units count as occupied.
        """
        return self._room(self.scheduler.workers, WorkersConf.model_validate(wanted), beside_tasks)

    def _room(
        self, workers: Iterable[str], wanted: WorkersConf = ANY, beside_tasks: bool = True
    ) -> dict[str, WorkerFacts]:
        return self._facts("", wanted).room(workers, self.records, beside_tasks)

    async def events(
        self, job_id: str, after: int = -1, wait_s: float = 0.0, driver: int = 0, client: str = ""
    ) -> list[dict[str, Any]] | None:
        """Return a page of the kept events of a job, in order.

        Parameters
        ----------
        after : int
            Only events with higher numbers are returned.
        wait_s : float
            If there are no such events, wait up to this many seconds for the next one. With a value above 0, the last
            returned event may report the newest steps; that event has no number.
        driver : int
            Number of the driver that asks; 0 for other clients. If another driver has replaced it, the only event is
            `TAKEN_OVER`.
        client : str
            Id of the client that asks.

        Returns
        -------
        list of dict or None
            The events; None if the job is not known, or if its events are no longer kept.
        """
        record = self.records.get(job_id)
        if record is None and self.queue.has(job_id):
            await gen.sleep(wait_s)
            return []
        kept = self.history.events(job_id)
        if record is not None:
            events = await record.next_events(after, wait_s)
        elif kept is not None:
            events = kept.after(after)
        else:
            events = None
        if driver and not self.detached.renew(job_id, driver):
            return [{"event": TAKEN_OVER}]
        if events and events[-1]["event"] == "over" and not self.detached.is_detached(job_id):
            self.history.trim(job_id, client)
        return events

    def _on_event(self, job_id: str, incarnation: int, what: Mapping[str, Any], worker: str = "") -> None:
        with self._ends_alone(job_id):  # an error that leaves this method would close the stream of the Dask worker
            if (event := ev.decisive(incarnation, what)) is not None:
                self.handle(job_id, event)
            if what["event"] not in UNSEEN:
                self.tell(job_id, {**what, "incarnation": incarnation})

    # -- events of the scheduler ---------------------------------------------------------------------------------------

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Notify all jobs of a new Dask worker."""
        self._present[worker] = scheduler.workers[worker]
        for job_id in list(self.records):
            self.handle(job_id, ev.Arrived(worker))

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """Notify all jobs and drivers of a Dask worker that is gone."""
        self.sites.forget(worker)
        self.left_over.forget(worker)
        self._try(self.detached.lose, worker)
        why = _why_gone(self._present.pop(worker, None))
        for job_id in list(self.records):
            self.handle(job_id, ev.Gone(worker, why))

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """End the jobs of a client that has left, unless it reconnects soon. Detached jobs continue."""
        for job_id, record in self.records.items():
            if record.spec.client == client and not record.spec.driver:
                record.n_client_losses += 1
                scheduler.loop.call_later(limit("client"), self._check_client, job_id, record.n_client_losses)

    def _check_client(self, job_id: str, loss: int) -> None:
        """End a job whose client has not come back since ``loss``, the number of the connection's loss.

        If the client came back and was lost again, a later call of this method ends the job.
        """
        record = self.records.get(job_id)
        if record is not None and record.n_client_losses == loss and record.spec.client not in self.scheduler.clients:
            self.handle(job_id, ev.ClientGone())

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[WorkerState]) -> list[WorkerState]:
        """Return the Dask workers without units and drivers, which an adaptive cluster may close."""
        needed = self._needed()
        return [worker for worker in workers if worker.address not in needed]

    async def before_close(self) -> None:
        """Close the client that owns the tasks of units, before the scheduler closes."""
        self.records.clear()
        self._remove_metrics()
        await self.tasks.close()

    # -- adaptive clusters ---------------------------------------------------------------------------------------------

    def _adaptive_target(self, target_duration: Any = None) -> int:
        """Return the number of Dask workers that an adaptive cluster needs, for jobs and for other tasks."""
        for known in self.scheduler.workers.values():
            self._nthreads = known.nthreads
        room = {address: each for address, each in self._room(self.scheduler.workers).items() if each.usable}
        records = self.records.values()
        wanted = [(each.state.cluster, set(each.state.workers), missing_of(each)) for each in records]
        wanted += [(cluster, set(), sizes_of(cluster)) for cluster in self.queue.clusters()]
        for_jobs = count_demand(room, self._needed(), wanted, self._nthreads)
        return max(Scheduler.adaptive_target(self.scheduler, target_duration), for_jobs)

    def _needed(self) -> set[str]:
        """Return the Dask workers that have units or drivers."""
        return self.detached.workers.union(*(record.state.workers for record in self.records.values()))

    # -- periodic work -------------------------------------------------------------------------------------------------

    def _keep_ticking(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            self.scheduler.loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        parts = (self._heartbeats.look, self._tick_jobs, self.detached.tick, self.queue.tick, self.left_over.tick)
        is_left = [self._try(part) for part in parts]
        self._try(self.detached.start_next, self._check_room)
        if (self.records or any(is_left)) and self.scheduler.status != Status.closed:
            self._keep_ticking()

    def _try(self, part: Callable[..., object], *given: Any) -> bool:
        """Run a part of a tick; return whether the tick has more parts. Log an error once for each job."""
        try:
            return bool(part(*given))
        except Exception as error:
            why = f"the scheduler failed to check its jobs: {text_of(error)}"
            new = {(job_id, why) for job_id in ("", *self.records)} - self._told
            self._told |= new
            if ("", why) in new:
                logger.exception("%s", why)
            for job_id, _ in new:
                with self._ends_alone(job_id):
                    self.tell(job_id, {"event": "log", "level": "WARNING", "message": why})
            return True

    def _tick_jobs(self) -> None:
        now = time.monotonic()
        if is_news := now >= self._news_at:
            self._news_at = now + heartbeat_interval(len(self.scheduler.workers))
        for job_id, record in list(self.records.items()):
            with self._ends_alone(job_id):
                if is_news:
                    self._tell_steps(job_id, record)
                self._lose_silent(job_id, record)
                if record.spec.driver and not self.detached.is_recorded(job_id) and record.state.phase != "over":
                    self.handle(job_id, ev.Signal("SIGTERM", NEWER if self.detached.taken_over else NO_DRIVER))
            self.handle(job_id, ev.Tick())
        if self.records or self.queue.clusters():  # Dask counts only tasks: keep it awake for jobs
            self.scheduler.idle_since = None

    def _lose_silent(self, job_id: str, record: JobRecord) -> None:
        """Give up Dask workers that are silent for too long, unless other processes make steps that need them."""
        now = time.monotonic()
        for address in record.state.workers:
            if self._heartbeats.is_silent(address):
                seconds = self._heartbeats.limit_of(address)
                if not record.evidence.is_alive(address, now, seconds):
                    self.handle(job_id, ev.Gone(address, f"there has been no heartbeat for {seconds:.0f} s"))

    def _tell_steps(self, job_id: str, record: JobRecord) -> None:
        """Publish the steps that came with heartbeats; warn if the job has made no step for long."""
        state = record.state
        told: dict[str, dict[str, int]] = {}
        waits: dict[str, tuple[str, float]] = {}
        for address in state.workers:
            known = self.scheduler.workers.get(address)
            if known is None:
                continue
            for progress in known.metrics.get(SITE, {}).get(job_id, ()):
                if state.roster.has(progress["process"], progress["incarnation"]):
                    waits |= progress["waits"]
                    record.show(record.activity.add_progress, progress, known.last_seen)
                    mine = told.setdefault(address, {})
                    mine |= {group: min(step, mine.get(group, step)) for group, step in progress["steps"].items()}
        now = time.monotonic()
        record.evidence.look(told, state.groups_of(), now)
        steps: dict[str, int] = {}
        for each in told.values():
            steps |= {group: min(step, steps.get(group, step)) for group, step in each.items()}
        steps |= state.last_steps()  # heartbeats may be older than these steps
        if steps and steps != state.steps:
            self.handle(job_id, ev.Stepped(state.incarnation, steps))
            self.tell(job_id, {"event": "steps", "steps": steps})
        stall = record.stalls.look(steps, waits, now)
        if stall and state.phase == "running":
            self.tell(job_id, {"event": "log", "level": "WARNING", "message": stall})

    def _facts(self, job_id: str, wanted: WorkersConf = ANY) -> SeenWorkers:
        if job_id in self.records:
            wanted = self.records[job_id].state.cluster.workers
        return SeenWorkers(self.scheduler.workers, self._heartbeats, job_id, wanted)

    # -- actions of a job's state --------------------------------------------------------------------------------------

    @contextmanager
    def _ends_alone(self, job_id: str) -> Iterator[None]:
        """End one job if an error is raised in the context, so that the other jobs continue."""
        try:
            yield
        except Exception as error:
            logger.exception("%s", job_id)
            record = self.records.get(job_id)
            if record is not None and record.state.phase != "over":
                failure = Failure(f"the scheduler: {text_of(error)}", error=redact(traceback.format_exc()) + A_BUG)
                self._do(record, record.state.break_off(failure))

    def handle(self, job_id: str, event: Any) -> None:
        """Pass an event to a job, and carry out its decisions."""
        record = self.records.get(job_id)
        if record is not None:
            with self._ends_alone(job_id):
                self._do(record, record.state.handle(event, time.monotonic(), self._facts(job_id)))

    def _do(self, record: JobRecord, actions: list[Any]) -> None:
        job_id, add_callback = record.spec.job_id, self.scheduler.loop.add_callback
        if hosted := next((action for action in actions if isinstance(action, act.Host)), None):
            self.sites.share(record, hosted)
        if begun := [action for action in actions if isinstance(action, act.RunUnits)]:
            self.tasks.run(record, begun)
        for action in actions:
            if isinstance(action, act.Tell):
                self.tell(job_id, action.what)
            elif not isinstance(action, act.RunUnits):
                add_callback(self._carry_out, record, action)

    async def _carry_out(self, record: JobRecord, action: Any) -> None:
        with self._ends_alone(record.spec.job_id):
            await perform(action, record, self)

    def tell(self, job_id: str, what: Mapping[str, Any]) -> None:
        """Send an event to the followers of a job."""
        record = self.records.get(job_id)
        if record is not None:
            record.add_event(what)

    def __getstate__(self) -> dict[str, Any]:
        return {}


def _guard(op: str, handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler that raises `SchedulerError` for a bug. Other errors could mean a lost connection."""

    async def handle(**arguments: Any) -> Any:
        try:
            answer = handler(**arguments)
            return await answer if isawaitable(answer) else answer
        except Exception as error:
            logger.exception("%s", op)
            why = f"the scheduler failed in {op}: {text_of(error).removesuffix('.')}."
        # raise this outside of the `except`: Dask would also send the cause, and not every error can be pickled
        raise SchedulerError(f"{why} This is a bug in singa-dask. Please report it with the log of the scheduler.")

    return handle


async def dask_setup(server: Any) -> None:
    """Add the plug-in `Jobs` to a scheduler when the scheduler starts; do nothing in other Dask servers.

    If a scheduler does not preload this package, its first job adds `Jobs`.
    """
    if isinstance(server, Scheduler):
        await server.register_scheduler_plugin(Jobs(), idempotent=True)


def _why_gone(known: WorkerState | None) -> str:
    """Return a likely reason why a Dask worker is gone: its nanny ends it when its memory is full."""
    used, most = (known.metrics.get("memory", 0), known.memory_limit) if known else (0, 0)
    if not most or used < FULL * most:
        return "it is gone"
    return (
        f"it is gone, and used {format_bytes(used)} of its {format_bytes(most)} of memory. A nanny ends a Dask worker "
        "whose memory is full: start Dask workers with a larger --memory-limit, or lower batchsize"
    )
