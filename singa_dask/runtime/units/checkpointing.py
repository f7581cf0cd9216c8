"""Checkpointing: when a worker saves, in files or memory, what it asks of others, and what comes back."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from singa_dask.comm import Address, Message
from singa_dask.conf import JobConf
from singa_dask.errors import CheckpointError, text_of
from singa_dask.runtime.checkpoints.pending_checkpoints import (
    PendingCheckpoints,
    PendingSnapshots,
    describe_params,
    merge_positions,
)
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.units.calendar import Calendar, SnapshotSchedule
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.reporter import Reporter
from singa_dask.runtime.units.run_state import RunState
from singa_dask.runtime.units.trainer import Trainer

logger = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""For how long a checkpoint, or a snapshot, may take before the next one is left out instead of waiting for it."""


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
    reporter : Reporter
    in_background : callable
        Calls a function in a thread that may wait for file systems.
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
        reporter: Reporter,
        in_background: Callable[[Callable[[], None]], None],
        snapshot_life: int | None = None,
    ) -> None:
        self._job = job
        self._plan = plan
        self._trainer = trainer
        self._state = state
        self._channel = channel
        self._first_step = first_step
        self._emit = emit
        self._submit = in_background
        self._reporter = reporter
        self._calendar = Calendar(job)
        self._saved_at = time.perf_counter()
        cluster = job.cluster
        self._others = range(1, cluster.nworkers_per_group)
        expected = cluster.nservers_per_group, cluster.nworker_groups, cluster.nworkers_per_group
        term = secrets.token_hex(4)
        self._pending = PendingCheckpoints(url, *expected, self._in_background, job.keep_checkpoints, term)
        self._snapshots = PendingSnapshots(snapshot_life, *expected, term) if snapshot_life is not None else None
        self._written: dict[str, Any] = {}  # the event of the newest checkpoint of this run that is complete
        self._copying: set[tuple[str, Address]] = set()
        # workers of other groups that wait, or have gone, and the request that they wait for
        self._arrived: set[Address] = set()
        self._gone: set[Address] = set()
        self._asked: tuple[str, int] | None = None
        self._schedule = SnapshotSchedule()
        # of the others; they may come some steps before this worker asks for them
        self._cursors: list[Message] = []
        channel.on("cursors", self._cursors.append)
        channel.on("part", self._take)
        channel.on("r-progress", self._take)
        channel.on("written", self._take)
        for kind in ("r-snapshot", "r-settle"):
            channel.on(kind, lambda message: self._copying.discard((message.info["term"], message.src)))
        if state.is_first:
            channel.on("arrived", self._take_arrival)
        channel.on("ask-again", self._ask_again)

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
        if self._channel.address.group:
            if self._reporter.is_due():
                self._reporter.report()
        elif self._is_due():
            self.save(facts())
        elif self._snapshots is not None and self._snapshot_is_due(self._snapshots):
            self.save(facts(), self._snapshots)

    def _is_due(self) -> bool:
        """Return whether a checkpoint is due before this step.

        The first worker chooses the step of one that is due by time, or that somebody asks for.
        """
        state = self._state
        if state.step <= self._first_step:
            return False
        if state.is_first and not self._pending and state.checkpoint_at < state.step:
            if state.checkpoint_requested or self._is_time():
                state.choose_checkpoint()
        return state.step == state.checkpoint_at or self._calendar.saves(state.step)

    def _is_time(self) -> bool:
        job = self._job
        if not job.checkpoint_minutes or self._state.step < job.checkpoint_after:
            return False
        return time.perf_counter() - self._saved_at >= 60 * job.checkpoint_minutes

    def _snapshot_is_due(self, pending: PendingSnapshots) -> bool:
        """Return whether a snapshot is due before this step; the first worker chooses the step of one by time."""
        state = self._state
        if state.step <= self._first_step:
            return False
        if state.is_first and not pending and state.snapshot_at < state.step:
            if state.snapshot_requested or self._schedule.is_due(time.perf_counter()):
                state.choose_snapshot()
        return state.step == state.snapshot_at or self._calendar.takes_snapshot(state.step)

    def save(self, facts: Mapping[str, Any], snapshots: PendingSnapshots | None = None, *, last: bool = False) -> None:
        """Begin a checkpoint as the first worker; another one helps with it.

        The others of the first group say where they stand, and wait until servers have taken their copies.

        Parameters
        ----------
        facts : mapping
            For the manifest, beside those of the checkpoint itself.
        snapshots : PendingSnapshots, optional
            To take a snapshot, once the one before is complete.
        last : bool
            Whether it is after the last step. An earlier one is left out while the one before is still being written.
        """
        if self._channel.address.group:
            self._reporter.report(last)
        elif not self._state.is_first:
            where = self._arrive()
            if where:
                self._reporter.report_now(self._state.step, where)
        else:
            started = time.perf_counter()
            self._lead(facts, snapshots, last)
            if snapshots is None:
                self._saved_at = started
            else:
                self._schedule.paused(time.perf_counter() - started)

    def _arrive(self) -> Mapping[str, Any]:
        """Say as another worker of the first group where this one stands; return where states go, empty if nowhere."""
        net = self._trainer.net
        if net.is_partitioned:  # the first worker does not have all params
            self._trainer.collect_all()
        info = {"position": self._trainer.position(self._state.step), "learned": net.context.class_names.to_dict()}
        self._channel.send("cursors", Address.worker(0, 0), info=info)
        return self._channel.wait_for("taken").info

    def _lead(self, facts: Mapping[str, Any], snapshots: PendingSnapshots | None, last: bool) -> None:
        manifest, where = self._manifest(facts), {}
        if self._is_free(snapshots, last):
            where = self._request_parts(manifest, self._pending if snapshots is None else snapshots, last)
            self._reporter.report_now(self._state.step, where)
        for other in self._others:
            self._channel.send("taken", Address.worker(0, other), info=where)

    def _is_free(self, snapshots: PendingSnapshots | None, last: bool) -> bool:
        """Wait until the checkpoint or snapshot before is complete; return False if that takes too long."""
        if snapshots is not None:
            while snapshots and snapshots.seconds < PATIENCE_S:
                self._channel.receive("the snapshot before this", max(PATIENCE_S - snapshots.seconds, 0.0))
            return not snapshots
        while self._pending and (last or self._pending.seconds < PATIENCE_S):
            self._channel.receive(
                "the checkpoint before this", None if last else max(PATIENCE_S - self._pending.seconds, 0.0)
            )
        if self._pending:
            logger.warning(
                "the checkpoint of step %d is left out: the one before is still being written, for %.0f s so far",
                self._state.step, self._pending.seconds
            )  # fmt: skip
        return not self._pending

    def finish(self, wait: bool) -> None:
        """Take what has come for checkpoints and snapshots; with ``wait`` until all checkpoints are complete."""
        while (wait and self._pending) or (self._state.is_first and self._channel.has_messages()):
            self._channel.receive("parts of checkpoints")

    def _manifest(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for all updates, and for the cursors of the other workers; return the manifest."""
        self._trainer.collect_all()
        position = self._trainer.position(self._state.step)
        while len(self._cursors) < len(self._others):
            self._channel.receive("positions of the other workers")
        context = self._trainer.net.context
        learned = context.class_names.to_dict()
        others = sorted(self._cursors, key=lambda message: message.src)
        self._cursors.clear()
        position = merge_positions([position, *(message.info["position"] for message in others)])
        for message in others:
            for key, found in message.info["learned"].items():
                learned[key] = {**learned.get(key, {}), **found}
        return {
            "job": self._job.name,
            "step": self._state.step,
            "seed": self._job.seed,
            "time": time.time(),
            "params": describe_params(self._trainer.net),
            "groups": {str(self._channel.address.group): position},
            "deals": {name: list(deal) for name, deal in context.deals.items()},
            **facts,
            **learned,
        }

    def _request_parts(self, manifest: Mapping[str, Any], pending: PendingCheckpoints, last: bool) -> dict[str, Any]:
        """Ask every server for its part; return where parts go, once all have taken their copy.

        The other groups wait meanwhile. If there are several server groups, the one that writes has all changes of the
        others before it does.
        """
        step, cluster = self._state.step, self._job.cluster
        self._state.snapshot_requested = False
        info = pending.begin(step, manifest, last)
        others = {Address.worker(group, i) for group in range(1, cluster.nworker_groups) for i in (0, *self._others)}
        others -= self._gone
        self._asked = info["term"], step
        self._arrived.clear()
        for worker in others:
            self._channel.send("progress", worker, step=step, info=info)
        while not self._gone.union(self._arrived).issuperset(others):
            self._channel.receive("the other worker groups")
        if cluster.nserver_groups > 1:
            self._ask_servers("settle", range(1, cluster.nserver_groups), step, info)
            self._ask_servers("settle", [0], step, info)
        self._ask_servers("snapshot", [0], step, info)
        self._asked = None
        for worker in others:
            self._channel.send("taken", worker, step=step, info={"term": info["term"]})
        return info

    def _ask_servers(self, kind: str, groups: Iterable[int], step: int, info: Mapping[str, Any]) -> None:
        """Ask all servers of some groups, and wait for their answers."""
        for server in (
            Address.server(group, i) for group in groups for i in range(self._job.cluster.nservers_per_group)
        ):
            self._copying.add((info["term"], server))
            self._channel.send(kind, server, step=step, info=info)
        while self._copying:
            self._channel.receive("copies of the servers")

    def _take_arrival(self, message: Message) -> None:
        """Count a worker of another group that waits; one that waits for another request need not."""
        if (message.info["term"], message.step) == self._asked:
            self._arrived.add(message.src)
        else:
            self._channel.send("taken", message.src, step=message.step, info=message.info)

    def _ask_again(self, message: Message) -> None:
        """Ask units that start anew for what is still missing of them, and do not wait for those that are done."""
        workers = [unit for unit in message.info["units"] if unit.kind == "worker"]
        awaited = self._asked[1] if self._asked and not self._copying else None
        for pending in self._all_pending():
            for step, worker, info in pending.to_ask(workers, awaited):
                self._arrived.discard(worker)
                self._channel.send("progress", worker, step=step, info=info)
        self.leave(message.info["left"])

    def _all_pending(self) -> list[PendingCheckpoints]:
        return [self._pending] if self._snapshots is None else [self._pending, self._snapshots]

    def leave(self, workers: Collection[Address]) -> None:
        """Do not wait for workers that are done, and may be gone."""
        self._gone.update(workers)
        for pending in self._all_pending():
            for worker in workers:
                for event in pending.leave(worker):
                    self._schedule_next(event)
                    self._tell(event)

    def _in_background(self, step: int, write: Callable[[], dict[str, Any]]) -> None:
        """Call a function in the background; put what it returns in the inbox, see `InBackground`."""

        def run() -> None:
            try:
                event = write()
            except Exception as error:  # this worker decides what to do
                event = self._pending.failure(step, text_of(error))
            here = self._channel.address
            info = {"term": self._pending.term, "event": event}
            self._channel.put(Message("written", src=here, dst=here, step=step, info=info))

        self._submit(run)

    def _take(self, message: Message) -> None:
        """Take a part, a position, or what came of writing; go on without a checkpoint, unless it is the last.

        Raises
        ------
        CheckpointError
            The last one could not be written.
        """
        event = self._pending.take(message)
        if event is None and self._snapshots is not None:
            event = self._snapshots.take(message)
        if event is not None:
            self._schedule_next(event)
            self._tell(event)

    def _tell(self, event: Mapping[str, Any]) -> None:
        if "error" in event and event["step"] == self._state.step and self._state.is_over:
            raise CheckpointError(f"{event['error'].removesuffix('.')}. {self._what_is_lost(event)}")
        if event["event"] == "checkpoint":
            self._written = dict(event)
        self._emit({"unit": str(self._channel.address), **event})

    def _what_is_lost(self, event: Mapping[str, Any]) -> str:
        """Say what is lost without the last checkpoint, and how to go on."""
        if "kept_at" in event:
            places, url = " and ".join(event["kept_at"]), event["url"]
            return f"Its files are kept at {places}: copy all of them to {url} to complete it, and resume then."
        if self._written:
            return f"What was trained after step {self._written['step']} is lost."
        since = f"after step {self._first_step}, where this run began," if self._first_step else "in this run"
        return f"What was trained {since} is lost. Expected a run directory that can be written at the end, too."

    def _schedule_next(self, event: Mapping[str, Any]) -> None:
        """Schedule the snapshot after one that is complete, or has failed; does nothing after a checkpoint."""
        if self._job.cluster.snapshot_freq is not None:
            return
        if event["event"] == "snapshot":
            layout = self._plan.layout
            group, seconds = layout.server_group_of(0), [part["seconds"] for part in event["manifest"]["parts"]]
            processes = {layout.process_of[Address.server(group, i)] for i in range(len(seconds))}
            self._schedule.end(time.perf_counter(), sum(seconds) / len(processes))
        elif event["event"] != "checkpoint" and "error" not in event:
            self._schedule.fail(time.perf_counter())
