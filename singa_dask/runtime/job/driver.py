"""Driver: submits a job to the `Jobs` of a Dask cluster, and follows its events; on the cluster if it is detached."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

from distributed import Client, Worker, WorkerPlugin
from distributed.comm.addressing import get_address_host
from distributed.utils import sync

from singa_dask import fs, modules
from singa_dask.cancellation import pause
from singa_dask.comm.remote_import import load_on_scheduler
from singa_dask.conf import ClusterConf, JobConf
from singa_dask.errors import (
    A_BUG,
    ClusterError,
    ConfigError,
    DataError,
    LeftLineError,
    ReplacedError,
    SingaError,
    UnitError,
    UnloadableError,
    listed,
    text_of,
)
from singa_dask.observe.observers import Observers, open_observers
from singa_dask.observe.run_directory import RunDirectory
from singa_dask.redaction import readable, redact
from singa_dask.runtime.checkpoints.lookup import find, first_steps, has_checkpoints
from singa_dask.runtime.job.checks import steps_by_task
from singa_dask.runtime.job.cluster import AT_ONCE, Patience, present_workers
from singa_dask.runtime.job.dask_tasks import on_dask
from singa_dask.runtime.job.events import Submission
from singa_dask.runtime.job.follower import GONE, Follower, RemoteJobs, ask_jobs
from singa_dask.runtime.job.jobs import Jobs
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import DRIVERS, JOBS, SIGNAL_CODES, Op, in_use, this_user
from singa_dask.runtime.job.placing import Placed, place_on_cluster
from singa_dask.runtime.job.record import Result, facts_in_line, summarise
from singa_dask.runtime.job.record_scaling import compute_scalings
from singa_dask.runtime.job.sites import as_client
from singa_dask.runtime.planning.absolute_paths import absolute_paths
from singa_dask.runtime.planning.layout import Layout, plan_processes
from singa_dask.runtime.planning.placement import WorkerFacts, place
from singa_dask.runtime.units.job_of_thread import in_job
from singa_dask.shown import STDERR


@dataclass(frozen=True)
class Lease:
    """The right of a driver on the cluster to drive a job, which may have several drivers, one after the other.

    Attributes
    ----------
    number : int
        Of the driver: 1 for the first.
    has_begun : bool
        Whether one before it has submitted the job.
    first_life : int
        Of the job; if it is not 0, an earlier scheduler has begun the job, and it goes on from its newest checkpoint.
    is_kept : bool
        Whether the scheduler keeps the job for one that is started after it.
    """

    number: int
    has_begun: bool
    first_life: int = 0
    is_kept: bool = False


class UnheardError(ReplacedError):
    """The scheduler has not answered a driver of a kept job: the scheduler, or the next one, starts another driver."""


ELSEWHERE = "another driver drives the job by now."
LINE_LOOK_S = 0.5
SHOWN = 3


def install_jobs(client: Client) -> None:
    """Make sure that the scheduler has `Jobs`."""
    load_on_scheduler(client, Jobs.__module__)
    try:
        client.register_plugin(Jobs(), name=JOBS)
    except GONE as error:
        raise ClusterError(f"the scheduler is gone, or does not answer: {error!r}.") from error


def wait_for_room(client: Client, layout: Layout, patience: Patience = AT_ONCE, beside_tasks: bool = True) -> None:
    """Wait until a job fits on a cluster.

    Parameters
    ----------
    client : distributed.Client
    layout : Layout
    patience : Patience
        By default it has to fit at once.
    beside_tasks : bool
        Whether tasks that run no units hold threads. Those that compute the data of the job do not.

    Raises
    ------
    ClusterError
        It does not fit when the time is over; the message has the numbers.
    """

    def attempt() -> None:
        install_jobs(client)
        room = RemoteJobs(client).room(layout.cluster.workers.model_dump(mode="json"), beside_tasks)
        place(layout, worker_facts(room))

    patience.until(attempt)


class Driver:
    """Runs one job on a Dask cluster.

    Parameters
    ----------
    job : JobConf
    client : distributed.Client
    on_event : callable
        Takes each event, a dict, in the thread of `run`. Metrics are means over the workers of a group.
    lease : Lease, optional
        Of a driver on the cluster, which another one may replace. If one before it has submitted the job, this one
        follows it only.
    queue : bool
        Wait in line if there is no room for the job. A job with a lease has waited there already.
    **submission
        Other fields of `Submission`. By default the ``owner`` is the user of this process, and the ``sources`` are read
        from the files that the job names.
    """

    def __init__(
        self,
        job: JobConf,
        client: Client,
        *,
        on_event: Callable[[dict[str, Any]], None],
        lease: Lease | None = None,
        queue: bool = False,
        **submission: Any,
    ) -> None:
        self.job = absolute_paths(job)
        given = Submission(job="", **submission)
        self._submission = replace(
            given,
            sources=given.sources or modules.read(job.modules),
            run_url=fs.absolute(given.run_url),
            owner=given.owner or this_user(),
            init_from=[fs.absolute(url) for url in given.init_from],
        )
        self._lease = lease
        self._client = client
        self._publish = on_event
        self._layout = plan_processes(job.cluster)
        self._follower = Follower(client, given.job_id, on_event, driver=lease.number if lease else 0)
        self._stopped_by = ""
        self._has_started = False
        self._scalings: Mapping[str, Mapping[str, Any]] | None = None
        self._queue = queue

    def stop(self, signal_name: str = "SIGINT", by: str = "") -> None:
        """Stop the job with a checkpoint; if called again, end it at once. Safe in a signal handler.

        A job that waits in line leaves it. ``by``: what stops it, if not the user.
        """
        self._stopped_by = signal_name
        self._follower.signal(signal_name, by)

    def warn(self, message: str) -> None:
        """Show a warning to the user, and add it to the log of the run; called in the thread of `run`."""
        self._follower.warn(message)

    def leave(self) -> None:
        """End `run`, and ask nothing of the job."""
        self._follower.leave()

    def run(self) -> Result:
        """Run the job to its end.

        Raises
        ------
        ClusterError
            The job does not fit the cluster; nothing was started.
        LeftLineError
            It was stopped while it waited in line.
        UnitError
            A process cannot host its units, as a module of the user cannot be loaded there.
        ReplacedError
            Another driver does the rest.
        TakenOverError
            Another run has taken the run directory. The job is stopped.
        """
        if self._lease is not None and self._lease.has_begun:
            self._publish({**self._started(), "begun": True})
        elif self._queue and self._lease is None:
            self._prepare()
            self._begin_in_line()
        else:
            self._begin()
        over = self._follower.follow_to_its_end()
        if over is None:
            raise ReplacedError(ELSEWHERE)
        if "event" not in over and self._lease is not None and self._lease.is_kept:
            raise UnheardError(over["failure"]["reason"])
        return self._result(over)

    def _begin_in_line(self) -> None:
        """Begin the job when it is its turn and there is room."""
        run = {**asdict(self._submission), "job": self.job.to_json()}
        asked = {"facts": facts_in_line(run), "priority": run["priority"], "client": self._client.id}
        asked |= {"ticket": secrets.token_hex(8), "cluster": self.job.cluster.model_dump(mode="json")}
        why = said = ""
        while True:
            answer = self._follower.ask(Op.TURN, wait=self._wait_for_signal, **asked, why=why)
            if answer["end"]:
                self._leave_line(answer["end"])
            ahead = answer["ahead"]
            if not ahead:
                try:
                    self._begin()
                    return
                except Exception as error:
                    if not needs_room(error):
                        self._tell_left({"reason": text_of(error), "exit_code": getattr(error, "exit_code", 1)})
                        raise
                    why = str(error)
            message = _describe_line(ahead) if ahead else f"first in line: {why}"
            if message != said:
                said = message
                self._publish({"event": "queued", "place": len(ahead) + 1, "message": message, "time": time.time()})
            self._wait_for_signal()

    def _wait_for_signal(self) -> None:
        """Leave the line if somebody asks for that within a moment."""
        request = self._follower.next_request(LINE_LOOK_S)
        if request is None:
            return
        name, by = request
        reason = f"{by or name}: the job has left the line, and was not started."
        self._leave_line({"reason": reason, "exit_code": SIGNAL_CODES.get(name, 1)})

    def _tell_left(self, failure: Mapping[str, Any]) -> None:
        """Let those behind the job go on."""
        with suppress(*GONE):  # the scheduler drops those who do not ask any more
            ask_jobs(self._client, Op.LEAVE, job_id=self._submission.job_id, failure=dict(failure))

    def _leave_line(self, failure: Mapping[str, Any]) -> None:
        self._tell_left(failure)
        raise LeftLineError(failure["reason"], failure["exit_code"])

    def _begin(self) -> None:
        """Choose Dask workers, and submit the job."""
        given = self._submission
        sources = [modules.Source(*source) for source in given.sources]
        resume, datasets = given.resume, given.datasets
        if self._lease is None and not self._queue:
            self._prepare()
        room = self._follower.ask(Op.ROOM, wanted=self.job.cluster.workers.model_dump(mode="json"))
        placed = place_on_cluster(self._client, self.job, self._layout, worker_facts(room), sources, resume, datasets)
        run = on_dask(self._client, datasets, list(placed.workers), self._check_stopped)
        self.job = steps_by_task(self.job, sources, resume, run)
        if self._scalings is None and resume is None:  # a checkpoint of the run has them already
            self._scalings = compute_scalings(self.job, sources, given.init_from, run, self._follower.warn)
        self._submit(placed)

    def _check_stopped(self) -> None:
        if self._stopped_by:
            reason = f"{self._stopped_by}: stopped while the training records were looked at."
            raise LeftLineError(reason, SIGNAL_CODES.get(self._stopped_by, 1))

    def _prepare(self) -> None:
        """Make sure that the scheduler has `Jobs`, and no job of this id."""
        install_jobs(self._client)
        job_id = self._submission.job_id
        if self._follower.ask(Op.HAS, job_id=job_id):
            raise ClusterError(in_use(job_id))

    def _result(self, over: dict[str, Any]) -> Result:
        failure = over["failure"]
        if failure and failure.get("hosting"):
            kind = ClusterError if failure["exit_code"] == ClusterError.exit_code else UnitError
            raise kind(failure["reason"])
        if over["stuck"]:
            names = ", ".join(over["stuck"])
            self._follower.warn(f"units that do not end: {names}; they hold threads of their Dask workers")
        if not over["reports"]:  # nothing more is heard of the job
            lost = {"state": "lost", "step": over["last_step"]}
            over["reports"] = {str(unit): {"unit": str(unit), **lost} for unit in self._layout.units}
            over["processes"] = self._layout.describe()["processes"]
        return summarise(self.job.name, self._submission.job_id, self._layout, over)

    def _started(self) -> dict[str, Any]:
        facts = {"topology": self._layout.describe(), "train_steps": self.job.train_steps}
        return {"event": "started", "job": self._submission.job_id, "time": time.time(), **facts}

    def _submit(self, placed: Placed) -> None:
        if not self._has_started:  # before any unit writes to the run directory
            lease, job_id = self._lease, self._submission.job_id
            if lease is not None and not self._follower.ask(Op.RENEW, job_id=job_id, number=lease.number):
                raise ReplacedError(ELSEWHERE)  # the run directory is another driver's by now
            self._publish(self._started())
            self._has_started = True
        spec = {
            **asdict(self._submission),
            "job": self.job.to_json(),
            "workers": list(placed.workers),
            "assignments": {name: list(map(int, order)) for name, order in placed.assignments.items()},
            "sources": [list(source) for source in self._submission.sources],
            "client": self._client.id,
            "driver": self._lease.number if self._lease else 0,
            "first_life": self._lease.first_life if self._lease else 0,
            "scalings": self._scalings or {},
        }
        refused = self._follower.ask(Op.SUBMIT, spec=spec)
        if refused:
            raise ClusterError(refused["refused"])
        for note in placed.notes:
            self._follower.log("INFO", note)


def worker_facts(room: Mapping[str, Sequence[Any]]) -> dict[str, WorkerFacts]:
    """Return what the scheduler says about Dask workers."""
    return {address: WorkerFacts(*facts) for address, facts in room.items()}


def needs_room(error: Exception) -> bool:
    """Return whether a job that could not begin may do so later: nothing but room on the cluster is missing."""
    return isinstance(error, ClusterError) and not isinstance(error, LeftLineError | UnloadableError)


def _describe_line(ahead: Sequence[str]) -> str:
    return f"in line, place {len(ahead) + 1}, behind {listed([*ahead[-SHOWN:], *ahead[:-SHOWN]], SHOWN)}"


@dataclass(frozen=True, kw_only=True)
class JobRun(Submission):
    """A run of a job, checked and ready to be submitted.

    Attributes
    ----------
    recording : mapping
        Arguments of `RunDirectory` beside its URL.
    queue : bool
        Wait in line if there is no room.
    """

    recording: Mapping[str, Any]
    queue: bool = False

    @classmethod
    def of(cls, job: JobConf, **fields: Any) -> JobRun:
        """Make one from a job on the client: reads the user's own modules."""
        sources = [list(source) for source in modules.read(job.modules)]
        return cls(job=absolute_paths(job).to_json(), sources=sources, **fields)

    @property
    def cluster(self) -> ClusterConf:
        """The ``cluster`` block of the job."""
        return JobConf.from_json(self.job).cluster

    def directory(self, driver: int = 0) -> RunDirectory:
        """Return the run directory, for the ``driver`` of this number.

        Raises
        ------
        ConfigError
            Another run is there.
        """
        return RunDirectory(self.run_url, **self.recording, job_id=self.job_id, driver=driver)

    def going_on(self) -> JobRun:
        """Return the run as it goes on from its newest checkpoint; without one it starts over."""
        checkpoint = find(self.run_url) if has_checkpoints(self.run_url) else None
        goes_on = {"goes_on": checkpoint is not None, "replaces": checkpoint is None}
        command = {**self.recording["command"], "time": time.time(), "resume": checkpoint or self.resume}
        recording = {**self.recording, **goes_on, "command": command, "steps": first_steps(checkpoint)}
        return replace(self, resume=checkpoint or self.resume, recording=recording)

    def observers(self) -> Observers:
        """Return what passes events on to other programs.

        Raises
        ------
        ConfigError
            A package is missing.
        """
        job = JobConf.from_json(self.job)
        return open_observers(self.run_url, job.tensorboard, job.mlflow)

    def carry_out(
        self,
        client: Client,
        directory: RunDirectory,
        observers: Observers,
        on_event: Callable[[dict[str, Any]], None] = lambda event: None,
        on_driver: Callable[[Driver], None] = lambda driver: None,
        lease: Lease | None = None,
        judge: Callable[[Result], Result] = lambda result: result,
    ) -> tuple[Result, dict[str, Any]]:
        """Run the job to its end, and write the run directory; return the result, and what ``summary.json`` has.

        Parameters
        ----------
        client : distributed.Client
        directory, observers : RunDirectory, Observers
            See `directory` and `observers`.
        on_event : callable
            Takes each event too, after it was recorded. An error of it stops the job with a checkpoint, and is raised
            at the end.
        on_driver : callable
            Gets the driver before it runs.
        lease : Lease, optional
            Of a driver on the cluster.
        judge : callable
            Takes the result, and returns the one that is written.
        """
        if self.run_url != readable(self.run_url) and "inproc:" not in str(getattr(client.scheduler, "address", "")):
            raise ConfigError(f"{self.run_url}: the name is not UTF-8, so it cannot be sent. Choose another --run-dir.")
        errors: list[BaseException] = []
        warned = False

        def record(event: dict[str, Any]) -> None:
            nonlocal warned
            directory.on_event(event)
            observers.on_event(event)
            tell(event)
            if STDERR.lost and not warned and event["event"] != "queued":
                warned = True
                driver.warn(STDERR.lost)

        def tell(event: dict[str, Any]) -> None:
            if errors:
                return
            try:
                on_event(event)
            except BaseException as error:
                errors.append(error)
                driver.stop("SIGTERM", by=f"{error!r} in on_event")

        driver = Driver(
            JobConf.from_json(self.job),
            client,
            on_event=record,
            lease=lease,
            queue=self.queue,
            **{each.name: getattr(self, each.name) for each in fields(Submission) if each.name != "job"},
        )
        on_driver(driver)
        with in_job(self.job_id), observers, directory:  # observers end after the directory, and read it
            try:
                result = judge(driver.run())
            except SingaError:
                if not errors:
                    raise
                raise errors[0] from errors[0].__cause__
            if errors and result.state == "stopped":
                result = replace(result, state="failed", exit_code=UnitError.exit_code)
            summary = directory.finish(result.summary())
            for line in summary.get("learning", {}).get("sentences", ()):
                tell({"event": "notice", "unit": "driver", "level": "INFO", "message": line})
            if errors:
                raise errors[0]
            return result, summary


