"""Checkpoints that servers are writing, and snapshots, as the worker that requested them tracks them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from singa_dask.comm import Message
from singa_dask.conf.watched import KeepConf
from singa_dask.errors import SingaError
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints import checkpoint
from singa_dask.runtime.checkpoints.manifest import make_manifest
from singa_dask.runtime.checkpoints.retention import Retention

__all__ = ["PendingCheckpoints", "PendingSnapshots", "describe_params", "merge_positions"]


@dataclass
class _Pending:
    facts: dict[str, Any]
    since: float = field(default_factory=time.monotonic)
    parts: list[Message] = field(default_factory=list)
    reports: list[Message] = field(default_factory=list)


class PendingCheckpoints:
    """Collects the parts of servers and the reports of workers; writes the manifest after the last one.

    Parameters
    ----------
    directory : str
        URL that ``step-<n>`` directories go to.
    n_parts : int
        Number of servers that write a part.
    n_groups, n_workers : int
        Number of worker groups, and of workers in each; each worker sends a report.
    keep : KeepConf, optional
        Which checkpoints are kept; all by default.
    """

    def __init__(
        self, directory: str, n_parts: int, n_groups: int, n_workers: int = 1, keep: KeepConf | None = None
    ) -> None:
        self.directory = directory
        self.n_parts = n_parts
        self.n_workers = n_workers
        self.n_reports = n_groups * n_workers
        self._retention = Retention(directory, keep) if keep else None
        self._pending: dict[int, _Pending] = {}

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def seconds(self) -> float:
        """For how long the oldest one has been written; 0 if there is none."""
        return max((time.monotonic() - each.since for each in self._pending.values()), default=0.0)

    def begin(self, step: int, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Expect the checkpoint of a step; return what others have to know. ``facts`` go into the manifest."""
        self._pending[step] = _Pending(dict(facts))
        return {"url": checkpoint.step_url(self.directory, step)}

    def take(self, message: Message) -> dict[str, Any] | None:
        """Take the ``part`` of a server or the ``r-progress`` of a worker.

        Returns
        -------
        dict or None
            An event once all of them are there, and the checkpoint is written or has failed; for a failure with the
            key ``error``.
        """
        pending = self._pending.get(message.step)
        if pending is None:  # of the other kind
            return None
        (pending.reports if message.kind == "r-progress" else pending.parts).append(message)
        if len(pending.parts) < self.n_parts or len(pending.reports) < self.n_reports:
            return None
        del self._pending[message.step]
        parts = sorted(pending.parts, key=lambda message: message.src)
        reports = sorted(pending.reports, key=lambda message: message.src)
        for each in (*parts, *reports):
            if "error" in each.info:
                return self._fail(message.step, f"{each.src}: {each.info['error']}")
        facts = {**pending.facts, **self._merge(pending.facts["groups"], reports)}
        return self._complete(message.step, [dict(part.info) for part in parts], facts)

    def _merge(self, known: Mapping[str, Any], reports: Sequence[Message]) -> dict[str, Any]:
        """Return positions and layer states of all workers, for the manifest; some positions are known."""
        groups, states = dict(known), []
        for group, found in groupby(reports, key=lambda message: message.src.group):
            infos = [message.info for message in found]
            position = groups.setdefault(str(group), merge_positions([info["position"] for info in infos]))
            if all(info["position"]["step"] == position["step"] for info in infos):
                states += [info["states"] for info in infos if info["states"]]
        return {"groups": groups, "workers": self.n_workers, "states": states}

    def _complete(self, step: int, parts: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
        url = checkpoint.step_url(self.directory, step)
        try:
            checkpoint.write_manifest(url, parts, facts)
        except (OSError, SingaError) as error:
            return self._fail(step, str(error))
        if self._retention is not None:
            self._retention.tidy(step, self._pending)
        return {"event": "checkpoint", "step": step, "time": time.time(), "url": url}

    def _fail(self, step: int, why: str) -> dict[str, Any]:
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
    """

    def __init__(self, life: int, n_parts: int, n_groups: int, n_workers: int = 1) -> None:
        super().__init__("", n_parts, n_groups, n_workers)
        self._life = life

    def begin(self, step: int, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Expect the snapshot of a step; return what others have to know. ``facts`` go into the manifest."""
        super().begin(step, facts)
        return {"snapshot": True}

    def _complete(self, step: int, parts: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
        manifest = make_manifest(parts, facts)
        return {"event": "snapshot", "step": step, "time": time.time(), "life": self._life, "manifest": manifest}

    def _fail(self, step: int, why: str) -> dict[str, Any]:
        return _warning(step, f"the snapshot of step {step} was dropped: {why}")


def _warning(step: int, message: str) -> dict[str, Any]:
    return {"event": "log", "level": "WARNING", "step": step, "time": time.time(), "message": message}


def merge_positions(positions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the position of a group: the step and cursors of all of its workers, of which each may read other layers.

    Readers of different workers must continue at the same step; if they are at different ones, there are no cursors.
    """
    step = min(position["step"] for position in positions)
    cursors: dict[str, dict[str, Any]] = {}
    if all(position["step"] == step for position in positions):
        for position in positions:
            for phase, found in position["cursors"].items():
                cursors[phase] = {**found, **cursors.get(phase, {})}
    return {"step": step, "cursors": cursors}


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
