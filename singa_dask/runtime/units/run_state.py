"""RunState: the step that a worker is at, and the steps at which its group stops or saves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from singa_dask.comm import Address, Message
from singa_dask.conf import JobConf
from singa_dask.runtime.units.channel import Channel


class RunState:
    """Tracks the training of one worker; agrees with its group on steps.

    Parameters
    ----------
    job : JobConf
    channel : Channel
        Of the worker.
    step : int
        First step.
    ahead : int
        Steps that one worker of the group can be ahead of another.
    rejoins : bool
        Whether the group starts again while others go on. It does not stop before its first step, which some servers
        may have applied already.

    Attributes
    ----------
    step : int
        Current training step.
    stop_at : int
        Step before which the whole group stops early; -1 if it does not.
    stop_requested : bool
        Set from other threads on the first worker of a group.
    reason : str
        Why the training ends before its last step although nobody stopped it; empty if it does not.
    checkpoint_at : int
        Step before which a checkpoint is due by time or on request.
    checkpoint_requested : bool
        Set from other threads on the first worker, which takes a checkpoint as soon as it can.
    reports_at : dict of int to (str, int)
        Steps before which a report is due, and which request each answers, see `Reporter`. A worker that is a step
        behind may have two.
    snapshot_at : int
        Step before which the first worker has chosen to take a snapshot.
    snapshot_requested : bool
        Set from other threads on the first worker, which takes a snapshot, or a checkpoint, as soon as it can.
    """

    def __init__(self, job: JobConf, channel: Channel, step: int, ahead: int, rejoins: bool = False) -> None:
        self.step = step
        self.stop_at = -1
        self.stop_requested = False
        self.reason = ""
        self.checkpoint_at = -1
        self.checkpoint_requested = False
        self.reports_at: dict[int, tuple[str, int]] = {}
        self.snapshot_at = -1
        self.snapshot_requested = False
        self._channel = channel
        self._address = channel.address
        self._cluster = job.cluster
        self._last = job.train_steps
        self._ahead = ahead
        self._may_stop_from = step + rejoins

    @property
    def is_first(self) -> bool:
        """Whether this is the first worker of the first group, which acts for all."""
        return self._address.group == 0 and self._address.id == 0

    @property
    def is_trained(self) -> bool:
        """Whether all steps are done."""
        return self.step >= self._last

    @property
    def is_over(self) -> bool:
        """Whether the training ends before this step."""
        return self.is_trained or self.step == self.stop_at

    @property
    def was_stopped(self) -> bool:
        """Whether somebody has stopped the training early."""
        return self.stop_at >= 0 and not self.reason

    def stops(self) -> bool:
        """Return whether the group stops before this step; the first worker chooses a step that none has reached."""
        if self.stop_requested and self.stop_at < 0 and self.step >= self._may_stop_from:
            self.stop_at = self._agree_on("stop-at", reason=self.reason)
        return 0 <= self.stop_at <= self.step

    def choose_checkpoint(self) -> None:
        """Have the group save before a step that no worker has reached."""
        self.checkpoint_requested = False
        self.checkpoint_at = self._agree_on("checkpoint-at")

    def choose_report(self, request: tuple[str, int]) -> None:
        """Have the group report, for a request, before a step that no worker has reached."""
        self.reports_at[self._agree_on("checkpoint-at", request=list(request))] = request

    def choose_snapshot(self) -> None:
        """Have the group take a snapshot before a step that no worker has reached."""
        self.snapshot_at = self._agree_on("snapshot-at")

    def _agree_on(self, kind: str, **info: Any) -> int:
        """Send the others of the group a step that none of them has reached; return it."""
        n = self._cluster.nworkers_per_group
        at = self.step + (2 + self._ahead if n > 1 else 0)
        for i in range(1, n):
            self._channel.send(kind, Address.worker(self._address.group, i), step=at, info=info)
        for _ in range(1, n):
            self._channel.wait_for(f"r-{kind}")
        return at

    def end_early(self, reason: str) -> None:
        """End the training of the group before this step; the first worker ends all groups. No reason: no end."""
        if not reason or self.reason:
            return
        self.reason, self.stop_at = reason, self.step
        if self.is_first:
            for group in range(1, self._cluster.nworker_groups):
                self._send_end(Address.worker(group, 0))

    def _send_end(self, worker: Address) -> None:
        self._channel.send("end", worker, info={"reason": self.reason})

    def repeat_end(self, units: Iterable[Address]) -> None:
        """Tell units that start anew what they have missed: that the training ends; called from other threads."""
        for unit in units:
            if self.is_first and self.reason and unit.kind == "worker" and unit.id == 0:
                self._send_end(unit)

    def accept(self, message: Message) -> None:
        """Take a step, or an end, that another worker has decided on; called from other threads."""
        if message.kind == "end":
            self.reason, self.stop_requested = message.info["reason"], True
        elif message.kind == "stop-at":
            self.reason, self.stop_at = message.info["reason"], message.step
        elif "request" in message.info:
            term, step = message.info["request"]
            self.reports_at[message.step] = term, step
        elif message.kind == "checkpoint-at":
            self.checkpoint_at = message.step
        else:
            self.snapshot_at = message.step
