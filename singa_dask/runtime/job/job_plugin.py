"""JobPlugin: watches a job on the Dask scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed import Scheduler, SchedulerPlugin, Status

__all__ = ["JobPlugin", "plugin_name"]

STEPS_INTERVAL_S = 1.0


def plugin_name(job_id: str) -> str:
    """Return the name of the plug-ins, the handlers and the event topic of a job."""
    return f"singa-dask-{job_id}"


class JobPlugin(SchedulerPlugin):
    """Watches the Dask workers and the client of a job; ends the job when one of them goes away.

    Once a second it sends the driver the steps that came with the heartbeats of the Dask workers.

    Parameters
    ----------
    job_id : str
    workers : sequence of str
        Address of the Dask worker of each process.
    client : str
        Id of the client that runs the job.
    """

    def __init__(self, job_id: str, workers: Sequence[str], client: str) -> None:
        self.name = plugin_name(job_id)
        self.workers = list(workers)
        self.client = client

    async def start(self, scheduler: Scheduler) -> None:
        """Begin to send the steps of the job."""
        self.scheduler = scheduler
        self._steps: dict[str, int] = {}
        scheduler.loop.call_later(STEPS_INTERVAL_S, self._send_steps)

    def _send_steps(self) -> None:
        """Send the driver the step of each worker group, if it has changed."""
        # plug-ins are not notified when they are removed
        if self.name not in self.scheduler.plugins or self.scheduler.status == Status.closed:
            return
        steps: dict[str, int] = {}
        for address in self.workers:
            known = self.scheduler.workers.get(address)
            for group, step in (known.metrics.get(self.name, {}) if known else {}).items():
                steps[group] = min(step, steps.get(group, step))
        if steps != self._steps:
            self._steps = steps
            self.scheduler.log_event(self.name, {"event": "steps", "steps": steps})
        self.scheduler.loop.call_later(STEPS_INTERVAL_S, self._send_steps)

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """Notify driver and hosts that a process of the job is gone."""
        if worker not in self.workers:
            return
        process = self.workers.index(worker)
        reason = f"the Dask worker at {worker}, process {process} of the job, is gone"
        scheduler.log_event(self.name, {"event": "lost", "process": process, "reason": reason})
        scheduler.loop.add_callback(self._abort, reason)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """End the job of a client that went away, and remove its plug-ins."""
        if client == self.client:
            scheduler.loop.add_callback(self._clean_up)

    async def _abort(self, reason: str) -> None:
        present = [worker for worker in self.workers if worker in self.scheduler.workers]
        message = {"op": self.name, "action": "abort", "reason": reason}
        await self.scheduler.broadcast(msg=message, workers=present, on_error="ignore")

    async def _clean_up(self) -> None:
        if self.name not in self.scheduler.plugins:
            return  # the driver has done it
        await self._abort("the client that ran the job is gone")
        if self.name in self.scheduler.worker_plugins:
            await self.scheduler.unregister_worker_plugin(None, self.name)
        await self.scheduler.unregister_scheduler_plugin(self.name)

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "workers": self.workers, "client": self.client}
