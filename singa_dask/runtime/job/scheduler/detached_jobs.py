"""DetachedJobs: start drivers of detached jobs on Dask workers, and restart lost ones elsewhere."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from distributed import Scheduler, Status
from distributed.comm.addressing import get_address_host
from distributed.utils import TimeoutError as LateError  # type: ignore[attr-defined]
from tornado import gen, util
from tornado.locks import Event

from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError, text_of
from singa_dask.redaction import redact
from singa_dask.runtime.job.limits import limit, state_url
from singa_dask.runtime.job.names import DRIVERS, Op, in_use, stopped
from singa_dask.runtime.job.scheduler.detached_job import DetachedJob, Phase
from singa_dask.runtime.job.scheduler.history import History
from singa_dask.runtime.job.scheduler.job_queue import QUEUED, JobQueue
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.job.scheduler.saved_jobs import SavedJobs
from singa_dask.runtime.job.scheduler.sites import Sites
from singa_dask.runtime.job.state.job_facts import JobFacts
from singa_dask.wording import listed

logger = logging.getLogger(__name__)


def _facts_aside(job_id: str, reason: str, saved: str) -> JobFacts:
    """Return the facts in the file of a saved job that cannot be continued, as far as they are readable."""
    run: Mapping[str, Any] = {}
    with suppress(Exception):  # the text may contain anything
        run = {**json.loads(saved)["run"]}
        run = {**run, "name": json.loads(run["job"])["name"]}
    name, owner, run_url = (redact(str(run.get(key, ""))) for key in ("name", "owner", "run_url"))
    facts = JobFacts(id=job_id, name=name, owner=owner, run_url=run_url, detached=True, began=time.time())
    return replace(facts, state="failed", reason=reason, exit_code=ClusterError.exit_code, ended=time.time())


AGAIN_S = 5.0
"""Seconds until Dask workers that could not run a driver are tried again."""


class DetachedJobs:
    """Starts the drivers of detached jobs on Dask workers, and restarts lost drivers elsewhere.

    A queued job has no driver until it is first in the queue and fits on the cluster.

    Parameters
    ----------
    records : mapping of str to JobRecord
        The records of `Jobs`.
    tell : callable
        Called as ``tell(job_id, event)`` to send an event to the followers of a job.
    is_silent : callable
        Takes the address of a Dask worker; returns whether its heartbeats have been missing for too long.

    Attributes
    ----------
    restored : Event
        Set once `restore` has ended, or takes longer than the limit ``question``.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        records: Mapping[str, JobRecord],
        history: History,
        sites: Sites,
        queue: JobQueue,
        tell: Callable[[str, Mapping[str, Any]], None],
        is_silent: Callable[[str], bool],
    ) -> None:
        self._scheduler = scheduler
        self._records = records
        self._history = history
        self._sites = sites
        self._queue = queue
        self._tell = tell
        self._is_silent = is_silent
        self._detached: dict[str, DetachedJob] = {}
        self._saved = SavedJobs(scheduler, state_url(), self._facts_to_save)
        self.restored = Event()
        self._has_read = Event()
        self._unreadable = ""
        self._stops: dict[str, tuple[str, str]] = {}  # signal and sender for jobs that may still be read

    # -- detaching ---------------------------------------------------------------------------------------------------

    def detach(self, run: Mapping[str, Any], client: str = "") -> str:
        """Start the driver of a job, or put the job in the queue.

        Return the reason if the job is refused, else an empty string.

        Parameters
        ----------
        run : mapping
            Fields of the `JobRun`.
        client : str
            Id of the client.
        """
        job_id = run["job_id"]
        if why := self._unreadable or self.taken_over:
            return why
        if self.has(job_id):
            return in_use(job_id)
        self._history.drop(job_id)
        comm = self._scheduler.client_comms.get(client)
        host = get_address_host(comm.comm.peer_address) if comm is not None and comm.comm is not None else ""
        before = self._detached.get(job_id)  # an old driver of an ended job with this id must not be valid
        self._detached[job_id] = job = DetachedJob(run, host, before.number if before else 0)
        if run.get("queue"):
            self._join(run, client)
        else:
            self._start(job)
        return ""

    # -- jobs of an earlier scheduler --------------------------------------------------------------------------------

    async def restore(self) -> None:
        """Restore the jobs that an earlier scheduler has saved: running jobs first, then the queue in order.

        Until these jobs are read, no detached job is accepted. If their storage hangs, other jobs start meanwhile.
        """
        url, loading = self._saved.url, gen.convert_yielded(self._saved.load())
        if url:
            self._unreadable = f"{url}: the scheduler has not yet read the detached jobs of an earlier one. Try again."
        try:
            with suppress(util.TimeoutError):
                await gen.with_timeout(timedelta(seconds=limit("question")), loading, Exception)
            if not loading.done():
                logger.warning("%s Other jobs start meanwhile.", self._unreadable)
                self.restored.set()
            saved, aside = await loading
            for job_id, facts in aside.items():
                self._history.add_facts(_facts_aside(job_id, **facts))
            self._take_up(saved)
            self._unreadable = ""
        except Exception as error:
            self._unreadable = f"{self._saved.url}: the state of an earlier scheduler cannot be read: {text_of(error)}"
            logger.error("%s No detached job is accepted until the scheduler is started again.", self._unreadable)
            lost = "If this job is among them, it continues when the scheduler is started again. Stop it then."
            for job_id in self._stops:  # their clients have been told that the jobs stop
                logger.error("%s was not stopped. %s", job_id, lost)
                self._history.add_facts(_facts_aside(job_id, f"not stopped: {self._unreadable} {lost}", ""))
        finally:
            self._stops.clear()
            self._has_read.set()
            self.restored.set()

    async def wait_until_read(self) -> str:
        """Wait until the jobs of an earlier scheduler are read, at most for the limit ``late``.

        Return an empty string if these jobs are known, else the reason why they are not.
        """
        with suppress(util.TimeoutError):
            await self._has_read.wait(timedelta(seconds=limit("late")))
        return self._unreadable

    def _take_up(self, saved: list[dict[str, Any]]) -> None:
        saved.sort(key=lambda each: (each["incarnation"] < 0, each["place"]))
        for i, each in enumerate(saved):
            run = each["run"]
            # a driver that still runs for the earlier scheduler has a lower number, so its calls are refused
            job = DetachedJob(run, each["host"], each["number"] + 1, each["incarnation"] + 1, each["incarnation"])
            self._detached[job.job_id] = job
            # restored jobs come before new jobs of the same priority; jobs that were running come before all others
            self._join(run, rank=(-run["priority"] if each["incarnation"] < 0 else -math.inf, i - len(saved)))
            if job.job_id in self._stops:
                self.stop(job.job_id, *self._stops[job.job_id])

    async def save(self, job_id: str, incarnation: int = -1) -> str:
        """Save a detached job with its newest incarnation. Return the error as text, empty after success."""
        job = self._detached.get(job_id)
        if job is None:
            return ""
        job.incarnation = max(job.incarnation, incarnation)
        why = await self._saved.save(job_id)
        if why:
            self._tell(job_id, {"event": "log", "level": "WARNING", "message": why})
        return why

    @property
    def taken_over(self) -> str:
        """Message that another scheduler has taken over the detached jobs; empty otherwise."""
        return self._saved.taken_over

    def _facts_to_save(self, job_id: str) -> dict[str, Any] | None:
        job = self._detached.get(job_id)
        if job is None or job.has_ended or job_id in self._history.facts:
            return None
        facts = {"run": job.run, "host": job.host, "number": job.number, "incarnation": job.incarnation}
        return {**facts, "place": self._queue.arrival_of(job_id)}

    # -- the queue of waiting jobs -----------------------------------------------------------------------------------

    def _join(self, run: Mapping[str, Any], client: str = "", rank: tuple[float, int] | None = None) -> None:
        cluster = json.loads(run["job"])["cluster"]
        facts = replace(JobFacts.of_run(run), detached=True)
        self._queue.turn(facts.to_dict(), client, cluster=cluster, rank=rank)

    def start_next(self, check_room: Callable[[ClusterConf], None]) -> None:
        """Start the driver of the first queued job, if the job is detached and ``check_room`` accepts it.

        ``check_room`` takes the ``cluster`` block of a job, and raises `ClusterError` if the job does not fit.
        """
        job = self._detached.get(self._queue.first)
        if job is None or job.phase is not Phase.WAITING or time.monotonic() < job.not_before:
            return
        try:
            check_room(self._queue.clusters()[0])
        except ClusterError as error:
            self._queue.note(self._queue.first, str(error))
        except Exception as error:  # end the first job after any error, or all other jobs would wait for ever
            logger.exception("%s", self._queue.first)
            why = f"the scheduler cannot tell whether there is room: {text_of(error)}"
            self._end(job, {"reason": why, "exit_code": 1, "error": ""})
        else:
            job.since = time.monotonic()
            self._start(job)

    def state_of(self, job_id: str) -> dict[str, Any]:
        """Return the ``state`` of a detached job.

        The state is unknown, starting, queued, running, refused or ended. For a refused or ended job the result also
        has ``failure`` (with ``reason``, ``exit_code`` and ``error``), for a queued job ``place`` and ``reason``.
        """
        job, record = self._detached.get(job_id), self._records.get(job_id)
        if job is not None and job.failure:
            return {"state": "refused", "failure": dict(job.failure)}
        if record is not None:
            has_begun = record.state.phase == "running" or record.state.incarnation > 0
            return {"state": "running" if has_begun else "starting"}
        if facts := self._history.facts.get(job_id):
            failure = {"reason": facts.reason, "exit_code": facts.exit_code, "error": ""}
            return {"state": "ended", "failure": failure if facts.state == "failed" else {}}
        queued = self._queue.facts().get(job_id)
        if queued and (queued.place > 1 or queued.reason):
            return {"state": "queued", "place": queued.place, "reason": queued.reason}
        return {"state": "starting" if job is not None else "unknown"}

    def loss_of(self, job: Mapping[str, Any]) -> str:
        """Return a warning if a saved job takes no checkpoints and would start over, else an empty string."""
        if not self._saved.url or job["checkpoint_freq"] or job["checkpoint_minutes"]:
            return ""
        return (
            "the job has neither checkpoint_freq nor checkpoint_minutes. The scheduler keeps no snapshots, so the job "
            "starts over if its Dask workers end together with the scheduler."
        )

    def renew(self, job_id: str, number: int) -> bool:
        """Return whether a driver may continue to drive its job.

        The result is False if a newer driver has replaced the driver, or another scheduler has replaced this scheduler.
        """
        job = self._detached.get(job_id)
        return job is not None and job.number == number and not job.has_ended and not self.taken_over

    def end_driver(self, job_id: str, number: int, failure: Mapping[str, Any]) -> None:
        """Handle the end of a driver. An empty ``failure`` means that the run directory is complete."""
        if not self.renew(job_id, number):
            return
        job = self._detached[job_id]
        if failure.get("again") and self._queue.has(job_id):  # the job has not started
            self._wait_again(job, failure["reason"])
        elif failure.get("elsewhere"):
            job.bar(job.worker, failure["reason"])
            self._start(job)
        else:
            self._end(job, failure)

    def _wait_again(self, job: DetachedJob, why: str) -> None:
        """Return a job to its position in the queue, where it waits without a driver."""
        self._queue.note(job.job_id, why)
        job.wait(AGAIN_S)

    def stop(self, job_id: str, name: str, by: str = "") -> bool:
        """Stop a detached job that has not begun; return whether there is such a job.

        While the jobs of an earlier scheduler are being read, an unknown job may be among them. Such a job is stopped
        once it is read.
        """
        job = self._detached.get(job_id)
        if self._has_begun(job_id):
            return False
        if job is None and not self._has_read.is_set() and not self._queue.has(job_id):
            self._stops[job_id] = name, by
            return True
        if job is None or job.has_ended:
            return False
        self._queue.stop(job_id, name, by)
        self._end(job, stopped("before the job had started" if job.worker else QUEUED, name, by))
        return True

    def _end(self, job: DetachedJob, failure: Mapping[str, Any]) -> None:
        job.end(failure)
        if failure:
            self._queue.leave(job.job_id, failure)
            # the datasets of a job that still runs are deleted at its end
            if job.catalogs and job.job_id not in self._records:
                self._scheduler.loop.add_callback(self._sites.drop, job.catalogs)
        self._history.trim(job.job_id)
        if self._saved.url:
            self._scheduler.loop.add_callback(self.save, job.job_id)

    # -- methods for `Jobs` ------------------------------------------------------------------------------------------

    def has(self, job_id: str) -> bool:
        """Return whether a job runs, or is detached and has not ended."""
        return job_id in self._records or self.is_detached(job_id)

    def is_detached(self, job_id: str) -> bool:
        """Return whether a job is detached and has not ended."""
        job = self._detached.get(job_id)
        return job is not None and not job.has_ended

    def is_recorded(self, job_id: str) -> bool:
        """Return whether this scheduler drives a job: it is detached, has not ended, and was not taken over."""
        return self.is_detached(job_id) and not self.taken_over

    def worker_of(self, job_id: str) -> str:
        """Return the Dask worker where the driver of a job runs; empty if no driver runs."""
        return self._detached[job_id].worker if job_id in self._detached else ""

    def lose(self, worker: str) -> None:
        """Start the drivers of a lost Dask worker again, on other Dask workers."""
        for job in self._detached.values():
            if job.worker == worker:
                self._start(job)

    @property
    def workers(self) -> set[str]:
        """Dask workers where drivers run."""
        return {job.worker for job in self._detached.values() if job.worker}

    def tokens(self) -> list[str]:
        """Return the tokens of the part files that detached jobs read, also queued ones."""
        live = [job for job in self._detached.values() if not job.has_ended]
        return [catalog.token for job in live for catalog in job.catalogs]

    def run_urls(self) -> list[tuple[str, str]]:
        """Return id and run directory of each detached job whose run directory is not complete yet."""
        return [(job_id, job.run["run_url"]) for job_id, job in self._detached.items() if not job.has_ended]

    def tick(self) -> bool:
        """Start missing drivers, and drivers on silent Dask workers, again; return whether any job is left.

        Once a newer scheduler has taken over, end the jobs that have not started.
        """
        now, taken_over = time.monotonic(), self.taken_over
        for job_id, job in list(self._detached.items()):
            job.silent_since = (job.silent_since or now) if self._is_silent(job.worker) else 0.0
            # keep an ended job for a while, because the client may still ask for its result
            if job.has_ended and now - job.since > limit("client"):
                del self._detached[job_id]
            elif taken_over and not (job.has_ended or self._has_begun(job_id)):
                self._end(job, {"reason": taken_over, "exit_code": ClusterError.exit_code, "error": ""})
            elif job.phase is Phase.RUNNING and job.silent_since:
                if self._choose(job):  # if no other Dask worker is left, wait for this silent one
                    self._start(job)
                elif not self._has_begun(job_id) and now - job.silent_since > limit("driver"):
                    self._refuse(job)
            elif job.phase is Phase.WAITING and not self._queue.has(job_id):
                if now - job.since > AGAIN_S:
                    job.barred.clear()
                self._start(job)
        return bool(self._detached)

    # -- Dask workers ------------------------------------------------------------------------------------------------

    def _start(self, job: DetachedJob) -> None:
        """Start a driver on the best Dask worker. Without a suitable Dask worker, end the job or wait for one."""
        if self.taken_over:
            return
        has_begun = self._has_begun(job.job_id)
        job.drive(self._choose(job))
        waited_s = time.monotonic() - job.since
        if job.worker:
            self._scheduler.loop.add_callback(self._drive, job, job.number, has_begun)
        elif not has_begun and (job.barred or waited_s > limit("driver")):
            self._refuse(job)
        elif job.barred and waited_s < 1:
            message = f"no process writes the run directory: {self._why_no_driver(job)}"
            self._tell(job.job_id, {"event": "log", "level": "WARNING", "message": message})

    def _has_begun(self, job_id: str) -> bool:
        return job_id in self._records or job_id in self._history.facts

    def _refuse(self, job: DetachedJob) -> None:
        """End a job that has not begun, because no Dask worker can run its driver."""
        reason = f"no Dask worker can run the driver of the job: {self._why_no_driver(job)}"
        self._end(job, {"reason": reason, "exit_code": ClusterError.exit_code, "error": ""})

    def _why_no_driver(self, job: DetachedJob) -> str:
        reasons = list(job.barred.values())
        if silent := sorted(filter(self._is_silent, self._scheduler.workers)):
            reasons.append(f"no heartbeats from {listed(silent, 3)}. Restart these Dask workers, or start others.")
        return " ".join(dict.fromkeys(reasons)) or "the cluster has no workers. Start some: dask-worker ADDRESS."

    def _choose(self, job: DetachedJob) -> str:
        """Return the best Dask worker for a driver, if possible on the host of the client; empty if none fits."""
        n_drivers = [each.worker for each in self._detached.values()]
        usable = {
            address: (known.host != job.host, n_drivers.count(address), len(known.processing), address)
            for address, known in self._scheduler.workers.items()
            if known.status == Status.running and address not in job.barred and not self._is_silent(address)
        }
        return min(usable, key=usable.__getitem__, default="")

    async def _drive(self, job: DetachedJob, number: int, has_begun: bool) -> None:
        worker, job_id = job.worker, job.job_id
        answer: Any = None
        await self.save(job_id)
        if self.renew(job_id, number):  # False if, during the save, the job was stopped or got another driver
            answer = await self._sites.install(worker, DRIVERS)
        if answer is None and self.renew(job_id, number):
            facts = {"run": dict(job.run), "number": number, "has_begun": has_begun}
            facts |= {"first_incarnation": job.first_incarnation, "is_saved": bool(self._saved.url)}
            answer = await self._sites.ask(worker, limit("answer"), Op.DRIVE, **facts)
        if isinstance(answer, BaseException) and self.renew(job_id, number):
            why = f"{worker}: {text_of(answer).removesuffix('.')}."
            job.bar(worker, why, passes=isinstance(answer, OSError | LateError))
            if job.passing and self._queue.has(job_id) and not self._choose(job):
                self._wait_again(job, job.passing)
            else:
                self._start(job)
