"""Checkpointing: when a worker saves, in files or memory, what it asks of others, and what comes back.

The first worker of the first group takes checkpoints and snapshots (`Checkpointing`), and tracks what others write for
them (`Pending`). Every worker tells it where it stands, and what its layers keep (`Reporter`).
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from singa_dask.comm.message import Address, Message
from singa_dask.conf import ClusterConf, JobConf
from singa_dask.errors import CheckpointError, text_of
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints.author import Author, write_manifest
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, Save, step_url
from singa_dask.runtime.checkpoints.layer_states import LayerState, write_states
from singa_dask.runtime.checkpoints.manifest import make_manifest, newest_step, what_is_no_cut
from singa_dask.runtime.checkpoints.retention import Retention
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.units.run_state import Channel, RunState, is_due
from singa_dask.runtime.units.snapshot_schedule import SnapshotSchedule
from singa_dask.runtime.units.trainer import Trainer

logger = logging.getLogger(__name__)


PATIENCE_S = 5.0
"""For how long a checkpoint, or a snapshot, may take before the next one is left out instead of waiting for it."""

FIRST = Address.worker(0, 0)

Event = dict[str, Any]
"""What people, and the scheduler, are told."""


SaveLater = Callable[[int, Mapping[str, Any], Callable[[Save], Event], Callable[[Event], None]], None]
"""(step, where, write, then) calls ``write`` in the background with what saves files where ``where`` says, at a ``url``
or in memory; ``then`` takes its result, the description of a part, or an ``error``."""


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
        At the step that the job starts at; there is no checkpoint before a later one.
    channel : Channel
    save_later : SaveLater
    in_background : callable
        Calls a function in a thread that may wait for file systems: these may take minutes to answer.
    takes_snapshots : bool
    author : Author
        Who writes the checkpoints.

    Attributes
    ----------
    reporter : Reporter
    """

    def __init__(
        self,
        job: JobConf,
        plan: JobPlan,
        url: str,
        trainer: Trainer,
        state: RunState,
        channel: Channel,
        save_later: SaveLater,
        in_background: Callable[[Callable[[], None]], None],
        takes_snapshots: bool,
        author: Author,
    ) -> None:
        self._job = job
        self._plan = plan
        self._url = url
        self._trainer = trainer
        self._state = state
        self._channel = channel
        self._in_background = in_background
        self.reporter = Reporter(trainer, state, channel, save_later)
        self._first_step = state.step
        self._saved_at = time.perf_counter()
        self._schedule = SnapshotSchedule()
        stopping = job.early_stopping
        self._author = author
        self._retention = Retention(url, job.keep_checkpoints, stopping is not None and stopping.restore_best, author)
        self._others = range(1, job.cluster.nworkers_per_group)
        # how often each kind is due, and from which step on
        self._freq = {"checkpoint": (job.checkpoint_freq, job.checkpoint_after)}
        term = secrets.token_hex(4)
        self._pending = {"checkpoint": Pending("checkpoint", job.cluster, term, self._write_later)}
        if takes_snapshots:
            self._freq["snapshot"] = job.cluster.snapshot_freq or 0, 0
            self._pending["snapshot"] = Pending("snapshot", job.cluster, term, self._end_snapshot)
        self._known = state.step  # of the newest snapshot that the scheduler has
        self._written: Event = {}  # the event of the newest checkpoint of this run that is complete
        self._copying: set[tuple[str, Address]] = set()
        # workers of other groups that wait, or have gone, and the request that they wait for
        self._arrived: set[Address] = set()
        self._gone: set[Address] = set()
        self._asked: tuple[str, int] | None = None
        # of the others; they may come some steps before this worker asks for them
        self._arrivals: list[Message] = []
        channel.on("learned", self._arrivals.append)
        for kind in ("part", "r-progress", "written"):
            channel.on(kind, self._take)
        for kind in ("r-snapshot", "r-settle"):
            channel.on(kind, lambda message: self._copying.discard((message.info["term"], message.src)))
        channel.on("known", self._know)
        channel.on("arrived", self._take_arrival)
        channel.on("ask-again", self._ask_again)

    def begin(self, now: float) -> None:
        """Count time from now on, a value of ``time.perf_counter``."""
        self._saved_at = now
        if self._job.cluster.snapshot_freq is None:
            self._schedule.begin(now)

    # -- when -----------------------------------------------------------------------------------------------

    def save_due(self, facts: Callable[[], Mapping[str, Any]]) -> None:
        """Begin the checkpoint or snapshot that is due before this step; a checkpoint will do for both.

        Parameters
        ----------
        facts : callable
            See `save`.
        """
        if self._channel.address.group:
            if self.reporter.is_due():
                self.reporter.report()
        elif kind := next(filter(self._is_due, self._pending), ""):
            self.save(facts(), kind)

    def _is_due(self, kind: str) -> bool:
        """Return whether a checkpoint or snapshot is due before this step.

        The first worker chooses the step of one that is due by time, or that somebody asks for.
        """
        state = self._state
        if state.step <= self._first_step:
            return state.step == state.save_at[kind]
        if state.is_first and not self._pending[kind] and state.save_at[kind] < state.step:
            if kind in state.requested or self._is_time(kind):
                state.choose_save(kind)
        return state.step == state.save_at[kind] or is_due(state.step, *self._freq[kind])

    def _is_time(self, kind: str) -> bool:
        now, minutes = time.perf_counter(), self._job.checkpoint_minutes
        if kind == "snapshot":
            return self._schedule.is_due(now)
        return bool(minutes) and self._state.step >= self._job.checkpoint_after and now - self._saved_at >= 60 * minutes

    # -- taking one -----------------------------------------------------------------------------------------

    def save(self, facts: Mapping[str, Any], kind: str = "checkpoint", *, last: bool = False) -> None:
        """Begin a checkpoint or snapshot as the first worker; another one helps with it.

        The others of the first group say where they stand, and wait until servers have taken their copies.

        Parameters
        ----------
        facts : mapping
            For the manifest, beside those of the checkpoint itself.
        kind : str
            ``"checkpoint"`` or ``"snapshot"``.
        last : bool
            Whether it is after the last step. An earlier one is left out while the one before is still being written,
            and the last one if it is the complete checkpoint that the units went on from.
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
        """Say as another worker of the first group that this one waits; return where states go, empty if nowhere."""
        net = self._trainer.net
        if net.is_partitioned:  # the first worker does not have all params
            self._trainer.collect_all()
        self._channel.send("learned", FIRST, info=net.context.class_names.known.to_dict())
        return self._channel.wait_for("taken").info

    def _complete(self, facts: Mapping[str, Any]) -> Checkpoint | None:
        """Return the checkpoint of this step if the run has it already, and no group has made a step since."""
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
        """Wait until the checkpoint or snapshot before is complete; return False if that takes too long."""
        pending = self._pending[kind]
        while pending and (last or pending.seconds < PATIENCE_S):
            self._channel.receive(f"the {kind} before this", None if last else max(PATIENCE_S - pending.seconds, 0.0))
        if pending and kind == "checkpoint":
            logger.warning(
                "the checkpoint of step %d is left out: the one before is still being written, for %.0f s so far",
                self._state.step, pending.seconds
            )  # fmt: skip
        return not pending

    def _manifest(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for all updates, and for the other workers; return the manifest, without positions."""
        self._trainer.collect_all()
        while len(self._arrivals) < len(self._others):
            self._channel.receive("the other workers")
        context = self._trainer.net.context
        learned = context.class_names.known.to_dict()
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
        """Ask every server for its part; return where parts go, once all have taken their copy.

        The other groups wait meanwhile. If there are several server groups, the one that writes has all changes of the
        others before it does.
        """
        step, cluster = self._state.step, self._job.cluster
        self._state.requested -= {"snapshot", kind}
        where = {"snapshot": self._known} if kind == "snapshot" else {"url": step_url(self._url, step)}
        info = self._pending[kind].begin(step, manifest, where | ({"keep": True} if last else {}))
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
        n = self._job.cluster.nservers_per_group
        for server in (Address.server(group, i) for group in groups for i in range(n)):
            self._copying.add((info["term"], server))
            self._channel.send(kind, server, step=step, info=info)
        while self._copying:
            self._channel.receive("copies of the servers")

    def finish(self, wait: bool) -> None:
        """Take what has come for checkpoints and snapshots; with ``wait`` until all checkpoints are complete."""
        while (wait and self._pending["checkpoint"]) or (self._state.is_first and self._channel.has_messages()):
            self._channel.receive("parts of checkpoints")

    # -- workers that start anew, or have left --------------------------------------------------------------

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
        for pending in self._pending.values():
            for step, worker, info in pending.to_ask(workers, awaited):
                self._arrived.discard(worker)
                self._channel.send("progress", worker, step=step, info=info)
        self.leave(message.info["left"])

    def leave(self, workers: Collection[Address]) -> None:
        """Do not wait for workers that are done, and may be gone."""
        self._gone.update(workers)
        for pending in self._pending.values():
            for worker in workers:
                for event in pending.leave(worker):
                    self._tell(event)

    # -- what comes of it -----------------------------------------------------------------------------------

    def _end_snapshot(self, step: int, parts: Sequence[Event], facts: Mapping[str, Any]) -> None:
        """Tell the scheduler of a snapshot; it is not complete before the scheduler has it."""
        event = {"event": "snapshot", "step": step, "time": time.time(), "manifest": make_manifest(parts, facts)}
        there, here = self._tell(event), self._channel.address

        def know(there: Future[Any] | None) -> None:
            info = {"known": there is None or (not there.cancelled() and there.exception() is None)}
            self._channel.put(Message("known", src=here, dst=here, step=step, info=info))

        if there is None:
            know(None)
        else:
            there.add_done_callback(know)

    def _know(self, message: Message) -> None:
        """Take note that the scheduler has a snapshot, or cannot be told of it."""
        self._pending["snapshot"].end(message.step)
        if message.info["known"]:
            self._known = message.step

    def _write_later(self, step: int, parts: Sequence[Event], facts: Mapping[str, Any]) -> None:
        """Write the manifest in the background; put the event of that in the inbox."""
        pending, here = self._pending["checkpoint"], self._channel.address
        last, steps = pending.asked(step).get("keep", False), frozenset(pending.steps)

        def write() -> None:
            try:
                event = self._write(step, parts, facts, last, steps)
            except Exception as error:  # this worker decides what to do
                event = pending.failure(step, text_of(error))
            info = {"term": pending.term, "event": event}
            self._channel.put(Message("written", src=here, dst=here, step=step, info=info))

        self._in_background(write)

    def _write(
        self, step: int, parts: Sequence[Event], facts: Mapping[str, Any], last: bool, pending: Collection[int]
    ) -> Event:
        url = step_url(self._url, step)
        places = write_manifest(url, parts, facts, last, self._author)
        if places:
            failure = self._pending["checkpoint"].failure(step, " ".join(sorted(set(places.values()))))
            return {**failure, "kept_at": sorted(places), "url": url}
        self._retention.tidy(step, [part["file"] for part in (*parts, *facts["states"])], pending, last=last)
        return {"event": "checkpoint", "step": step, "time": time.time(), "url": url}

    def _take(self, message: Message) -> None:
        """Take a part, a position, or what came of writing; go on without a checkpoint, unless it is the last.

        Raises
        ------
        CheckpointError
            The last one could not be written.
        """
        for pending in self._pending.values():
            if event := pending.take(message):
                self._tell(event)

    def _tell(self, event: Event) -> Future[Any] | None:
        """Tell people of a checkpoint or snapshot that is complete, or has failed; schedule the next snapshot."""
        if self._job.cluster.snapshot_freq is None and event["event"] != "checkpoint" and "error" not in event:
            self._schedule_next(event)
        if "error" in event and event["step"] == self._state.step and self._state.is_over:
            raise CheckpointError(f"{event['error'].removesuffix('.')}. {self._what_is_lost(event)}")
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

    def _what_is_lost(self, event: Event) -> str:
        """Say what is lost without the last checkpoint, and how to go on."""
        if "kept_at" in event:
            places, url = " and ".join(event["kept_at"]), event["url"]
            return f"Its files are kept at {places}: copy all of them to {url} to complete it, and resume then."
        if self._written:
            return f"What was trained after step {self._written['step']} is lost."
        since = f"after step {self._first_step}, where this run began," if self._first_step else "in this run"
        return f"What was trained {since} is lost. Expected a run directory that can be written at the end, too."


