"""Driver: starts a job on a Dask cluster, follows it, and leaves nothing behind, however it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Future
from distributed.client import ClosedClientError

from singa_dask import modules
from singa_dask.comm import Address
from singa_dask.conf import JobConf
from singa_dask.data import fs
from singa_dask.errors import ClusterError, LostUnitError
from singa_dask.runtime.job.locality import Locality, Surveyed, names_of, survey, worth_a_survey
from singa_dask.runtime.job.plugins import HostPlugin, JobPlugin, host_address, host_unit, plugin_name
from singa_dask.runtime.job.report import SIGNAL_CODES, MetricsMerger, Result, summarise
from singa_dask.runtime.planning.paths import absolute_paths
from singa_dask.runtime.planning.placement import place, plan_processes

__all__ = ["Driver"]

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
ABORT_TIMEOUT_S = 8.0
SURVEY_TIMEOUT_S = 30.0
# What a call of a client raises whose scheduler is gone. One that has given up has no scheduler, and knows no workers.
GONE = (AttributeError, ClosedClientError, KeyError, OSError, RuntimeError)


@dataclass
class _Run:
    """What the driver knows of a job while it runs."""

    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    failure: dict[str, Any] | None = None
    signal: str = ""
    deadline: float | None = None


class Driver:
    """Runs one job on a Dask cluster.

    Parameters
    ----------
    job : JobConf
    client : distributed.Client
    run_url : str
        Run directory; checkpoints go to ``checkpoint/`` in it.
    on_event : callable
        Takes each event, a dict, in the thread of `run`; metrics are means over the workers of a group.
    job_id : str
    resume : str, optional
        URL of the checkpoint to go on from (see `singa_dask.runtime.checkpoints.checkpoint.find`).
    init_from : sequence of str
        URLs of checkpoints whose values the net starts from.
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
    ) -> None:
        self.job = absolute_paths(job)
        self._sources = modules.read(job.modules)
        self.job_id = job_id
        self._client = client
        self._checkpoint_url = fs.join(fs.absolute(run_url), "checkpoint")
        self._resume = resume
        self._init_from = [fs.absolute(url) for url in init_from]
        self._publish = on_event
        self._layout = plan_processes(job.cluster)
        self._merger = MetricsMerger(job.cluster.nworkers_per_group)
        self._queue: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._workers: list[str] = []
        self._deals: dict[str, list[int]] = {}
        self._notes: list[str] = []
        self._futures: dict[Future[Any], Address] = {}
        self._run = _Run()

    def stop(self, signal_name: str = "SIGINT") -> None:
        """Ask the job to stop with a checkpoint; asked twice, to end at once. Safe in a signal handler."""
        self._queue.put(("signal", signal_name))

    def run(self) -> Result:
        """Run the job to its end.

        Raises
        ------
        ClusterError
            The job does not fit the cluster; nothing was started.
        UnitError
            A process cannot host its part, as a module of the user's cannot be loaded there.
        """
        self._place()
        started = time.time()
        try:
            self._start()
            self._follow()
        finally:
            self._clean_up()
        return summarise(
            self.job.name, self.job_id, self._layout, self._run.reports, self._run.failure, self._run.signal,
            self._merger.latest, time.time() - started,
        )  # fmt: skip

    # -- starting --------------------------------------------------------------------------------------

    def _place(self) -> None:
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        busy = {address: len(keys) for address, keys in self._client.processing().items()}
        # who does not fit is told so before any record is looked for
        self._workers = place(self._layout, workers, busy)
        if not worth_a_survey(self.job):
            return
        try:
            surveyed = self._survey()
            if surveyed.stores:
                names = self._client.run(names_of, workers=list(workers))
                locality = Locality(self.job, self._layout, surveyed, names, fresh=self._resume is None)
                self._workers = place(self._layout, workers, busy, locality.gain)
                self._deals = locality.deals(self._workers)
        except Exception as error:  # it only makes a job faster, and of what is wrong the units will tell
            self._notes.append(f"where the records lie is not known: {error}")

    def _survey(self) -> Surveyed:
        """Have one of the Dask workers find out where the records lie."""
        future = self._client.submit(
            survey,
            self.job.model_dump_json(),
            self._resume,
            SURVEY_TIMEOUT_S,
            self._sources,
            key=f"{plugin_name(self.job_id)}-survey",
            workers=self._workers[:1],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )
        try:
            surveyed: Surveyed = future.result(timeout=2 * SURVEY_TIMEOUT_S)
        finally:
            self._client.cancel([future], force=True)
        for name in surveyed.silent:
            self._notes.append(f"layer {name}: the filesystem does not tell where the records lie")
        return surveyed

    def _start(self) -> None:
        name = plugin_name(self.job_id)
        self._client.subscribe_topic(name, lambda event: self._queue.put(("event", event[1])))
        self._client.register_plugin(JobPlugin(self.job_id, self._workers, self._client.id), name=name)
        plugin = HostPlugin(self.job_id, self.job.model_dump_json(), self._workers, self._deals, self._sources)
        self._client.register_plugin(plugin, name=name)
        hosts = self._client.run(host_address, self.job_id, workers=self._workers)
        peers = [hosts[worker] for worker in self._workers]
        # before any unit writes to the run directory
        self._publish(
            {"event": "started", "job": self.job_id, "time": time.time(), "topology": self._layout.describe()}
        )
        for process, units in enumerate(self._layout.processes):
            for unit in units:
                future = self._client.submit(
                    host_unit,
                    self.job_id,
                    tuple(unit),
                    peers,
                    self._checkpoint_url,
                    self._resume,
                    self._init_from,
                    key=f"{name}-{unit}",
                    workers=[self._workers[process]],
                    allow_other_workers=False,
                    pure=False,
                    retries=0,
                )
                self._futures[future] = unit
                future.add_done_callback(lambda done: self._queue.put(("done", done)))
        self._run.deadline = time.monotonic() + START_TIMEOUT_S
        for note in self._notes:
            self._publish({"event": "log", **self._said("INFO", note)})

    # -- following -------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Take what happens, in order, until every unit has reported or cannot any more."""
        run = self._run
        while len(run.reports) < len(self._futures):
            wait_s = None if run.deadline is None else max(run.deadline - time.monotonic(), 0.0)
            try:
                kind, what = self._queue.get(timeout=wait_s)
            except Empty:
                if run.failure is not None:
                    self._give_up()
                    return
                self._fail_to_start()
                continue
            self._handle(kind, what)
        self._drain()

    def _drain(self) -> None:
        """Take the events that came before the last unit's report."""
        while not self._queue.empty():
            self._handle(*self._queue.get())

    def _handle(self, kind: str, what: Any) -> None:
        if kind == "event":
            self._on_event(what)
        elif kind == "done":
            self._on_done(what)
        else:
            self._on_signal(what)

    def _on_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "unit":
            self._run.started.add(event["unit"])
            if len(self._run.started) == len(self._futures) and self._run.failure is None:
                self._run.deadline = None
        elif event["event"] == "lost":
            self._lose(int(event["process"]), event["reason"])
        elif event["event"] == "metrics":
            merged = self._merger.add(event)
            if merged:
                self._publish(merged)
        else:
            self._publish(event)

    def _on_done(self, future: Future[Any]) -> None:
        unit = str(self._futures[future])
        if future.status == "finished":
            report = future.result()
        else:
            report = {"state": "failed", "step": self._merger.last_step, **_explain(unit, future)}
        report["unit"] = unit
        if unit.startswith("worker-") and report["state"] == "done":
            self._publish({"event": "steps", "steps": {str(self._futures[future].group): report["step"]}})
        self._run.reports.setdefault(unit, report)
        if report["state"] == "failed":
            self._fail(report)
        elif report["state"] == "aborted" and "exit_code" in report:
            self._fail(report)

    def _on_signal(self, name: str) -> None:
        again, self._run.signal = bool(self._run.signal), name
        if again:
            code = SIGNAL_CODES.get(name, 1)
            self._fail({"reason": f"ended at once by a second {name}", "exit_code": code, "expected": True})
        else:
            self._notice(f"{name}: the job stops with a checkpoint; once more to abort it.")
            self._tell("stop")

    def _notice(self, message: str) -> None:
        """Say something to the person who watches."""
        self._publish({"event": "notice", **self._said("WARNING", message)})

    def _warn(self, message: str) -> None:
        """Warn the person who watches, and in the log of the run."""
        self._publish({"event": "log", **self._said("WARNING", message)})

    def _said(self, level: str, message: str) -> dict[str, Any]:
        return {"unit": "driver", "level": level, "time": time.time(), "message": message}

    def _lose(self, process: int, reason: str) -> None:
        """Note that a process is gone: its units will not report."""
        units = [str(unit) for unit in self._layout.processes[process]]
        for unit in units:
            self._run.reports.setdefault(unit, {"unit": unit, "state": "lost", "step": self._merger.last_step})
        known = self._run.failure
        if known is None or known["exit_code"] != LostUnitError.exit_code:
            self._run.failure = None  # whatever the others said came of this
            reason = f"{reason}. Lost: {', '.join(units)}."
            self._fail({"reason": reason, "exit_code": LostUnitError.exit_code, "expected": True})

    def _fail(self, failure: dict[str, Any]) -> None:
        """Keep the first failure, and have every unit end soon."""
        if self._run.failure is None:
            self._run.failure = failure
            self._run.deadline = time.monotonic() + ABORT_TIMEOUT_S
            self._tell("abort", failure["reason"])

    def _tell(self, action: str, reason: str = "") -> None:
        """Signal every host that is still there."""
        message = {"op": plugin_name(self.job_id), "action": action, "reason": reason}
        scheduler: Any = self._client.scheduler
        try:
            present = set(self._client.scheduler_info(n_workers=-1)["workers"])
            workers = [worker for worker in self._workers if worker in present]
            self._client.sync(scheduler.broadcast, msg=message, workers=workers, on_error="ignore")
        except GONE as error:  # the scheduler is gone; Dask ends the tasks
            logger.debug("%s: %s", action, error)

    def _fail_to_start(self) -> None:
        """End a job of which Dask runs only a part, because other tasks took the threads meanwhile."""
        missing = [unit for unit in self._futures.values() if str(unit) not in self._run.started]
        for unit in missing:
            self._run.reports.setdefault(str(unit), {"unit": str(unit), "state": "not started", "step": -1})
        names = ", ".join(str(unit) for unit in missing)
        reason = f"Dask had not started these units after {START_TIMEOUT_S:g} s: {names}. Other tasks hold the threads."
        self._fail({"reason": reason, "exit_code": ClusterError.exit_code, "expected": True})

    def _give_up(self) -> None:
        """Say who did not end in time; the workers they sit on are restarted."""
        late = [str(unit) for unit in self._futures.values() if str(unit) not in self._run.reports]
        self._warn(f"units that do not end: {', '.join(late)}; their Dask workers are restarted")
        processes = {self._layout.process_of[unit] for unit in self._futures.values() if str(unit) in late}
        try:
            self._client.restart_workers([self._workers[process] for process in processes], timeout=10)
        except (*GONE, ValueError, TimeoutError) as error:
            self._warn(f"Dask workers could not be restarted: {error}")

    # -- the end ---------------------------------------------------------------------------------------

    def _clean_up(self) -> None:
        """Take away every task, plug-in and topic of the job."""
        name = plugin_name(self.job_id)
        client = self._client
        for undo in (
            partial(client.unsubscribe_topic, name),
            partial(client.cancel, list(self._futures), force=True),
            partial(client.unregister_worker_plugin, name),
            partial(client.unregister_scheduler_plugin, name),
        ):
            try:
                undo()
            except (*GONE, ValueError) as error:  # it was not there, or the scheduler is gone
                logger.debug("%s: %s", name, error)
        self._futures.clear()


def _explain(unit: str, future: Future[Any]) -> dict[str, Any]:
    """Say what became of a unit whose task has no result: units report their own errors, so Dask has lost it."""
    if future.status == "error":
        return {"reason": f"{unit}: its task failed", "error": f"{future.exception()!r}", "exit_code": 1}
    reason = f"{unit}: Dask has {future.status} its task: its scheduler is gone or was restarted."
    return {"reason": reason, "exit_code": LostUnitError.exit_code, "expected": True}
