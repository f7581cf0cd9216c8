"""Checkpointing: decide when to save a checkpoint or a snapshot, and collect its parts from all units.

A checkpoint is written to the run directory. A snapshot is a checkpoint in the memory of Dask workers, from which a job
restarts after a failure. The first worker of the first group takes both (`Checkpointing`), and tracks the parts that
other units write (`PendingCheckpoints`). Every worker reports its position and the states of its layers to that worker
(`CheckpointReporter`).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from singa_dask.comm.message import Address, Message
from singa_dask.conf import JobConf
from singa_dask.errors import CheckpointError, text_of
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints.author import write_manifest
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, step_url
from singa_dask.runtime.checkpoints.manifest import make_manifest
from singa_dask.runtime.checkpoints.retention import Retention
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.checkpoint_reporter import FIRST, CheckpointReporter
from singa_dask.runtime.units.pending_checkpoints import Event, PendingCheckpoints
from singa_dask.runtime.units.run_state import RunState, is_due
from singa_dask.runtime.units.saving import Saving
from singa_dask.runtime.units.snapshot_schedule import SnapshotSchedule
from singa_dask.runtime.units.trainer import Trainer

logger = logging.getLogger(__name__)


PATIENCE_S = 5.0
"""If the previous checkpoint or snapshot is still being written after this many seconds, the next one is skipped."""


class Checkpointing:
    """Takes checkpoints and snapshots on a job's first worker, and contributes on other workers.

    Parameters
    ----------
    saving : Saving
        Saves the layer states of this worker, and the manifests of checkpoints.
    state : RunState
        Must be at the first step of the job. No checkpoint is due before that step.
    """

    def __init__(
        self,
        job: JobConf,
        plan: JobPlan,
        saving: Saving,
        trainer: Trainer,
        state: RunState,
        channel: Channel,
    ) -> None:
        self._job = job
        self._plan = plan
        self._saving, self._url = saving, saving.url
        self._trainer = trainer
        self._state = state
        self._channel = channel
        self.reporter = CheckpointReporter(trainer, state, channel, saving)
        self._first_step = state.step
        self._saved_at = time.perf_counter()
        self._schedule = SnapshotSchedule()
        stopping = job.early_stopping
        restores_best = stopping is not None and stopping.restore_best
        self._retention = Retention(saving.url, job.keep_checkpoints, restores_best, saving.author)
        self._others = range(1, job.cluster.nworkers_per_group)
        # kind -> (number of steps between two checkpoints, first step)
        self._freq = {"checkpoint": (job.checkpoint_freq, job.checkpoint_after)}
        requester = secrets.token_hex(4)
        self._pending = {"checkpoint": PendingCheckpoints("checkpoint", job.cluster, requester, self._write_later)}
        if saving.store_part is not None and job.cluster.snapshot_freq != 0:
            self._freq["snapshot"] = job.cluster.snapshot_freq or 0, 0
            self._pending["snapshot"] = PendingCheckpoints("snapshot", job.cluster, requester, self._end_snapshot)
        self._known = state.step  # step of the newest snapshot that the scheduler has
        self._written: Event = {}  # event of the newest complete checkpoint of this run
        self._copying: set[tuple[str, Address]] = set()
        # workers of other groups that wait for the request `_asked`; workers of other groups that have left
        self._arrived: set[Address] = set()
        self._gone: set[Address] = set()
        self._asked: tuple[str, int] | None = None
        # `learned` messages of other workers, which may arrive some steps before this worker needs them
        self._arrivals: list[Message] = []
        channel.on("learned", self._arrivals.append)
        for kind in ("part", "r-progress", "written"):
            channel.on(kind, self._handle)
        for kind in ("r-copy", "r-settle"):
            channel.on(kind, lambda message: self._copying.discard((message.info["requester"], message.src)))
        channel.on("known", self._confirm_snapshot)
        channel.on("arrived", self._count_arrival)
        channel.on("ask-again", self._ask_again)

    def begin(self, now: float) -> None:
        """Start counting time at ``now``, a value of ``time.perf_counter``."""
        self._saved_at = now
        if self._job.cluster.snapshot_freq is None:
            self._schedule.begin(now)

    def save_due(self, facts: Callable[[], Mapping[str, Any]]) -> None:
        """Begin the checkpoint or snapshot that is due before this step.

        If both are due, only the checkpoint is taken. ``facts`` is called to get the argument ``facts`` of `save`.
        """
        if self._channel.address.group:
            if self.reporter.is_due():
                self.reporter.report()
        elif kind := next(filter(self._is_due, self._pending), ""):
            self.save(facts(), kind)

    def _is_due(self, kind: str) -> bool:
        """Return whether a checkpoint or snapshot is due before this step.

        For a checkpoint or snapshot by time or on request, the first worker chooses a step for the whole group.
        """
        state = self._state
        if state.step <= self._first_step:
            return state.step == state.save_at[kind]
        if state.is_first and not self._pending[kind] and state.save_at[kind] < state.step:
            if kind in state.requested or self._is_time(kind):
                state.save_at[kind] = state.agree_on(f"{kind}-at")
        return state.step == state.save_at[kind] or is_due(state.step, *self._freq[kind])

    def _is_time(self, kind: str) -> bool:
        now, minutes = time.perf_counter(), self._job.checkpoint_minutes
        if kind == "snapshot":
            return self._schedule.is_due(now)
        return bool(minutes) and self._state.step >= self._job.checkpoint_after and now - self._saved_at >= 60 * minutes

    def save(self, facts: Mapping[str, Any], kind: str = "checkpoint", *, last: bool = False) -> None:
        """Begin a checkpoint or snapshot as the first worker, or contribute to it as another worker.

        Every worker of the first group reports its position, and waits until the servers have copied their slices.

        A checkpoint is skipped while the previous one is being written. The last checkpoint is skipped only if the job
        has resumed from a complete checkpoint of the same step.

        Parameters
        ----------
        facts : mapping
            Additional values for the manifest.
        kind : {"checkpoint", "snapshot"}
            What to save.
        last : bool
            Whether this is the checkpoint at the end of the training.
        """
        where: Mapping[str, Any] = {}
        if self._channel.address.group:
            self.reporter.report(last)
        elif not self._state.is_first:
            if where := self._arrive():
                self.reporter.report_now(self._state.step, where)
        else:
            started = time.perf_counter()
            manifest = self._manifest(facts)
            if last and (complete := self._complete(facts)):
                self._retention.tidy(self._state.step, complete.files, last=True)
            elif self._is_free(kind, last):
                where = self._request_parts(kind, manifest, last)
                self.reporter.report_now(self._state.step, where)
            for other in self._others:
                self._channel.send("taken", Address.worker(0, other), info=where)
            if kind == "checkpoint":
                self._saved_at = started
            else:
                self._schedule.paused(time.perf_counter() - started)

    def _arrive(self) -> Mapping[str, Any]:
        """Report to the first worker that this worker waits; return its answer.

        The answer is the destination for the states of this worker's layers; empty if the checkpoint is skipped.
        """
        net = self._trainer.net
        if net.is_partitioned:  # the first worker waits only for its own params, so wait for other params here
            self._trainer.collect_all()
        self._channel.send("learned", FIRST, info=net.context.knowledge.known.to_dict())
        return self._channel.wait_for("taken").info

    def _complete(self, facts: Mapping[str, Any]) -> Checkpoint | None:
        """Return the complete checkpoint of this step, if no group has trained since then; else None."""
        if self._state.step != self._first_step:
            return None
        try:
            known = Checkpoint(step_url(self._url, self._state.step))
        except CheckpointError:
            return None
        n_groups, trained = self._job.cluster.nworker_groups, self._job.train_steps
        stays = n_groups == 1 or all(group["step"] >= trained for group in known.groups.values())
        is_same = all(known.manifest.get(key) == value for key, value in facts.items())
        return known if stays and is_same and len(known.groups) == n_groups else None

    def _is_free(self, kind: str, last: bool) -> bool:
        """Wait until the previous checkpoint or snapshot is complete.

        Return False if the previous one takes more than `PATIENCE_S` seconds. With ``last``, wait without a limit.
        """
        pending = self._pending[kind]
        while pending and (last or pending.seconds < PATIENCE_S):
            self._channel.receive(f"the {kind} before this", None if last else max(PATIENCE_S - pending.seconds, 0.0))
        if pending and kind == "checkpoint":
            logger.warning(
                "the checkpoint of step %d is skipped: the previous one is still being written after %.0f s",
                self._state.step, pending.seconds
            )  # fmt: skip
        return not pending

    def _manifest(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for all updates and for the other workers of the group; return the manifest without positions."""
        self._trainer.collect_all()
        while len(self._arrivals) < len(self._others):
            self._channel.receive("the other workers")
        context = self._trainer.net.context
        learned = context.knowledge.known.to_dict()
        for message in sorted(self._arrivals, key=lambda message: message.src):
            for key, by_layer in message.info.items():
                learned[key] = {**learned.get(key, {}), **by_layer}
        self._arrivals.clear()
        return {
            "job": self._job.name,
            "step": self._state.step,
            "seed": self._job.seed,
            "time": time.time(),
            "params": describe_params(self._trainer.net),
            "deals": {name: list(order) for name, order in context.assignments.items()},
            "files": self._trainer.remote_versions(),
            **facts,
            **learned,
        }

    def _request_parts(self, kind: str, manifest: Mapping[str, Any], last: bool) -> dict[str, Any]:
        """Request a part from each server that writes one; return the request, which contains the destination.

        Returns once these servers have copied their slices. The other worker groups wait meanwhile. If there are
        several server groups, only group 0 writes. Before that, all other groups send their changes to group 0.
        """
        step, cluster = self._state.step, self._job.cluster
        self._state.requested -= {"snapshot", kind}
        where = {"snapshot": self._known} if kind == "snapshot" else {"url": step_url(self._url, step)}
        info = self._pending[kind].begin(step, manifest, where | ({"rescue": True} if last else {}))
        others = {Address.worker(group, i) for group in range(1, cluster.nworker_groups) for i in (0, *self._others)}
        others -= self._gone
        self._asked = info["requester"], step
        self._arrived.clear()
        for worker in others:
            self._channel.send("progress", worker, step=step, info=info)
        while not self._gone.union(self._arrived).issuperset(others):
            self._channel.receive("the other worker groups")
        if cluster.nserver_groups > 1:
            self._ask_servers("settle", range(1, cluster.nserver_groups), step, info)
            self._ask_servers("settle", [0], step, info)
        self._ask_servers("copy", [0], step, info)
        self._asked = None
        for worker in others:
            self._channel.send("taken", worker, step=step, info={"requester": info["requester"]})
        return info

    def _ask_servers(self, kind: str, groups: Iterable[int], step: int, info: Mapping[str, Any]) -> None:
        """Send a request to all servers of some server groups, and wait for all answers."""
        n = self._job.cluster.nservers_per_group
        for server in (Address.server(group, i) for group in groups for i in range(n)):
            self._copying.add((info["requester"], server))
            self._channel.send(kind, server, step=step, info=info)
        while self._copying:
            self._channel.receive("copies of the servers")

    def finish(self, wait: bool) -> None:
        """Handle the messages about checkpoints and snapshots that have arrived.

        With ``wait``, go on until all checkpoints are complete.
        """
        while (wait and self._pending["checkpoint"]) or (self._state.is_first and self._channel.has_messages()):
            self._channel.receive("parts of checkpoints")

    def _count_arrival(self, message: Message) -> None:
        """Count a waiting worker of another group. If the worker waits for an outdated request, release it."""
        if (message.info["requester"], message.step) == self._asked:
            self._arrived.add(message.src)
        else:
            self._channel.send("taken", message.src, step=message.step, info=message.info)

    def _ask_again(self, message: Message) -> None:
        """Send pending requests again to units that restart, and stop waiting for workers that have left."""
        workers = [unit for unit in message.info["units"] if unit.kind == "worker"]
        awaited = self._asked[1] if self._asked and not self._copying else None
        for pending in self._pending.values():
            for step, worker, info in pending.requests_to_repeat(workers, awaited):
                self._arrived.discard(worker)
                self._channel.send("progress", worker, step=step, info=info)
        self.leave(message.info["left"])

    def leave(self, workers: Collection[Address]) -> None:
        """Stop waiting for workers that have finished and may be gone."""
        self._gone.update(workers)
        for pending in self._pending.values():
            for worker in workers:
                for event in pending.leave(worker):
                    self._emit(event)

    def _end_snapshot(self, step: int, parts: Sequence[Event], facts: Mapping[str, Any]) -> None:
        """Send the manifest of a snapshot to the scheduler.

        The snapshot is complete once the scheduler has it.
        """
        event = {"event": "snapshot", "step": step, "time": time.time(), "manifest": make_manifest(parts, facts)}
        there, here = self._emit(event), self._channel.address

        def know(there: Future[Any] | None) -> None:
            info = {"known": there is None or (not there.cancelled() and there.exception() is None)}
            self._channel.put(Message("known", src=here, dst=here, step=step, info=info))

        if there is None:
            know(None)
        else:
            there.add_done_callback(know)

    def _confirm_snapshot(self, message: Message) -> None:
        """Record that the scheduler has received a snapshot, or could not receive it."""
        self._pending["snapshot"].end(message.step)
        if message.info["known"]:
            self._known = message.step

    def _write_later(self, step: int, parts: Sequence[Event], facts: Mapping[str, Any]) -> None:
        """Write the manifest in the background, then put the resulting event in this worker's inbox."""
        pending, here = self._pending["checkpoint"], self._channel.address
        last, steps = pending.asked(step).get("rescue", False), frozenset(pending.steps)

        def write() -> None:
            try:
                event = self._write(step, parts, facts, last, steps)
            except Exception as error:  # the worker's thread handles the error when it reads the event
                event = pending.failure(step, text_of(error))
            info = {"requester": pending.requester, "event": event}
            self._channel.put(Message("written", src=here, dst=here, step=step, info=info))

        self._saving.writer.submit(write)

    def _write(
        self, step: int, parts: Sequence[Event], facts: Mapping[str, Any], last: bool, pending: Collection[int]
    ) -> Event:
        url = step_url(self._url, step)
        places = write_manifest(url, parts, facts, last, self._saving.author)
        if places:
            failure = self._pending["checkpoint"].failure(step, " ".join(sorted(set(places.values()))))
            return {**failure, "kept_at": sorted(places), "url": url}
        self._retention.tidy(step, [part["file"] for part in (*parts, *facts["states"])], pending, last=last)
        return {"event": "checkpoint", "step": step, "time": time.time(), "url": url}

    def _handle(self, message: Message) -> None:
        """Handle a part, a report, or a written manifest; raise CheckpointError if the last checkpoint failed."""
        for pending in self._pending.values():
            if event := pending.take(message):
                self._emit(event)

    def _emit(self, event: Event) -> Future[Any] | None:
        """Emit the event of a finished checkpoint or snapshot; after a snapshot, schedule the next one."""
        if self._job.cluster.snapshot_freq is None and event["event"] != "checkpoint" and "error" not in event:
            self._schedule_next(event)
        if "error" in event and event["step"] == self._state.step and self._state.is_over:
            raise CheckpointError(f"{event['error'].removesuffix('.')}. {self._loss_text(event)}")
        if event["event"] == "checkpoint":
            self._written = event
        return self._channel.emit({"unit": str(self._channel.address), **event})

    def _schedule_next(self, event: Event) -> None:
        now, layout = time.perf_counter(), self._plan.layout
        if event["event"] != "snapshot":
            self._schedule.fail(now)
            return
        group, seconds = layout.server_group_of(0), [part["seconds"] for part in event["manifest"]["parts"]]
        processes = {layout.process_of[Address.server(group, i)] for i in range(len(seconds))}
        self._schedule.end(now, sum(seconds) / len(processes))

    def _loss_text(self, event: Event) -> str:
        """Describe what is lost because the last checkpoint failed, and how to continue."""
        if "kept_at" in event:
            places, url = " and ".join(event["kept_at"]), event["url"]
            return f"Its files are kept at {places}. To complete it, copy all of them to {url}; then resume the run."
        if self._written:
            return f"The training after step {self._written['step']} is lost."
        since = f"after step {self._first_step}, where this run began," if self._first_step else "in this run"
        return f"The training {since} is lost. Choose a run directory that can also be written at the end."


def describe_params(net: NeuralNet) -> dict[str, dict[str, Any]]:
    """Describe each whole param for the manifest: its shape, its dtype, and the shards that servers hold."""
    described: dict[str, dict[str, Any]] = {}
    for key, kept in net.logical.items():
        facts = {"shape": list(kept.owner.whole_shape), "dtype": kept.owner.dtype.name}
        entry = described.setdefault(kept.owner.name, facts)
        if kept.param.shard is not None:
            _, axis, cut = kept.param.shard
            entry.setdefault("parts", {})[key] = [axis, cut.start, cut.stop]
    return described
