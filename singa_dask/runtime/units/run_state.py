"""RunState: the step of a worker, and the steps before which its group stops, saves or reports.

The workers of a group agree on these steps through their `Channel`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from singa_dask.comm.message import Address, Message
from singa_dask.conf import JobConf
from singa_dask.runtime.units.channel import Channel


def is_due(step: int, freq: int, after: int = 0) -> bool:
    """Return whether an action of every ``freq`` steps, first at step ``after``, is due at ``step``.

    With ``freq`` 0, the action is never due.
    """
    return freq > 0 and step >= after and (step - after) % freq == 0


class RunState:
    """Tracks the training of one worker, and agrees on steps with its group.

    Parameters
    ----------
    step : int
        First step of the worker.
    ahead : int
        Maximum number of steps that one worker of the group can be ahead of another.
    rejoins : bool
        Whether the group restarts while other groups continue. Such a group makes at least one step, because some
        servers may already have applied the update of its first step.

    Attributes
    ----------
    step : int
        Current training step.
    requested : set of str
        Pending requests, which any thread may add. The first worker of each group gets ``"stop"``. The first worker of
        the job also gets ``"checkpoint"`` and ``"snapshot"``.
    stop_at : int
        Step before which the whole group stops early; -1 if it does not stop early.
    reason : str
        Reason of an early end of the training, e.g. early stopping; empty without an early end, or if a user stopped
        the training.
    save_at : dict of str to int
        For ``"checkpoint"`` and ``"snapshot"``, the step before which one is due by time or on request, or -1.
    reports_at : dict of int to (str, int)
        For each step before which a report is due, the request that the report answers; see `CheckpointReporter`. A
        worker that lags a step behind may have two entries.
    """

    def __init__(self, job: JobConf, channel: Channel, step: int, ahead: int, rejoins: bool = False) -> None:
        self.step = step
        self.requested: set[str] = set()
        self.stop_at = -1
        self.reason = ""
        self.save_at = {"checkpoint": -1, "snapshot": -1}
        self.reports_at: dict[int, tuple[str, int]] = {}
        self._channel = channel
        self._address = channel.address
        self._cluster = job.cluster
        self._last = job.train_steps
        self._ahead = ahead
        self._may_stop_from = step + rejoins

    @property
    def is_first(self) -> bool:
        """Whether this is the first worker of the first group, which decides for all workers."""
        return self._address.group == 0 and self._address.id == 0

    @property
    def is_trained(self) -> bool:
        """Whether the worker has made all steps of the job."""
        return self.step >= self._last

    @property
    def is_over(self) -> bool:
        """Whether the training ends before the current step."""
        return self.is_trained or self.step == self.stop_at

    @property
    def was_stopped(self) -> bool:
        """Whether a user stopped the training early."""
        return self.stop_at >= 0 and not self.reason

    def should_stop(self) -> bool:
        """Return whether the group stops before the current step, which its first worker chose in advance."""
        if "stop" in self.requested and self.stop_at < 0 and self.step >= self._may_stop_from:
            self.stop_at = self.agree_on("stop-at", reason=self.reason)
        return 0 <= self.stop_at <= self.step

    def agree_on(self, kind: str, **info: Any) -> int:
        """Choose a step that no worker of the group has reached; send it to all of them, and return it."""
        n = self._cluster.nworkers_per_group
        at = self.step + (2 + self._ahead if n > 1 else 0)
        for i in range(1, n):
            self._channel.send(kind, Address.worker(self._address.group, i), step=at, info=info)
        for _ in range(1, n):
            self._channel.wait_for(f"r-{kind}")
        return at

    def end_early(self, reason: str) -> None:
        """End the training of the group before the current step, unless ``reason`` is empty.

        The first worker of the job also ends the training of all other groups.
        """
        if not reason or self.reason:
            return
        self.reason, self.stop_at = reason, self.step
        self.repeat_end(Address.worker(group, 0) for group in range(1, self._cluster.nworker_groups))

    def repeat_end(self, units: Iterable[Address]) -> None:
        """Inform the first workers of other groups in ``units``, perhaps again, if the training ends early.

        Any thread may call this method.
        """
        for unit in units:
            if self.is_first and self.reason and unit.kind == "worker" and unit.id == 0:
                self._channel.send("end", unit, info={"reason": self.reason})

    def accept(self, message: Message) -> None:
        """Accept a step or an end that another worker has chosen. Other threads call this method."""
        if message.kind == "end":
            self.reason = message.info["reason"]
            self.requested.add("stop")
        elif message.kind == "stop-at":
            self.reason, self.stop_at = message.info["reason"], message.step
        elif message.kind == "report-at":
            requester, step = message.info["request"]
            self.reports_at[message.step] = requester, step
        else:
            self.save_at[message.kind.removesuffix("-at")] = message.step