DRIVER_LEAVE_TIMEOUT_S = 3.0
TELL_AGAIN_S = 1.0

logger = logging.getLogger(__name__)


class DriverHost(WorkerPlugin):
    """Runs drivers of detached jobs on a Dask worker. One instance serves all jobs."""

    name = DRIVERS

    def setup(self, worker: Worker) -> None:
        """Take calls of `Jobs`."""
        self.worker = worker
        self._drivers: dict[threading.Thread, Driver | None] = {}
        self._leaving = threading.Event()
        handlers: dict[str, Callable[..., Any]] = {Op.DRIVE: self._drive}
        worker.handlers.update(handlers)

    async def teardown(self, worker: Worker) -> None:
        """Leave the jobs: the scheduler starts their drivers on other Dask workers."""
        worker.handlers.pop(Op.DRIVE, None)
        self._leaving.set()
        for driver in list(self._drivers.values()):
            if driver is not None:
                driver.leave()
        for thread in list(self._drivers):
            await worker.loop.run_in_executor(None, thread.join, DRIVER_LEAVE_TIMEOUT_S)

    def _drive(self, run: Mapping[str, Any], **lease_fields: Any) -> dict[str, Any]:
        """Start a driver; ``run`` are the fields of a `JobRun`, the others those of its `Lease`."""
        job_run, lease = JobRun(**run), Lease(**lease_fields)
        with in_job(job_run.job_id):
            drive = partial(copy_context().run, self._run, job_run, lease)
        thread = threading.Thread(target=drive, name=f"driver-{job_run.job_id}", daemon=True)
        self._drivers[thread] = None
        thread.start()
        return {}

    def _run(self, run: JobRun, lease: Lease) -> None:
        """Drive a job to its end, and tell the scheduler how that went, again until it answers."""
        failure: dict[str, Any] = {}
        try:
            self._carry_out(run, lease)
        except UnheardError as error:
            failure = {"reason": str(error), "elsewhere": True}
        except ReplacedError:
            return
        except SingaError as error:
            failure = {"reason": str(error), "exit_code": error.exit_code, "error": ""}
            failure["elsewhere"] = isinstance(error, DataError) and lease.has_begun
            failure["again"] = needs_room(error)
        except Exception as error:
            logger.exception("the driver of %s", run.job_id)
            failure = {"reason": f"the driver of the job: {error!r}", "exit_code": 1}
            failure["error"] = redact(traceback.format_exc()) + A_BUG
        finally:
            self._drivers.pop(threading.current_thread(), None)
        facts = {"job_id": run.job_id, "number": lease.number, "failure": failure}
        ask = getattr(self.worker.scheduler, Op.DRIVEN)
        while True:  # a Dask worker whose scheduler is gone closes
            with suppress(*GONE):
                sync(self.worker.loop, ask, **facts, callback_timeout=limit("question"))
                return
            if self._leaving.wait(TELL_AGAIN_S):
                return

    def _carry_out(self, run: JobRun, lease: Lease) -> None:
        if lease.first_life and not lease.has_begun:
            run = run.going_on()
        directory = run.directory(lease.number)
        try:
            directory.check_writable()
        except DataError as error:
            where = f"{socket.gethostname()} ({self.worker.address})"
            message = f"{where}: the driver of the job runs there, and cannot write the run directory: {error}"
            raise DataError(message) from error
        options = {"security": as_client(self.worker.security, "worker"), "set_as_default": False}
        with Client(self.worker.scheduler.address, name=f"driver-{run.job_id}", **options) as client:
            run.carry_out(client, directory, run.observers(), on_driver=self._on_driver, lease=lease)

    def _on_driver(self, driver: Driver) -> None:
        self._drivers[threading.current_thread()] = driver
        if self._leaving.is_set():
            raise ReplacedError(ELSEWHERE)

    def __getstate__(self) -> dict[str, Any]:
        return {}


