"""Checkpoints that servers are writing, and snapshots, as the worker that requested them tracks them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from singa_dask.comm import Message
from singa_dask.conf.watched import KeepConf
from singa_dask.errors import SingaError
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints import checkpoint
from singa_dask.runtime.checkpoints.retention import Retention

__all__ = ["PendingCheckpoints", "PendingSnapshots", "describe_params", "merge_cursors"]


@dataclass
class _Pending:
    facts: dict[str, Any]
    parts: list[dict[str, Any]] = field(default_factory=list)
    positions: dict[int, list[Sequence[Mapping[str, Any]]]] = field(default_factory=dict)


class PendingCheckpoints:
    """Collects the parts of servers and the positions of worker groups; writes the manifest after the last one.

    Parameters
    ----------
    directory : str
        URL that ``step-<n>`` directories go to.
    n_parts, n_groups : int
        Number of servers that write a part, and of worker groups that report their position.
    n_reporters : int
        Number of workers of each group that report its position.
    keep : KeepConf, optional
        Which checkpoints are kept; all by default.
    """

    def __init__(
        self, directory: str, n_parts: int, n_groups: int, n_reporters: int = 1, keep: KeepConf | None = None
    ) -> None:
        self.directory = directory
        self.n_parts = n_parts
        self.n_groups = n_groups
        self.n_reporters = n_reporters
        self._retention = Retention(directory, keep) if keep else None
        self._pending: dict[int, _Pending] = {}

    def __bool__(self) -> bool:
        return bool(self._pending)

    def begin(self, step: int, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Expect the checkpoint of a step; return what servers have to know. ``facts`` go into the manifest."""
        self._pending[step] = _Pending(dict(facts))
        return {"url": checkpoint.step_url(self.directory, step)}

    def take(self, message: Message) -> dict[str, Any] | None:
        """Take the ``part`` of a server or the ``r-progress`` of a worker.

        Returns
        -------
        dict or None
            An event once a checkpoint is written or has failed; for a failure with the key ``error``.
        """
        snapshot = self._pending.get(message.step)
        if snapshot is None:  # it has failed already
            return None
        if "error" in message.info:
            del self._pending[message.step]
            return self._fail(message.step, f"{message.src}: {message.info['error']}")
        if message.kind == "r-progress":
            positions = snapshot.positions.setdefault(message.src.group, [])
            positions.append(message.info["steps"])
            if len(positions) == self.n_reporters:
                snapshot.facts["groups"][str(message.src.group)] = _merge(positions)
        else:
            snapshot.parts.append(dict(message.info))
        if len(snapshot.parts) < self.n_parts or len(snapshot.facts["groups"]) < self.n_groups:
            return None
        del self._pending[message.step]
        return self._complete(message.step, snapshot.parts, snapshot.facts)

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
    """Collects the parts and positions of snapshots, which are kept in memory.

    Parameters
    ----------
    life : int
        Of the job.
    n_parts, n_groups, n_reporters : int
        As of `PendingCheckpoints`.
    """

    def __init__(self, life: int, n_parts: int, n_groups: int, n_reporters: int = 1) -> None:
        super().__init__("", n_parts, n_groups, n_reporters)
        self._life = life

    def begin(self, step: int, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Expect the snapshot of a step; return what servers have to know. ``facts`` go into the manifest."""
        super().begin(step, facts)
        return {"snapshot": True}

    def _complete(self, step: int, parts: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
        manifest = checkpoint.make_manifest(parts, facts)
        return {"event": "snapshot", "step": step, "time": time.time(), "life": self._life, "manifest": manifest}

    def _fail(self, step: int, why: str) -> dict[str, Any]:
        return _warning(step, f"the snapshot of step {step} was dropped: {why}")


def _warning(step: int, message: str) -> dict[str, Any]:
    return {"event": "log", "level": "WARNING", "step": step, "time": time.time(), "message": message}


def _merge(positions: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the position of a group: the last step that all of its workers have recorded, with their cursors.

    Readers of different workers must continue at the same step; without a common step there are no cursors.
    """
    by_step = [{int(each["step"]): each["cursors"] for each in steps} for steps in positions]
    common = set.intersection(*map(set, by_step))
    step = max(common, default=min(map(max, by_step)))
    cursors: dict[str, dict[str, Any]] = {}
    for each in by_step if common else ():
        for phase, found in each[step].items():
            cursors.setdefault(phase, {}).update(found)
    return {"step": step, "cursors": cursors}


def merge_cursors(where: Mapping[str, Any], names: dict[str, Any], messages: list[Message]) -> None:
    """Add the cursors and class names that other workers of the group have sent; empties ``messages``.

    Parameters
    ----------
    where : mapping
        With ``cursors``, by phase and layer, which are updated.
    names : dict
        Class names by layer, which are updated.
    messages : list of Message
        Of kind ``cursors``.
    """
    while messages:
        info = messages.pop().info
        names |= info["class_names"]
        for phase, cursors in info["cursors"].items():
            where["cursors"][phase] |= cursors


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