@dataclass
class _Request:
    """A checkpoint or snapshot that is not complete: what is known of it, what others have to know, and what came."""

    facts: dict[str, Any]
    asked: dict[str, Any]
    since: float = field(default_factory=time.monotonic)
    parts: dict[Address, Message] = field(default_factory=dict)
    reports: dict[Address, Message] = field(default_factory=dict)
    is_collected: bool = False


class Pending:
    """Collects the parts of servers and the reports of workers; completes a checkpoint or snapshot after the last one.

    Each request has a term, which is in its answers: answers to a worker that this one replaces are ignored.

    Parameters
    ----------
    kind : str
        ``"checkpoint"`` or ``"snapshot"``.
    cluster : ClusterConf
        Each server of a group writes a part, and each worker sends a report.
    term : str
        Identifies the worker that requests them among those that have the same address one after the other.
    complete : callable
        Takes the step, the descriptions of the parts, and other facts for the manifest. Returns an event, or None if
        `take` takes it later, as the ``event`` of a message ``written``.
    """

    def __init__(
        self,
        kind: str,
        cluster: ClusterConf,
        term: str,
        complete: Callable[[int, Sequence[Event], Mapping[str, Any]], Event | None],
    ) -> None:
        self.kind = kind
        self.term = term
        self._n_parts = cluster.nservers_per_group
        self._n_workers = cluster.nworkers_per_group
        self._n_reports = cluster.nworker_groups * cluster.nworkers_per_group
        self._complete = complete
        self._left: set[Address] = set()
        self._requests: dict[int, _Request] = {}

    def __bool__(self) -> bool:
        return bool(self._requests)

    @property
    def steps(self) -> Collection[int]:
        """Steps of those that are not complete."""
        return self._requests.keys()

    @property
    def seconds(self) -> float:
        """For how long the oldest one has been written; 0 if there is none."""
        return max((time.monotonic() - request.since for request in self._requests.values()), default=0.0)

    def asked(self, step: int) -> dict[str, Any]:
        """Return what others have to know of the request of a step."""
        return self._requests[step].asked

    def begin(self, step: int, facts: Mapping[str, Any], where: Mapping[str, Any]) -> dict[str, Any]:
        """Expect the checkpoint or snapshot of a step; return what others have to know.

        Parameters
        ----------
        step : int
        facts : mapping
            For the manifest.
        where : mapping
            Where parts go: a ``url``; or ``snapshot``, the step of the one whose parts stay meanwhile. ``keep``, if it
            is the last one of the job: hosts keep files of it that they cannot write.
        """
        request = self._requests[step] = _Request(dict(facts), {**where, "term": self.term})
        for worker in self._left:
            request.reports[worker] = self._report_of(worker, step)
        return request.asked

    def to_ask(
        self, units: Collection[Address], awaited: int | None = None
    ) -> list[tuple[int, Address, dict[str, Any]]]:
        """Return the requests that workers which start anew have to answer: (step, worker, what it has to know).

        Reports of a worker group are of one step: the whole group is asked again.

        Parameters
        ----------
        units : collection of Address
            All workers of other groups that start anew.
        awaited : int, optional
            The step for which servers have not taken their copies. A group that has reported for it does not wait for
            them any more: its reports are void.
        """
        again = []
        for step, request in self._requests.items():
            n_reports = Counter(worker.group for worker in request.reports)
            for unit in units:
                if step == awaited or n_reports[unit.group] < self._n_workers:
                    request.reports.pop(unit, None)
                    again.append((step, unit, request.asked))
        return again

    def leave(self, worker: Address) -> list[Event]:
        """Expect no report of a worker that is done and cannot be asked any more; return events as `take`.

        Where it read is not known, unless the others of its group say so; its last step is what servers have applied.
        """
        self._left.add(worker)
        steps = [step for step, request in self._requests.items() if worker not in request.reports]
        events = [self.take(self._report_of(worker, step)) for step in steps]
        return [event for event in events if event is not None]

    def _report_of(self, worker: Address, step: int) -> Message:
        info = {"term": self.term, "position": None, "states": None}
        return Message("r-progress", src=worker, dst=worker, step=step, info=info)

    def take(self, message: Message) -> Event | None:
        """Take the ``part`` of a server, the ``r-progress`` of a worker, or ``written`` of the background.

        Returns
        -------
        dict or None
            An event once the checkpoint is written or has failed; for a failure with the key ``error``.
        """
        request = self._requests.get(message.step)
        if request is None or message.info["term"] != self.term:  # of the other kind, or for another worker
            return None
        event = message.info["event"] if message.kind == "written" else self._collect(request, message)
        if event is not None:
            self.end(message.step)
        return event

    def end(self, step: int) -> None:
        """Expect nothing more for a step."""
        self._requests.pop(step, None)

    def _collect(self, request: _Request, message: Message) -> Event | None:
        """Take a part or a report; complete the checkpoint with the last one."""
        if request.is_collected:
            return None
        (request.reports if message.kind == "r-progress" else request.parts)[message.src] = message
        if len(request.parts) < self._n_parts or len(request.reports) < self._n_reports:
            return None
        request.is_collected = True
        parts = [request.parts[server] for server in sorted(request.parts)]
        reports = [request.reports[worker] for worker in sorted(request.reports)]
        for answer in (*parts, *reports):
            if "error" in answer.info:
                return self.failure(message.step, f"{answer.src}: {answer.info['error']}")
        described = [{key: value for key, value in part.info.items() if key != "term"} for part in parts]
        facts = {**request.facts, **self._merge(reports, described)}
        if facts.get("cut") and (why := what_is_no_cut(described, facts["groups"])):
            return self.failure(message.step, why)
        return self._complete(message.step, described, facts)

    def _merge(self, reports: Sequence[Message], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return positions and layer states of all workers, for the manifest."""
        groups, states = dict[str, Any](), []
        for group, messages in groupby(reports, key=lambda message: message.src.group):
            infos = [message.info for message in messages]
            positions = [info["position"] for info in infos if info["position"]]
            positions = positions or [{"step": newest_step(parts, str(group)) + 1, "cursors": {}}]
            groups[str(group)] = position = merge_positions(positions)
            if all(each["step"] == position["step"] for each in positions):
                states += [info["states"] for info in infos if info["states"]]
        cut = {"cut": True} if len(groups) > 1 else {}
        return {"groups": groups, "workers": self._n_workers, "states": states, **cut}

    def failure(self, step: int, why: str) -> Event:
        """Return the event of a checkpoint that was not written, or a snapshot that was not taken."""
        event = {"event": "log", "level": "WARNING", "step": step, "time": time.time()}
        if self.kind == "snapshot":
            return {**event, "message": f"the snapshot of step {step} was dropped: {why}"}
        error = f"the checkpoint of step {step} was not written: {why}"
        return {**event, "message": error, "error": error}


def merge_positions(positions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the position of a group: the step of all of its workers, and their cursors and unreported metrics.

    Each worker may read other layers. They must continue at the same step; if they are at different ones, there is
    only the step.
    """
    step = min(position["step"] for position in positions)
    cursors: dict[str, dict[str, Any]] = {}
    windows: dict[str, Any] = {}
    if all(position["step"] == step for position in positions):
        for position in positions:
            windows |= position.get("windows", {})
            for phase, by_layer in position["cursors"].items():
                cursors[phase] = {**by_layer, **cursors.get(phase, {})}
    return {"step": step, "cursors": cursors, **({"windows": windows} if windows else {})}


def describe_params(net: NeuralNet) -> dict[str, dict[str, Any]]:
    """Describe each whole param for the manifest: shape, dtype, and the parts of it that servers have."""
    described: dict[str, dict[str, Any]] = {}
    for key, kept in net.logical.items():
        facts = {"shape": list(kept.owner.whole_shape), "dtype": kept.owner.dtype.name}
        entry = described.setdefault(kept.owner.name, facts)
        if kept.param.shard is not None:
            _, axis, cut = kept.param.shard
            entry.setdefault("parts", {})[key] = [axis, cut.start, cut.stop]
    return described


class _Report(NamedTuple):
    position: dict[str, Any]
    states: Sequence[LayerState]


class Reporter:
    """Sends the reports of one worker.

    The first group takes checkpoints at steps that all of its workers know. In another group the workers are asked for
    reports at any time; the group agrees on the step of each report, and which request it answers: one may have reached
    some workers only, if the worker that sent it was lost. The last report, made at the end, answers all requests that
    are left, and alone those of the last checkpoint.

    A checkpoint is a consistent cut: before a worker reports, servers have answered all its gradients, and it begins no
    step before they have taken their copies (``taken``). The worker that asks answers requests that are not its own,
    of one that it replaces, in the same way, so nobody waits for a worker that is lost.

    Parameters
    ----------
    trainer : Trainer
    state : RunState
    channel : Channel
    save_later : SaveLater
    """

    def __init__(self, trainer: Trainer, state: RunState, channel: Channel, save_later: SaveLater) -> None:
        self._trainer = trainer
        self._state = state
        self._channel = channel
        self._save_later = save_later
        self._requests: dict[tuple[str, int], Message] = {}
        self._reports: dict[tuple[str, int], _Report] = {}
        self._last: _Report | None = None
        # one may be repeated if units are replaced
        self._answered: deque[tuple[str, int]] = deque(maxlen=8)
        self._held: tuple[str, int] | None = None
        self._first_step = state.step
        self._lock = threading.Lock()
        if channel.address.group:
            channel.on("taken", self._release)

    def report_now(self, step: int, where: Mapping[str, Any]) -> None:
        """Report for the checkpoint of a step; states are copied now and saved in the background."""
        self._send(self._make(), step, where)

    def _make(self) -> _Report:
        return _Report(self._trainer.position(self._state.step), self._trainer.states())

    def _send(self, report: _Report, step: int, where: Mapping[str, Any]) -> None:
        def send(saved: Event) -> None:
            info = {"term": where["term"], "position": report.position, **saved}
            self._channel.send("r-progress", FIRST, step=step, info=info)

        if not report.states:
            send({"states": None})
            return
        here = self._channel.address

        def write(save: Save) -> Event:
            return {"states": write_states(save, here.group, here.id, report.states)}

        self._save_later(step, where, write, send)

    # -- in other groups than the first --------------------------------------------------------------------

    def accept(self, request: Message) -> None:
        """Take the request of the first worker; called from other threads."""
        term, step = request.info["term"], request.step
        with self._lock:
            if (term, step) in self._answered:
                return
            # a worker that was replaced does not wait for answers any more
            self._requests = {key: each for key, each in self._requests.items() if key[0] == term}
            self._requests[term, step] = request
        self._answer()

    def is_due(self) -> bool:
        """Return whether a report is due before this step; the first worker of a group chooses the step of one.

        There is none before the first step: of a group that starts again some servers may have the update already.
        """
        state = self._state
        if self._requests and self._channel.address.id == 0 and not state.reports_at and state.step > self._first_step:
            with self._lock:
                request = next((key for key, each in self._requests.items() if not each.info.get("keep")), None)
            if request is not None:
                state.choose_report(request)
        return state.step in state.reports_at

    def report(self, last: bool = False) -> None:
        """Make a report; send it once it is asked for. Unless it is the last, wait for the copies of the servers."""
        self._trainer.collect_all()
        report = self._make()
        with self._lock:
            if last:
                self._last = report
            else:
                request = self._held = self._state.reports_at.pop(self._state.step)
                self._reports = {key: each for key, each in self._reports.items() if key[0] == request[0]}
                self._reports[request] = report
        self._answer()
        self.repeat_arrival()
        while self._held is not None:
            self._channel.receive("the copies of the servers")

    def repeat_arrival(self) -> None:
        """Tell the first worker that this one waits, if it does; called from other threads, too."""
        held = self._held
        if held is not None:
            self._channel.send("arrived", FIRST, step=held[1], info={"term": held[0]})

    def _release(self, message: Message) -> None:
        if self._held == (message.info["term"], message.step):
            self._held = None

    def _answer(self) -> None:
        """Send the reports that are made and were asked for."""
        while True:
            with self._lock:
                key = next((key for key in self._requests if self._last or key in self._reports), None)
                if key is None:
                    return
                request, report = self._requests.pop(key), self._reports.pop(key, self._last)
                self._answered.append(key)
            assert report is not None
            if report is self._last:
                self._channel.send("arrived", FIRST, step=request.step, info={"term": key[0]})
            self._send(report, request.step, request.info)