DETACH_LOOK_S = 0.2


def detach(client: Client, run: JobRun) -> dict[str, Any]:
    """Leave a run to the cluster; return how it goes when the job has started, waits in line, or was refused.

    Returns
    -------
    dict
        See `Drivers.detached`.

    Raises
    ------
    ClusterError
        A job of this id runs already, or the scheduler is gone.
    """
    install_jobs(client)
    try:
        refused = ask_jobs(client, Op.DETACH, run=asdict(run), client=client.id)
        if refused:
            raise ClusterError(refused["refused"])
        while (progress := ask_jobs(client, Op.DETACHED, job_id=run.job_id))["state"] == "starting":
            pause(DETACH_LOOK_S)
    except (KeyboardInterrupt, SystemExit):  # nobody knows the id yet
        with suppress(*GONE):
            for _ in range(2):
                ask_jobs(client, Op.SIGNAL, job_id=run.job_id, name="SIGINT")
        raise
    except GONE as error:
        raise ClusterError(f"the scheduler is gone, or does not answer: {error!r}. The job may run.") from error
    if progress["state"] == "unknown":
        raise ClusterError("the scheduler does not know the job any more. It may have been restarted.")
    return dict(progress)


def remote_hosts(client: Client, run_url: str) -> list[str]:
    """Return the hosts of Dask workers that may not see a run directory on a local disk of this host."""
    workers = present_workers(client).values()
    comm: Any = client.scheduler_comm
    if fs.local_path(run_url) is None or comm is None:
        return []
    here = {get_address_host(comm.comm.local_address), "127.0.0.1"}
    return sorted({each["host"] for each in workers} - here)
