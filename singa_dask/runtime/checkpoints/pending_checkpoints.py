"""Checkpoints that servers are writing, and snapshots, as the worker that requested them tracks them."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from singa_dask.comm import Address, Message
from singa_dask.conf.watched import KeepConf, is_less_better
from singa_dask.data import fs
from singa_dask.errors import CheckpointError, SingaError
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints import checkpoint
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, step_url
from singa_dask.runtime.checkpoints.manifest import MANIFEST, make_manifest, newest_step, what_is_no_cut

logger = logging.getLogger(__name__)


class Retention:
    """Deletes old checkpoints of a run, as ``keep_checkpoints`` says.

    Parameters
    ----------
    directory : str
        URL of the directory with the ``step-<n>`` directories.
    conf : KeepConf, optional
        By default all that are complete are kept.
    """

    def __init__(self, directory: str, conf: KeepConf | None) -> None:
        self._directory = directory
        self._all = conf is None
        self._conf = conf = conf or KeepConf()
        self._sign = -1.0 if is_less_better(conf.metric, conf.mode) else 1.0
        # metric of each complete checkpoint that has been read: (value, step of its test)
        self._values: dict[int, tuple[float, int] | None] = {}

    def tidy(self, step: int, files: Collection[str], pending: Collection[int] = (), last: bool = False) -> None:
        """Delete older checkpoints that are not to be kept, now that the one of ``step``, with ``files``, is complete.

        What killed processes have left is deleted too: incomplete checkpoints, except those of ``pending`` steps, and
        other files in the directory of this one; later ones stay. Unless it is the ``last`` of the job, the newest one
        before it stays, too: the job starts again from there if it loses processes before the scheduler knows of the
        new one. If that fails, log a warning and continue.
        """
        try:
            found = [int(match[1]) for name in fs.ls(self._directory) if (match := re.fullmatch(r"step-(\d+)", name))]
            older = [each for each in found if each < step and each not in pending]
            complete = [each for each in older if self._is_complete(each)]
            stays = set(complete if self._all else self._kept([*complete, step]))
            stays.update(() if last else sorted(complete)[-1:])
            for each in older:
                if each not in stays:
                    self._delete(each)
            url = step_url(self._directory, step)
            for name in set(fs.ls(url)).difference(files, [MANIFEST]):
                fs.remove_tree(fs.join(url, name))
        except (OSError, SingaError) as error:
            logger.warning("old checkpoints could not be deleted: %s", error)

    def _is_complete(self, step: int) -> bool:
        if step not in self._values:
            if not fs.exists(fs.join(step_url(self._directory, step), MANIFEST)):
                return False
            self._values[step] = self._value(step)
        return True

    def _value(self, step: int) -> tuple[float, int] | None:
        if not self._conf.best:
            return None
        try:
            manifest = Checkpoint(step_url(self._directory, step)).manifest
        except CheckpointError:
            return None
        found = manifest.get("metrics", {}).get(self._conf.metric)
        return None if found is None else (float(found["value"]), int(found["step"]))

    def _kept(self, steps: Collection[int]) -> set[int]:
        """Return the complete steps to keep: the newest and the best; among equals the oldest.

        Of several checkpoints with the value of the same test, only the first counts as best.
        """
        measured: dict[int, tuple[float, int]] = {}
        for step in sorted(steps):
            if step not in self._values:
                self._values[step] = self._value(step)
            if (found := self._values[step]) is not None:
                measured.setdefault(found[1], (-self._sign * found[0], step))
        best = [step for _, step in sorted(measured.values())[: self._conf.best]]
        return {*sorted(steps)[-self._conf.last :], *best}

    def _delete(self, step: int) -> None:
        """Delete a checkpoint, the manifest first, so that it is incomplete from then on."""
        url = step_url(self._directory, step)
        fs.remove_tree(fs.join(url, MANIFEST))
        fs.remove_tree(url)
        self._values.pop(step, None)


@dataclass
class _Pending:
    facts: dict[str, Any]
    asked: dict[str, Any]
    since: float = field(default_factory=time.monotonic)
    parts: dict[Address, Message] = field(default_factory=dict)
    reports: dict[Address, Message] = field(default_factory=dict)
    is_collected: bool = False


InBackground = Callable[[int, Callable[[], dict[str, Any]]], None]
"""(step, write) calls ``write`` in the background, and has `PendingCheckpoints.take` take what it returns as the
``event`` of a message ``written``; what it raises as the one of `PendingCheckpoints.failure`."""


class PendingCheckpoints:
    """Collects the parts of servers and the reports of workers; has the manifest written after the last one.

    Each request has a term, which is in its answers: answers to a worker that this one replaces are ignored.

    Parameters
    ----------
    directory : str
        URL that ``step-<n>`` directories go to.
    n_parts : int
        Number of servers that write a part.
    n_groups, n_workers : int
        Number of worker groups, and of workers in each; each worker sends a report.
    in_background : callable
        See `InBackground`: a file system may take minutes to answer.
    keep : KeepConf, optional
        Which checkpoints are kept; all by default.
    term : str
        Identifies the worker that requests them among those that have the same address one after the other.
    """

    def __init__(
        self,
        directory: str,
        n_parts: int,
        n_groups: int,
        n_workers: int,
        in_background: InBackground,
        keep: KeepConf | None = None,
        term: str = "",
    ) -> None:
        self.directory = directory
        self.n_parts = n_parts
        self.n_workers = n_workers
        self.n_reports = n_groups * n_workers
        self.term = term
        self._left: set[Address] = set()
        self._in_background = in_background
        self._retention = Retention(directory, keep)
        self._pending: dict[int, _Pending] = {}

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def seconds(self) -> float:
        """For how long the oldest one has been written; 0 if there is none."""
        return max((time.monotonic() - each.since for each in self._pending.values()), default=0.0)

    def begin(self, step: int, facts: Mapping[str, Any], last: bool = False) -> dict[str, Any]:
        """Expect the checkpoint of a step; return what others have to know.

        Parameters
        ----------
        step : int
        facts : mapping
            For the manifest.
        last : bool
            Whether it is the last one of the job: hosts keep files of it that they cannot write.
        """
        where = {**self._where(step), **({"keep": True} if last else {})}
        asked = self._pending[step] = _Pending(dict(facts), {**where, "term": self.term})
        for worker in self._left:
            asked.reports[worker] = self._report_of(worker, step)
        return asked.asked

    def _where(self, step: int) -> dict[str, Any]:
        """Return where parts go."""
        return {"url": checkpoint.step_url(self.directory, step)}

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
        for step, pending in self._pending.items():
            n_reports = Counter(worker.group for worker in pending.reports)
            for unit in units:
                if step == awaited or n_reports[unit.group] < self.n_workers:
                    pending.reports.pop(unit, None)
                    again.append((step, unit, pending.asked))
        return again

    def leave(self, worker: Address) -> list[dict[str, Any]]:
        """Expect no report of a worker that is done and cannot be asked any more; return events as `take`.

        Where it read is not known, unless the others of its group say so; its last step is what servers have applied.
        """
        self._left.add(worker)
        steps = [step for step, pending in self._pending.items() if worker not in pending.reports]
        events = [self.take(self._report_of(worker, step)) for step in steps]
        return [event for event in events if event is not None]

    def _report_of(self, worker: Address, step: int) -> Message:
        info = {"term": self.term, "position": None, "states": None}
        return Message("r-progress", src=worker, dst=worker, step=step, info=info)

    def take(self, message: Message) -> dict[str, Any] | None:
        """Take the ``part`` of a server, the ``r-progress`` of a worker, or ``written`` of the background.

        Returns
        -------
        dict or None
            An event once the checkpoint is written or has failed; for a failure with the key ``error``.
        """
        pending = self._pending.get(message.step)
        if pending is None or message.info["term"] != self.term:  # of the other kind, or for another worker
            return None
        if message.kind == "written":
            event: dict[str, Any] | None = message.info["event"]
        else:
            event = self._collect(pending, message)
        if event is not None:
            del self._pending[message.step]
        return event

    def _collect(self, pending: _Pending, message: Message) -> dict[str, Any] | None:
        """Take a part or a report; complete the checkpoint with the last one."""
        if pending.is_collected:
            return None
        (pending.reports if message.kind == "r-progress" else pending.parts)[message.src] = message
        if len(pending.parts) < self.n_parts or len(pending.reports) < self.n_reports:
            return None
        pending.is_collected = True
        parts = [pending.parts[server] for server in sorted(pending.parts)]
        reports = [pending.reports[worker] for worker in sorted(pending.reports)]
        for each in (*parts, *reports):
            if "error" in each.info:
                return self.failure(message.step, f"{each.src}: {each.info['error']}")
        described = [_without_term(part.info) for part in parts]
        facts = {**pending.facts, **self._merge(pending.facts["groups"], reports, described)}
        if facts.get("cut") and (why := what_is_no_cut(described, facts["groups"])):
            return self.failure(message.step, why)
        return self._complete(message.step, described, facts)

    def _merge(
        self, known: Mapping[str, Any], reports: Sequence[Message], parts: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return positions and layer states of all workers, for the manifest; some positions are known."""
        groups, states = dict(known), []
        for group, found in groupby(reports, key=lambda message: message.src.group):
            infos = [message.info for message in found]
            positions = [info["position"] for info in infos if info["position"]]
            positions = positions or [{"step": newest_step(parts, str(group)) + 1, "cursors": {}}]
            position = groups.setdefault(str(group), merge_positions(positions))
            if all(each["step"] == position["step"] for each in positions):
                states += [info["states"] for info in infos if info["states"]]
        cut = {"cut": True} if len(groups) > 1 else {}
        return {"groups": groups, "workers": self.n_workers, "states": states, **cut}

    def _complete(
        self, step: int, parts: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Have a checkpoint completed whose parts are there; return an event if it is complete."""
        self._in_background(step, partial(self._write, step, parts, facts, frozenset(self._pending)))
        return None

    def _write(
        self, step: int, parts: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], pending: Collection[int]
    ) -> dict[str, Any]:
        url, keep = checkpoint.step_url(self.directory, step), self._pending[step].asked.get("keep", False)
        places = checkpoint.write_manifest(url, parts, facts, keep)
        if places:
            return {**self.failure(step, " ".join(sorted(set(places.values())))), "kept_at": sorted(places), "url": url}
        files = [each["file"] for each in (*parts, *facts["states"])]
        self._retention.tidy(step, files, pending, last=keep)
        return {"event": "checkpoint", "step": step, "time": time.time(), "url": url}

    def failure(self, step: int, why: str) -> dict[str, Any]:
        """Return the event of a checkpoint that was not written."""
        error = f"the checkpoint of step {step} was not written: {why}"
        return {**_warning(step, error), "error": error}


class PendingSnapshots(PendingCheckpoints):
    """Collects the parts and reports of snapshots, which are kept in memory.

    Parameters
    ----------
    life : int
        Of the job.
    n_parts, n_groups, n_workers : int
        As of `PendingCheckpoints`.
    term : str
        As of `PendingCheckpoints`.
    """

    def __init__(self, life: int, n_parts: int, n_groups: int, n_workers: int = 1, term: str = "") -> None:
        super().__init__("", n_parts, n_groups, n_workers, _never, term=term)
        self._life = life

    def _where(self, step: int) -> dict[str, Any]:
        return {"snapshot": True}

    def _complete(self, step: int, parts: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
        manifest = make_manifest(parts, facts)
        return {"event": "snapshot", "step": step, "time": time.time(), "life": self._life, "manifest": manifest}

    def failure(self, step: int, why: str) -> dict[str, Any]:
        """Return the event of a snapshot that was not taken."""
        return _warning(step, f"the snapshot of step {step} was dropped: {why}")


def _never(step: int, write: Callable[[], dict[str, Any]]) -> None:
    raise AssertionError("the manifest of a snapshot is not written")


def _without_term(info: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if key != "term"}


def _warning(step: int, message: str) -> dict[str, Any]:
    return {"event": "log", "level": "WARNING", "step": step, "time": time.time(), "message": message}


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
            for phase, found in position["cursors"].items():
                cursors[phase] = {**found, **cursors.get(phase, {})}
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
