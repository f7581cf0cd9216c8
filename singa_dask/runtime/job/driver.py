"""Driver: submits a job to the `Jobs` of a Dask cluster, and follows its events to the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client
from distributed.client import ClosedClientError

from singa_dask import modules
from singa_dask.comm.loading import load_on_scheduler
from singa_dask.conf import JobConf
from singa_dask.data import fs
from singa_dask.errors import ClusterError, LostUnitError, UnitError
from singa_dask.runtime.job.jobs import Jobs
from singa_dask.runtime.job.names import JOBS, Op, topic_of
from singa_dask.runtime.job.placing import Placed, place_on_cluster
from singa_dask.runtime.job.report import SIGNAL_CODES, MetricsMerger, Result, summarise
from singa_dask.runtime.planning.paths import absolute_paths
from singa_dask.runtime.planning.placement import plan_processes

__all__ = ["Driver"]

LOOK_S = 1.0
LOOK_FOR_JOB = 10
"""After so many looks without an event the scheduler is asked for the job."""
ASK_TIMEOUT_S = 10.0
BACK_S = 8.0
"""How long a lost connection to the scheduler may take to come back."""
END_TIMEOUT_S = 15.0
"""How long the scheduler may take to end the job after a second signal."""

# Errors of calls of a client whose scheduler is gone. A client that has given up has no scheduler and no workers.
GONE = (AttributeError, ClosedClientError, KeyError, OSError, RuntimeError, TimeoutError)


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
        self._merger = MetricsMerger(job.cluster.nworkers_per_group)
        self._queue: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._signals: list[str] = []
        self._lost_since: float | None = None
        self._over: dict[str, Any] | None = None

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
        placed = place_on_cluster(
            self._client, self.job, self._layout, self._sources, self._resume, f"{topic_of(self.job_id)}-survey"
        )
        load_on_scheduler(self._client, Jobs.__module__)
        self._client.register_plugin(Jobs(), name=JOBS)
        if self._ask(Op.FIND, job_id=self.job_id):  # a client has one subscription for both
            raise ClusterError(f"a job with the id {self.job_id} runs on this cluster. Give another --run-dir.")
        started = time.time()
        try:
            self._submit(placed)
            over = self._follow_to_its_end()
        finally:
            self._unsubscribe()
        failure = over["failure"]
        if failure and failure.get("hosting"):
            raise UnitError(failure["reason"])
        if over["stuck"]:
            names = ", ".join(over["stuck"])
            self._warn(f"units that do not end: {names}; they hold threads of their Dask workers")
        for report in over["reports"].values():
            if report["state"] == "lost":  # it may have told its step in metrics only
                report["step"] = max(report["step"], self._merger.last_step)
        return summarise(self.job.name, self.job_id, self._layout, over, self._merger.latest, time.time() - started)

    def _submit(self, placed: Placed) -> None:
        client = self._client
        client.subscribe_topic(topic_of(self.job_id), lambda event: self._queue.put(("event", event[1])))
        # before any unit writes to the run directory
        self._publish(
            {"event": "started", "job": self.job_id, "time": time.time(), "topology": self._layout.describe()}
        )
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
            "client": client.id,
        }
        refused = self._ask(Op.SUBMIT, spec=spec)
        if refused:
            raise ClusterError(refused["refused"])
        for note in placed.notes:
            self._publish({"event": "log", **self._log_facts("INFO", note)})

    def _ask(self, op: str, **arguments: Any) -> Any:
        """Call a handler of `Jobs`."""
        scheduler: Any = self._client.scheduler
        return self._client.sync(getattr(scheduler, op), **arguments, callback_timeout=ASK_TIMEOUT_S)

    def _unsubscribe(self) -> None:
        try:
            self._client.unsubscribe_topic(topic_of(self.job_id))
        except (*GONE, ValueError):  # the scheduler is gone, or nothing was subscribed to
            pass

    # -- following -------------------------------------------------------------------------------------

    def _follow_to_its_end(self) -> dict[str, Any]:
        """Follow the job; end it if this fails, as when an event cannot be published."""
        try:
            return self._follow()
        except BaseException:
            for _ in range(2):
                with suppress(*GONE):
                    self._ask(Op.SIGNAL, job_id=self.job_id, name="SIGTERM")
            raise

    def _follow(self) -> dict[str, Any]:
        """Handle events in order until the job is over; return the last one."""
        deadline = None
        n_silent = 0
        while self._over is None:
            try:
                kind, what = self._queue.get(timeout=LOOK_S)
                n_silent = 0
            except Empty:
                n_silent += 1
                self._look_for_scheduler()
                if n_silent % LOOK_FOR_JOB == 0 and self._lost_since is None:
                    self._look_for_job()
                if deadline is not None and time.monotonic() > deadline:
                    return self._give_up("the scheduler does not end the job")
                continue
            if kind == "signal":
                self._on_signal(what)
                deadline = time.monotonic() + END_TIMEOUT_S if len(self._signals) > 1 else None
            else:
                self._on_event(what)
        return self._over

    def _on_event(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "metrics":
            merged = self._merger.add(event)
            if merged:
                self._publish(merged)
        elif kind == "over":
            self._over = event
        elif kind != "unit":
            self._publish(event)

    def _on_signal(self, name: str) -> None:
        self._signals.append(name)
        try:
            self._ask(Op.SIGNAL, job_id=self.job_id, name=name)
        except GONE as error:
            self._warn(f"{name}: the scheduler cannot be reached: {error}")
            if len(self._signals) > 1:
                self._over = self._give_up(f"ended at once by a second {name}", SIGNAL_CODES.get(name, 1))

    def _look_for_scheduler(self) -> None:
        """End the job here when its scheduler is gone, or knows nothing of it any more."""
        if self._client.status == "running":
            was_lost, self._lost_since = self._lost_since is not None, None
            if was_lost:
                self._come_back()
            return
        now = time.monotonic()
        if self._lost_since is None:
            self._lost_since = now
        if self._client.status == "closed" or now - self._lost_since > BACK_S:
            self._over = self._give_up("the scheduler is gone; units that it had started stop with a checkpoint")

    def _look_for_job(self) -> None:
        """End the job here when its scheduler does not know it."""
        try:
            known = self._ask(Op.FIND, job_id=self.job_id)
        except GONE:
            return  # the connection is lost, or the scheduler is busy
        if not known and self._queue.empty():
            self._over = self._give_up("the scheduler does not know the job any more")

    def _come_back(self) -> None:
        """Follow the job again after the connection to the scheduler was lost."""
        try:
            self._client.subscribe_topic(topic_of(self.job_id), lambda event: self._queue.put(("event", event[1])))
            known = self._ask(Op.FIND, job_id=self.job_id)
        except Exception as error:  # another scheduler has no such operation
            known, why = "", f": {error}"
        else:
            why = ""
        if not known and self._queue.empty():
            self._over = self._give_up(f"the scheduler was restarted, or has ended the job meanwhile{why}")

    def _give_up(self, reason: str, exit_code: int = LostUnitError.exit_code) -> dict[str, Any]:
        """Return the end of a job of which nothing more is heard."""
        unit = {"state": "lost", "step": self._merger.last_step}
        failure = {"reason": f"{reason}.", "exit_code": exit_code, "expected": True}
        return {
            "reports": {str(each): {"unit": str(each), **unit} for each in self._layout.units},
            "failure": failure,
            "signal": "",
            "processes": self._layout.describe()["processes"],
            "stuck": [],
            "restarts": 0,
            "recomputed_steps": 0,
            "lost_s": 0.0,
        }

    def _warn(self, message: str) -> None:
        """Show a warning to the user, and add it to the log of the run."""
        self._publish({"event": "log", **self._log_facts("WARNING", message)})

    def _log_facts(self, level: str, message: str) -> dict[str, Any]:
        return {"unit": "driver", "level": level, "time": time.time(), "message": message}
