"""Driver: submits a job to the `Jobs` of a Dask cluster, and follows its events to the end."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from distributed import Client

from singa_dask import fs
from singa_dask.data.tables.shared_scan import TableScan
from singa_dask.errors import (
    ClusterError,
    LeftQueueError,
    NoAnswerError,
    NotNowError,
    ReplacedError,
    UnitError,
    text_of,
)
from singa_dask.fs import host_files
from singa_dask.observe.files.run_directory import check_ended
from singa_dask.runtime.job.calls import UNANSWERED, ask_jobs
from singa_dask.runtime.job.checks.files import check_seen, input_files
from singa_dask.runtime.job.dask_tasks import Runner, on_dask
from singa_dask.runtime.job.driver.epochs import steps_by_task
from singa_dask.runtime.job.driver.follower import Follower
from singa_dask.runtime.job.driver.locality import Placed, place_on_cluster
from singa_dask.runtime.job.driver.record_scaling import compute_scalings
from singa_dask.runtime.job.driver.result import Result, summarise
from singa_dask.runtime.job.driver.table_scans import scan_tables
from singa_dask.runtime.job.job_end import JobEnd
from singa_dask.runtime.job.names import SIGNAL_CODES, Op
from singa_dask.runtime.job.state.job_facts import JobFacts
from singa_dask.runtime.job.state.submission import JobSpec, Submission
from singa_dask.runtime.planning.layout import plan_processes
from singa_dask.runtime.planning.worker_choice import WorkerFacts
from singa_dask.wording import listed


@dataclass(frozen=True)
class Lease:
    """Permission for one driver on the cluster to drive a detached job.

    If the driver is lost, the next driver gets a new lease.

    Attributes
    ----------
    number : int
        Number of the driver, counted from 1.
    has_begun : bool
        Whether an earlier driver has already submitted the job.
    first_incarnation : int
        Number of the job's first incarnation (start or restart) under this scheduler. A value above 0 means that the
        job began under an earlier scheduler, and continues from its newest checkpoint.
    is_saved : bool
        Whether the scheduler has saved the job, so that a restarted scheduler can continue it.
    """

    number: int
    has_begun: bool
    first_incarnation: int = 0
    is_saved: bool = False


class UnheardError(ReplacedError):
    """The scheduler does not answer the driver of a detached job.

    Once the scheduler works again, it starts another driver.
    """


ELSEWHERE = "another driver has taken over the job."
QUEUE_LOOK_S = 0.5
SHOWN = 3
QUIET_S = 5.0
"""Seconds after which a message says why a job has not started."""


@contextmanager
def said_late(line: str, say: Callable[[str], None], seconds: float = QUIET_S) -> Iterator[None]:
    """Call ``say(line)`` from another thread if the context lasts longer than ``seconds``."""
    timer = threading.Timer(seconds, say, (line,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _one_at_a_time(on_event: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """Return a thread-safe form of ``on_event``, which only one thread at a time can call."""
    lock = threading.RLock()

    def publish(event: dict[str, Any]) -> None:
        with lock:
            on_event(event)

    return publish


class Driver:
    """Runs one job on a Dask cluster.

    Parameters
    ----------
    run : Submission
        The job, with absolute paths and URLs.
    client : distributed.Client
        A client of a cluster that has `Jobs`; see `install_jobs`.
    on_event : callable
        Called with each event, a dict, mostly in the thread of `run`. Metrics are means over the workers of a group.
    lease : Lease, optional
        Set only for a driver on the cluster. If an earlier driver has submitted the job, this driver only follows it.
    queue : bool
        Whether to wait in the queue if the job does not fit on the cluster. Has no effect with a lease, because the job
        of a lease has already waited.

    Attributes
    ----------
    has_begun : bool
        Whether units of the job may have started.
    """

    def __init__(
        self,
        run: Submission,
        client: Client,
        *,
        on_event: Callable[[dict[str, Any]], None],
        lease: Lease | None = None,
        queue: bool = False,
    ) -> None:
        self.job = run.conf
        self._submission = run
        self._lease = lease
        self._client = client
        self._publish = on_event = _one_at_a_time(on_event)
        self._layout = plan_processes(self.job.cluster)
        self._follower = Follower(client, run.job_id, on_event, driver=lease.number if lease else 0)
        self._stopped_by = ""
        self._has_started = False
        self.has_begun = lease is not None and lease.has_begun
        self._scalings: Mapping[str, Mapping[str, Any]] | None = None
        self._queue = queue

    def stop(self, signal_name: str = "SIGINT", by: str = "") -> None:
        """Stop the job with a checkpoint; a second call ends it immediately. See `Follower.signal`.

        A queued job leaves the queue.
        """
        self._stopped_by = signal_name
        self._follower.signal(signal_name, by)

    def warn(self, message: str) -> None:
        """Show a warning to the user, and add it to the log of the run.

        Call this method in the thread of `run`.
        """
        self._follower.warn(message)

    def leave(self) -> None:
        """Make `run` return without ending the job, so that another driver can follow it."""
        self._follower.leave()

    def run(self) -> Result:
        """Run the job to its end.

        Raises
        ------
        ClusterError
            The job does not fit on the cluster. Nothing was started.
        DataError
            A Dask worker cannot reach the run directory, or files that the job reads. Nothing was started.
        LeftQueueError
            The job was stopped before it started.
        UnitError
            A process cannot load a module of the user.
        ReplacedError
            Another driver has taken over the job.
        TakenOverError
            Another run has taken over the run directory. This job is stopped.
        """
        if self._lease is not None and self._lease.has_begun:
            self._publish({**self._started(), "begun": True})
        elif self._queue and self._lease is None:
            self._prepare()
            self._begin_queued()
        else:
            try:
                self._begin()
            except NoAnswerError as error:
                if self._lease is None:
                    raise
                raise UnheardError(str(error)) from error  # the job may be running
        over = self._follower.follow_to_its_end()
        if over is None:
            raise ReplacedError(ELSEWHERE)
        if not over.is_heard and self._lease is not None and self._lease.is_saved:
            raise UnheardError(over.reason)
        return self._result(over)

    def _begin_queued(self) -> None:
        """Wait in the queue; begin the job when it is first in the queue and fits on the cluster."""
        run = asdict(self._submission)
        asked = {"facts": JobFacts.of_run(run).to_dict(), "client": self._client.id}
        asked |= {"ticket": secrets.token_hex(8), "cluster": self.job.cluster.model_dump(mode="json")}
        why = said = ""
        while True:
            answer = self._follower.ask(Op.TURN, wait=self._wait_for_signal, **asked, why=why)
            if answer["end"]:
                self._leave_queue(answer["end"])
            ahead = answer["ahead"]
            if not ahead:
                try:
                    self._begin()
                    return
                except Exception as error:
                    if not isinstance(error, NotNowError | NoAnswerError):
                        self._tell_left({"reason": text_of(error), "exit_code": getattr(error, "exit_code", 1)})
                        raise
                    why = str(error)
            message = _describe_place(ahead, answer["short"]) if ahead else f"first in the queue: {why}"
            if message != said:
                said = message
                self._publish({"event": "queued", "place": len(ahead) + 1, "message": message, "time": time.time()})
            self._wait_for_signal()

    def _wait_for_signal(self) -> None:
        """Wait for `QUEUE_LOOK_S`; leave the queue if a signal arrives meanwhile."""
        request = self._follower.next_request(QUEUE_LOOK_S)
        if request is None:
            return
        name, by = request
        reason = f"{by or name}: the job has left the queue, and was not started."
        self._leave_queue({"reason": reason, "exit_code": SIGNAL_CODES.get(name, 1)})

    def _tell_left(self, failure: Mapping[str, Any]) -> None:
        """Report to the scheduler that the job leaves the queue, because of ``failure``."""
        with suppress(*UNANSWERED):  # if this fails, the scheduler removes the job when this client stops calling
            ask_jobs(self._client, Op.LEAVE, job_id=self._submission.job_id, failure=dict(failure))

    def _leave_queue(self, failure: Mapping[str, Any]) -> None:
        self._tell_left(failure)
        raise LeftQueueError(failure["reason"], failure["exit_code"])

    def _begin(self) -> None:
        """Choose Dask workers, and submit the job."""
        if self._lease is None and not self._queue:
            self._prepare()
        paths = dict.fromkeys(path for path in input_files(self.job) if not path.startswith(host_files.SCHEME))
        what = f"waiting for the Dask workers, which open {listed([*paths], SHOWN) or 'the records'}"
        with said_late(what, self._notice):
            placed = self._place()
        try:
            self._submit(placed)
        except NotNowError:
            if self._queue or self._lease is not None:
                raise  # the job stays in the queue
            # another job has taken the chosen Dask workers; other Dask workers may be free
            self._submit(self._place())

    def _place(self) -> Placed:
        """Choose a Dask worker for each process of the job.

        Count its steps and scale its records on these workers.
        """
        given, resume = self._submission, self._submission.resume
        sources = given.modules
        room = self._follower.ask(Op.ROOM, wanted=self.job.cluster.workers.model_dump(mode="json"))
        present = {address: WorkerFacts(*facts) for address, facts in room.items()}
        placed = place_on_cluster(
            self._client, self.job, self._layout, present, sources, resume, given.datasets, self._scan_tables
        )
        self._check_seen(placed.workers)
        run = self._on_workers(placed.workers)
        self.job = steps_by_task(self.job, sources, resume, run)
        if self._scalings is None and resume is None:  # the checkpoint of a resumed run already contains the scaling
            self._scalings = compute_scalings(self.job, sources, given.init_from, run, self._follower.warn)
        return placed

    def _on_workers(self, workers: Sequence[str]) -> Runner:
        return on_dask(self._client, self._submission.datasets, list(workers), self._check_stopped)

    def _check_seen(self, workers: Sequence[str]) -> None:
        """Check that Dask workers can reach the records, the initial values and the run directory."""
        given = self._submission
        values = [url for url in (given.resume, *given.init_from) if url and fs.local_path(url) and fs.exists(url)]
        check_seen(self._client, [*input_files(self.job), *values], workers, given.run_url)

    def _scan_tables(self, workers: Sequence[str], scans: Sequence[TableScan]) -> None:
        """Scan the large text tables of the job on its Dask workers."""
        self._check_seen(workers)
        scan_tables(self._client, scans, self._on_workers(workers), self._notice)

    def _notice(self, line: str) -> None:
        self._publish({"event": "notice", "unit": "driver", "level": "INFO", "time": time.time(), "message": line})

    def _check_stopped(self) -> None:
        if self._stopped_by:
            reason = f"{self._stopped_by}: stopped while the training records were read."
            raise LeftQueueError(reason, SIGNAL_CODES.get(self._stopped_by, 1))

    def _prepare(self) -> None:
        """Check that the scheduler will accept the job, before the run directory is created."""
        given = self._submission
        priority = None if self._queue else given.priority
        if refusal := self._follower.ask(Op.REFUSAL, job_id=given.job_id, priority=priority):
            raise ClusterError(refusal)
        self._check_directory()

    def _check_directory(self) -> None:
        run = self._submission
        check_ended(run.run_url, run.job_id, self._follower.ask(Op.RUNS, run_url=run.run_url))

    def _result(self, over: JobEnd) -> Result:
        if over.failure and over.failure.is_hosting:
            self.has_begun = over.last_step >= 0 or over.restarts > 0
            kind = ClusterError if over.failure.exit_code == ClusterError.exit_code else UnitError
            raise kind(over.reason)
        if over.stuck:
            self._follower.warn(
                f"units that do not end: {', '.join(over.stuck)}; they hold threads of their Dask workers"
            )
        if not over.reports:  # the scheduler is gone, so report all units as lost
            lost = {"state": "lost", "step": over.last_step}
            reports = {str(unit): {"unit": str(unit), **lost} for unit in self._layout.units}
            over = replace(over, reports=reports, processes=self._layout.describe()["processes"])
        return summarise(self.job.name, self._submission.job_id, self._layout, over)

    def _started(self) -> dict[str, Any]:
        facts = {"topology": self._layout.describe(), "train_steps": self.job.train_steps}
        return {"event": "started", "job": self._submission.job_id, "time": time.time(), **facts}

    def _submit(self, placed: Placed) -> None:
        if not self._has_started:  # open the run directory before any unit writes to it
            lease, job_id = self._lease, self._submission.job_id
            if lease is not None and not self._follower.ask(Op.RENEW, job_id=job_id, number=lease.number):
                raise ReplacedError(ELSEWHERE)  # another driver now writes the run directory
            if lease is not None or self._queue:  # another run may have started there while this job was queued
                self._check_directory()
            self._publish(self._started())
            self._has_started = True
        spec = JobSpec(
            **{each.name: getattr(self._submission, each.name) for each in fields(Submission) if each.name != "job"},
            job=self.job.to_json(),
            workers=list(placed.workers),
            assignments={name: list(map(int, order)) for name, order in placed.assignments.items()},
            client=self._client.id,
            driver=self._lease.number if self._lease else 0,
            first_incarnation=self._lease.first_incarnation if self._lease else 0,
            scalings=self._scalings or {},
        )
        self.has_begun = True  # units may have started even if the answer is lost
        refusal, may_try_again = self._follower.ask(Op.SUBMIT, spec=asdict(spec))
        if refusal:
            self.has_begun = False
            raise (NotNowError if may_try_again else ClusterError)(refusal)
        for note in placed.notes:
            self._follower.log("INFO", note)


def _describe_place(ahead: Sequence[str], short: str) -> str:
    behind = listed([*ahead[-SHOWN:], *ahead[:-SHOWN]], SHOWN)
    return f"queued, place {len(ahead) + 1}, behind {behind}{f': {short}' * bool(short)}"
