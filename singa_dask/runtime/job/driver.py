"""Driver: waits for room, submits a job to the `Jobs` of a Dask cluster, and follows its events to the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client

from singa_dask import modules
from singa_dask.comm.loading import load_on_scheduler
from singa_dask.conf import JobConf
from singa_dask.data import fs
from singa_dask.errors import ClusterError, LeftLineError, UnitError
from singa_dask.redaction import redact
from singa_dask.runtime.job.epochs import steps_by_task
from singa_dask.runtime.job.follower import GONE, Follower, ask_jobs
from singa_dask.runtime.job.jobs import Jobs
from singa_dask.runtime.job.names import JOBS, SIGNAL_CODES, Op, this_user, topic_of
from singa_dask.runtime.job.placing import Placed, place_on_cluster
from singa_dask.runtime.job.report import Result, summarise
from singa_dask.runtime.job.standardising import compute_scalings
from singa_dask.runtime.job.tasks import on_dask
from singa_dask.runtime.planning.paths import absolute_paths
from singa_dask.runtime.planning.placement import plan_processes


class TakenOver(Exception):
    """The driver has left its job to another one, and writes nothing more."""


@dataclass(frozen=True)
class Tenure:
    """The part of a driver on the cluster in a job that may have several of them, one after the other.

    Attributes
    ----------
    number : int
        Of the driver: 1 for the first.
    has_begun : bool
        Whether one before it has submitted the job.
    renew : callable
        Asks the scheduler whether this is still the driver of the job.
    """

    number: int
    has_begun: bool
    renew: Callable[[], bool]


ASK_S = 0.5
BACK_S = 8.0
SHOWN = 3


class _InLine:
    """Waits until it is the turn of a job and there is room for it.

    Parameters
    ----------
    client : distributed.Client
    facts : mapping
        See `Waiting.turn`.
    priority : int
        Jobs of higher priority go first.
    driver : int
        Number of the driver if it is on the cluster, see `Tenure`; else 0.
    publish : callable
        Takes an event ``queued`` each time that something changes: ``place``, 1 for the first, and a ``message``.
    """

    def __init__(
        self,
        client: Client,
        facts: Mapping[str, Any],
        priority: int,
        driver: int,
        publish: Callable[[dict[str, Any]], None],
    ) -> None:
        self._client = client
        self._asked = {"facts": dict(facts), "priority": priority, "driver": driver}
        self._job_id = facts["id"]
        self._publish = publish
        self._signals: SimpleQueue[str] = SimpleQueue()
        self._said = ""
        self._heard_at = 0.0

    def stop(self, signal_name: str) -> None:
        """Leave the line; an empty name: leave the place to another driver. Safe in a signal handler."""
        self._signals.put(signal_name)

    def wait(self, start: Callable[[], None]) -> None:
        """Wait until ``start`` succeeds. It is called when the job is the first; a `ClusterError` says what it lacks.

        Raises
        ------
        LeftLineError
            Somebody has stopped the job.
        ClusterError
            The scheduler is gone.
        TakenOver
            Another driver waits in place of this one.
        """
        why = ""
        self._heard_at = time.monotonic()
        while True:
            answer = self._ask(why)
            if answer is not None:
                if answer["taken_over"]:
                    raise TakenOver
                if answer["end"]:
                    self._leave(answer["end"])
                if not answer["ahead"]:
                    try:
                        start()
                        return
                    except ClusterError as error:
                        why = str(error)
                self._say(answer["ahead"], why)
            try:
                name = self._signals.get(timeout=ASK_S)
            except Empty:
                continue
            if not name:
                raise TakenOver
            reason = f"{name}: the job has left the line, and was not started."
            self._leave({"reason": reason, "exit_code": SIGNAL_CODES.get(name, 1)})

    def _ask(self, why: str) -> dict[str, Any] | None:
        """Ask for the place in line; None if there is no answer now."""
        try:
            asked: dict[str, Any] = {**self._asked, "client": self._client.id, "why": why}
            answer: dict[str, Any] = ask_jobs(self._client, Op.TURN, **asked)
        except GONE as error:
            if self._client.status == "closed" or time.monotonic() - self._heard_at > BACK_S:
                raise ClusterError(f"the scheduler is gone while the job waited in line: {error!r}") from error
            return None
        self._heard_at = time.monotonic()
        return answer

    def _leave(self, failure: Mapping[str, Any]) -> None:
        try:
            ask_jobs(self._client, Op.LEAVE, job_id=self._job_id, failure=dict(failure))
        except GONE:
            pass  # the scheduler drops those who do not ask any more
        raise LeftLineError(failure["reason"], failure["exit_code"])

    def _say(self, ahead: Sequence[str], why: str) -> None:
        if ahead:
            more = f" and {len(ahead) - SHOWN} more" if len(ahead) > SHOWN else ""
            message = f"in line, place {len(ahead) + 1}, behind {', '.join(ahead[-SHOWN:])}{more}"
        else:
            message = f"first in line: {why}"
        if message != self._said:
            self._said = message
            self._publish({"event": "queued", "place": len(ahead) + 1, "message": message, "time": time.time()})


def install_jobs(client: Client) -> None:
    """Make sure that the scheduler has `Jobs`."""
    load_on_scheduler(client, Jobs.__module__)
    client.register_plugin(Jobs(), name=JOBS)


class Driver:
    """Runs one job on a Dask cluster.

    Parameters
    ----------
    job : JobConf
    client : distributed.Client
    run_url : str
        URL of the run directory; checkpoints go to ``checkpoint/`` in it.
    on_event : callable
        Takes each event, a dict, in the thread of `run`. Metrics are means over the workers of a group.
    job_id : str
    resume : str, optional
        URL of the checkpoint to continue from (see `singa_dask.runtime.checkpoints.lookup.find`).
    init_from : sequence of str
        URLs of checkpoints to take initial values from.
    owner : str
        Who starts it, ``user@host``; by default the user of this process.
    sources : sequence of Source, optional
        The user's own modules; by default they are read from the files that the job names.
    tenure : Tenure, optional
        Of a driver on the cluster, which another one may replace. If one before it has submitted the job, this one
        follows it only.
    queue : bool
        Wait in line if there is no room for the job.
    priority : int
        Jobs of higher priority go first.
    datasets : sequence
        Catalogs of the part files that the job reads, as plain values. The end of the job deletes them.
    """

    def __init__(
        self,
        job: JobConf,
        client: Client,
        *,
        run_url: str,
        on_event: Callable[[dict[str, Any]], None],
        job_id: str,
        resume: str | None = None,
        init_from: Sequence[str] = (),
        owner: str = "",
        sources: Sequence[modules.Source] | None = None,
        tenure: Tenure | None = None,
        queue: bool = False,
        priority: int = 0,
        datasets: Sequence[Sequence[Any]] = (),
    ) -> None:
        self.job = absolute_paths(job)
        self.job_id = job_id
        self._sources = modules.read(job.modules) if sources is None else sources
        self._tenure = tenure
        self._client = client
        self._run_url = fs.absolute(run_url)
        self._checkpoint_url = fs.join(self._run_url, "checkpoint")
        self._owner = owner or this_user()
        self._resume = resume
        self._init_from = [fs.absolute(url) for url in init_from]
        self._publish = on_event
        self._layout = plan_processes(job.cluster)
        self._follower = Follower(client, job_id, on_event, renew=tenure.renew if tenure else None)
        self._has_started = False
        self._stopped_by = ""
        self._scalings: Mapping[str, Mapping[str, Any]] | None = None
        self._priority = priority
        self._datasets = datasets
        self._line: _InLine | None = None
        if queue:
            facts: dict[str, Any] = {
                "id": job_id,
                "name": job.name,
                "owner": self._owner,
                "run_url": redact(self._run_url),
            }
            facts |= {"topology": self._layout.describe(), "train_steps": job.train_steps}
            self._line = _InLine(client, facts, priority, tenure.number if tenure else 0, on_event)

    def stop(self, signal_name: str = "SIGINT") -> None:
        """Stop the job with a checkpoint; if called again, end it at once. Safe in a signal handler.

        A job that waits in line leaves it.
        """
        self._stopped_by = signal_name
        self._follower.signal(signal_name)
        if self._line is not None:
            self._line.stop(signal_name)

    def leave(self) -> None:
        """End `run`, and ask nothing of the job."""
        self._follower.leave()
        if self._line is not None:
            self._line.stop("")

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
        TakenOver
            Another driver does the rest.
        """
        try:
            if self._tenure is not None and self._tenure.has_begun:
                self._follower.subscribe()
                self._publish({**self._started(), "begun": True})
            else:
                self._begin_in_turn()
            over = self._follower.follow_to_its_end()
        finally:
            self._follower.unsubscribe()
        if over is None:
            raise TakenOver
        return self._result(over)

    def _begin_in_turn(self) -> None:
        """Begin the job, if it may wait when it is its turn and there is room."""
        if self._line is None:
            self._begin()
        else:
            self._prepare()
            self._line.wait(self._begin)

    def _begin(self) -> None:
        """Choose Dask workers, and submit the job."""
        key = f"{topic_of(self.job_id)}-survey"
        placed = place_on_cluster(
            self._client, self.job, self._layout, self._sources, self._resume, key, self._datasets
        )
        if self._line is None:
            self._prepare()
        run = on_dask(self._client, self._datasets, list(placed.workers), self._check_stopped)
        self.job = steps_by_task(self.job, self._sources, self._resume, run)
        if self._scalings is None and self._resume is None:  # a checkpoint of the run has them already
            self._scalings = compute_scalings(self.job, self._sources, self._init_from, run, self._follower.warn)
        self._submit(placed)

    def _check_stopped(self) -> None:
        if self._stopped_by:
            reason = f"{self._stopped_by}: stopped while the training records were looked at."
            raise LeftLineError(reason, SIGNAL_CODES.get(self._stopped_by, 1))

    def _prepare(self) -> None:
        """Make sure that the scheduler has `Jobs`, and no job of this id."""
        install_jobs(self._client)
        if self._follower.ask(Op.FIND, job_id=self.job_id):  # a client has one subscription for both
            raise ClusterError(f"a job with the id {self.job_id} runs on this cluster. Give another --run-dir.")

    def _result(self, over: dict[str, Any]) -> Result:
        failure = over["failure"]
        if failure and failure.get("hosting"):
            raise UnitError(failure["reason"])
        if over["stuck"]:
            names = ", ".join(over["stuck"])
            self._follower.warn(f"units that do not end: {names}; they hold threads of their Dask workers")
        if not over["reports"]:  # nothing more is heard of the job
            lost = {"state": "lost", "step": over["last_step"]}
            over["reports"] = {str(unit): {"unit": str(unit), **lost} for unit in self._layout.units}
            over["processes"] = self._layout.describe()["processes"]
        return summarise(self.job.name, self.job_id, self._layout, over)

    def _started(self) -> dict[str, Any]:
        facts = {"topology": self._layout.describe(), "train_steps": self.job.train_steps}
        return {"event": "started", "job": self.job_id, "time": time.time(), **facts}

    def _check_tenure(self) -> None:
        """Raise `TakenOver` if the run directory is another driver's by now."""
        tenure = self._tenure
        if tenure is not None and not self._follower.ask(Op.RENEW, job_id=self.job_id, number=tenure.number):
            raise TakenOver

    def _submit(self, placed: Placed) -> None:
        self._follower.subscribe()
        if not self._has_started:  # before any unit writes to the run directory
            self._check_tenure()
            self._publish(self._started())
            self._has_started = True
        spec = {
            "job_id": self.job_id,
            "job": self.job.model_dump_json(),
            "cluster": self.job.cluster.model_dump_json(),
            "workers": list(placed.workers),
            "deals": {name: list(map(int, deal)) for name, deal in placed.deals.items()},
            "sources": [list(source) for source in self._sources],
            "checkpoint_url": self._checkpoint_url,
            "resume": self._resume,
            "init_from": list(self._init_from),
            "client": self._client.id,
            "name": self.job.name,
            "owner": self._owner,
            "run_url": self._run_url,
            "driver": self._tenure.number if self._tenure else 0,
            "priority": self._priority,
            "datasets": list(self._datasets),
            "scalings": self._scalings or {},
        }
        refused = self._follower.ask(Op.SUBMIT, spec=spec)
        if refused:
            raise ClusterError(refused["refused"])
        for note in placed.notes:
            self._follower.log("INFO", note)
