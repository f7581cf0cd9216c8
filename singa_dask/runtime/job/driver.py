"""Driver: runs a job on a Dask cluster: starts it, follows its events, and removes everything at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Future

from singa_dask import modules
from singa_dask.conf import JobConf
from singa_dask.data import fs
from singa_dask.errors import ClusterError, LostUnitError
from singa_dask.runtime.job.deployment import Deployment
from singa_dask.runtime.job.job_plugin import plugin_name
from singa_dask.runtime.job.placing import Placed, place_on_cluster
from singa_dask.runtime.job.report import SIGNAL_CODES, MetricsMerger, Result, summarise
from singa_dask.runtime.planning.paths import absolute_paths
from singa_dask.runtime.planning.placement import plan_processes

__all__ = ["Driver"]

START_TIMEOUT_S = 60.0
ABORT_TIMEOUT_S = 8.0


@dataclass
class _Run:
    """State of a running job."""

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
        URL of the run directory; checkpoints go to ``checkpoint/`` in it.
    on_event : callable
        Takes each event, a dict, in the thread of `run`. Metrics are means over the workers of a group.
    job_id : str
    resume : str, optional
        URL of the checkpoint to continue from (see `singa_dask.runtime.checkpoints.lookup.find`).
    init_from : sequence of str
        URLs of checkpoints to take initial values from.
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
        self.job_id = job_id
        self._sources = modules.read(job.modules)
        self._client = client
        self._checkpoint_url = fs.join(fs.absolute(run_url), "checkpoint")
        self._resume = resume
        self._init_from = [fs.absolute(url) for url in init_from]
        self._publish = on_event
        self._layout = plan_processes(job.cluster)
        self._deployment = Deployment(client, job_id, self._layout)
        self._merger = MetricsMerger(job.cluster.nworkers_per_group)
        self._queue: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._run = _Run()

    def stop(self, signal_name: str = "SIGINT") -> None:
        """Stop the job with a checkpoint; if called again, end it at once. Safe in a signal handler."""
        self._queue.put(("signal", signal_name))

    def run(self) -> Result:
        """Run the job to its end.

        Raises
        ------
        ClusterError
            The job does not fit the cluster; nothing was started.
        UnitError
            A process cannot host its units, as a module of the user cannot be loaded there.
        """
        key = f"{plugin_name(self.job_id)}-survey"
        placed = place_on_cluster(self._client, self.job, self._layout, self._sources, self._resume, key)
        started = time.time()
        try:
            self._start(placed)
            self._follow()
        finally:
            self._deployment.remove()
        run = self._run
        seconds = time.time() - started
        return summarise(
            self.job.name, self.job_id, self._layout, run.reports, run.failure, run.signal, self._merger.latest, seconds
        )

    def _start(self, placed: Placed) -> None:
        peers = self._deployment.host(
            self.job, placed.workers, placed.deals, self._sources, lambda event: self._queue.put(("event", event))
        )
        # before any unit writes to the run directory
        self._publish(
            {"event": "started", "job": self.job_id, "time": time.time(), "topology": self._layout.describe()}
        )
        self._deployment.submit(
            lambda done: self._queue.put(("done", done)), peers, self._checkpoint_url, self._resume, self._init_from
        )
        self._run.deadline = time.monotonic() + START_TIMEOUT_S
        for note in placed.notes:
            self._publish({"event": "log", **self._log_facts("INFO", note)})

    # -- following -------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Handle events in order until every unit has reported or is lost."""
        run = self._run
        while len(run.reports) < len(self._deployment.units):
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
        """Handle the events that came before the report of the last unit."""
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
            if len(self._run.started) == len(self._deployment.units) and self._run.failure is None:
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
        unit = str(self._deployment.units[future])
        if future.status == "finished":
            report = future.result()
        else:
            report = {"state": "failed", "step": self._merger.last_step, **_explain(unit, future)}
        report["unit"] = unit
        if unit.startswith("worker-") and report["state"] == "done":
            self._publish({"event": "steps", "steps": {str(self._deployment.units[future].group): report["step"]}})
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
            self._deployment.signal("stop")

    def _notice(self, message: str) -> None:
        """Show a message to the user."""
        self._publish({"event": "notice", **self._log_facts("WARNING", message)})

    def _warn(self, message: str) -> None:
        """Show a warning to the user, and add it to the log of the run."""
        self._publish({"event": "log", **self._log_facts("WARNING", message)})

    def _log_facts(self, level: str, message: str) -> dict[str, Any]:
        return {"unit": "driver", "level": level, "time": time.time(), "message": message}

    def _lose(self, process: int, reason: str) -> None:
        """Handle the loss of a process: its units will not report."""
        units = [str(unit) for unit in self._layout.processes[process]]
        for unit in units:
            self._run.reports.setdefault(unit, {"unit": unit, "state": "lost", "step": self._merger.last_step})
        known = self._run.failure
        if known is None or known["exit_code"] != LostUnitError.exit_code:
            self._run.failure = None  # earlier failures of others are consequences of this one
            reason = f"{reason}. Lost: {', '.join(units)}."
            self._fail({"reason": reason, "exit_code": LostUnitError.exit_code, "expected": True})

    def _fail(self, failure: dict[str, Any]) -> None:
        """Record the first failure, and abort every unit."""
        if self._run.failure is None:
            self._run.failure = failure
            self._run.deadline = time.monotonic() + ABORT_TIMEOUT_S
            self._deployment.signal("abort", failure["reason"])

    def _fail_to_start(self) -> None:
        """End a job that Dask has started only in part, because other tasks took the threads."""
        missing = [unit for unit in self._deployment.units.values() if str(unit) not in self._run.started]
        for unit in missing:
            self._run.reports.setdefault(str(unit), {"unit": str(unit), "state": "not started", "step": -1})
        names = ", ".join(str(unit) for unit in missing)
        reason = f"Dask had not started these units after {START_TIMEOUT_S:g} s: {names}. Other tasks hold the threads."
        self._fail({"reason": reason, "exit_code": ClusterError.exit_code, "expected": True})

    def _give_up(self) -> None:
        """Report the units that did not end in time, and restart their Dask workers."""
        late = [unit for unit in self._deployment.units.values() if str(unit) not in self._run.reports]
        names = ", ".join(map(str, late))
        self._warn(f"units that do not end: {names}; their Dask workers are restarted")
        if why := self._deployment.restart(late):
            self._warn(why)


def _explain(unit: str, future: Future[Any]) -> dict[str, Any]:
    """Describe the failure of a task without a result: units report their own errors, so Dask has lost it."""
    if future.status == "error":
        return {"reason": f"{unit}: its task failed", "error": f"{future.exception()!r}", "exit_code": 1}
    reason = f"{unit}: Dask has {future.status} its task: its scheduler is gone or was restarted."
    return {"reason": reason, "exit_code": LostUnitError.exit_code, "expected": True}
