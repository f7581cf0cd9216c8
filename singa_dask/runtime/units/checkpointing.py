"""Checkpointing: when a worker saves, in files or memory, what it asks of others, and what comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from singa_dask.comm import Address, Message
from singa_dask.conf import JobConf
from singa_dask.errors import CheckpointError
from singa_dask.runtime.checkpoints.pending_checkpoints import (
    PendingCheckpoints,
    PendingSnapshots,
    describe_params,
    merge_cursors,
)
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.units.calendar import Calendar
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.run_state import RunState
from singa_dask.runtime.units.snapshot_schedule import SnapshotSchedule
from singa_dask.runtime.units.trainer import Trainer

__all__ = ["Checkpointing"]


class Checkpointing:
    """Takes the checkpoints and snapshots of a job, as the first worker; helps with them, as another one.

    Parameters
    ----------
    job : JobConf
    plan : JobPlan
    url : str
        Directory that ``step-<n>`` directories go to.
    trainer : Trainer
    state : RunState
    channel : Channel
    first_step : int
        Step that the job started at; there is no checkpoint before a later one.
    emit : callable
        Takes an event, a dict.
    snapshot_life : int, optional
        The life of the job, if it takes snapshots.
    """

    def __init__(
        self,
        job: JobConf,
        plan: JobPlan,
        url: str,
        trainer: Trainer,
        state: RunState,
        channel: Channel,
        first_step: int,
        emit: Callable[[dict[str, Any]], None],
        snapshot_life: int | None = None,
    ) -> None:
        self._job = job
        self._plan = plan
        self._trainer = trainer
        self._state = state
        self._channel = channel
        self._first_step = first_step
        self._emit = emit
        self._calendar = Calendar(job)
        self._saved_at = time.perf_counter()
        cluster = job.cluster
        # whose params and records the first worker may not have
        self._others = range(1, cluster.nworkers_per_group) if trainer.net.is_partitioned else range(0)
        expected = cluster.nservers_per_group, cluster.nworker_groups, 1 + len(self._others)
        self._pending = PendingCheckpoints(url, *expected, job.keep_checkpoints)
        self._snapshots = PendingSnapshots(snapshot_life, *expected) if snapshot_life is not None else None
        self._schedule = SnapshotSchedule()
        # of the others; they may come some steps before this worker asks for them
        self._cursors: list[Message] = []
        channel.on("cursors", self._cursors.append)
        channel.on("part", self._take)
        channel.on("r-progress", self._take)

    def begin(self, now: float) -> None:
        """Count time from now on, a value of ``time.perf_counter``."""
        self._saved_at = now
        if self._job.cluster.snapshot_freq is None:
            self._schedule.begin(now)

    def save_due(self, facts: Callable[[], Mapping[str, Any]]) -> None:
        """Begin the checkpoint or snapshot that is due before this step; a checkpoint will do for both.

        Parameters
        ----------
        facts : callable
            See `save`.
        """
        if self._is_due():
            self.save(facts())
        elif self._snapshots is not None and self._snapshot_is_due(self._snapshots):
            self.save(facts(), self._snapshots)

    def _is_due(self) -> bool:
        """Return whether a checkpoint is due before this step; the first worker chooses the step of one by time."""
        job, state = self._job, self._state
        if state.step <= self._first_step or state.step < job.checkpoint_after:
            return False
        if state.is_first and job.checkpoint_minutes and not self._pending and state.checkpoint_at < state.step:
            if time.perf_counter() - self._saved_at >= 60 * job.checkpoint_minutes:
                state.choose_checkpoint()
        return state.step == state.checkpoint_at or self._calendar.saves(state.step)

    def _snapshot_is_due(self, pending: PendingSnapshots) -> bool:
        """Return whether a snapshot is due before this step; the first worker chooses the step of one by time."""
        state = self._state
        if state.step <= self._first_step:
            return False
        if state.is_first and not pending and state.snapshot_at < state.step:
            if state.snapshot_requested or self._schedule.is_due(time.perf_counter()):
                state.choose_snapshot()
        return state.step == state.snapshot_at or self._calendar.takes_snapshot(state.step)

    def save(self, facts: Mapping[str, Any], snapshots: PendingSnapshots | None = None) -> None:
        """Begin a checkpoint as the first worker; where that does not know all, the others send it what they know.

        Parameters
        ----------
        facts : mapping
            For the manifest, beside those of the checkpoint itself.
        snapshots : PendingSnapshots, optional
            To take a snapshot, once the one before is complete.
        """
        if self._state.is_first:
            while snapshots:
                self._channel.receive("the snapshot before this")
            started = time.perf_counter()
            self._request_parts(self._manifest(facts), self._pending if snapshots is None else snapshots)
            for other in self._others:
                self._channel.send("taken", Address.worker(0, other))
            if snapshots is None:
                self._saved_at = started
            else:
                self._schedule.paused(time.perf_counter() - started)
        elif self._channel.address.group == 0 and self._others:
            self._trainer.collect_all()
            names = self._trainer.net.context.class_names.to_dict()
            info = {**self._trainer.position(self._state.step), "class_names": names}
            self._channel.send("cursors", Address.worker(0, 0), info=info)
            self._channel.wait_for("taken")

    def finish(self, wait: bool) -> None:
        """Take what has come for checkpoints and snapshots; with ``wait`` until all checkpoints are complete."""
        while (wait and self._pending) or ((self._pending or self._snapshots) and self._channel.has_messages()):
            self._channel.receive("parts of checkpoints")

    def _manifest(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for all updates, and for the cursors of the other workers; return the manifest."""
        self._trainer.collect_all()
        position = self._trainer.position(self._state.step)
        while len(self._cursors) < len(self._others):
            self._channel.receive("positions of the other workers")
        context = self._trainer.net.context
        names = context.class_names.to_dict()
        merge_cursors(position, names, self._cursors)
        return {
            "job": self._job.name,
            "step": self._state.step,
            "seed": self._job.seed,
            "time": time.time(),
            "params": describe_params(self._trainer.net),
            "groups": {str(self._channel.address.group): position},
            "deals": {name: list(deal) for name, deal in context.deals.items()},
            **facts,
            **({"class_names": names} if names else {}),
        }

    def _request_parts(self, manifest: Mapping[str, Any], pending: PendingCheckpoints) -> None:
        """Ask every server for its part; training goes on once all have taken their copy."""
        step, cluster = self._state.step, self._job.cluster
        info = pending.begin(step, manifest)
        for group in range(1, cluster.nworker_groups):
            for worker in (0, *self._others):
                self._channel.send("progress", Address.worker(group, worker), step=step)
        group = self._plan.layout.server_group_of(0)
        for i in range(cluster.nservers_per_group):
            self._channel.send("snapshot", Address.server(group, i), step=step, info=info)
        for _ in range(cluster.nservers_per_group):
            self._channel.wait_for("r-snapshot")

    def _take(self, message: Message) -> None:
        """Take a part, or a position; go on without a checkpoint that could not be written, unless it is the last.

        Raises
        ------
        CheckpointError
            The last one could not be written.
        """
        event = self._pending.take(message)
        if event is None and self._snapshots is not None:
            event = self._snapshots.take(message)
            self._schedule_next(event)
        if event is None:
            return
        if "error" in event and event["step"] == self._state.step and self._state.is_over:
            raise CheckpointError(event["error"])
        self._emit({"unit": str(self._channel.address), **event})

    def _schedule_next(self, event: Mapping[str, Any] | None) -> None:
        """Schedule the snapshot after one that is complete, or has failed."""
        if event is None or self._job.cluster.snapshot_freq is not None:
            return
        if event["event"] == "snapshot":
            layout = self._plan.layout
            group, seconds = layout.server_group_of(0), [part["seconds"] for part in event["manifest"]["parts"]]
            processes = {layout.process_of[Address.server(group, i)] for i in range(len(seconds))}
            self._schedule.end(time.perf_counter(), sum(seconds) / len(processes))
        else:
            self._schedule.fail(time.perf_counter())
