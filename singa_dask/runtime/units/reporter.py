"""Reporter: tells the first worker, for a checkpoint, where another worker stands and what its layers keep."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from singa_dask.comm import Address, Message
from singa_dask.runtime.checkpoints.layer_states import LayerState
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.run_state import RunState
from singa_dask.runtime.units.trainer import Trainer

__all__ = ["Reporter", "SaveStates"]

FIRST = Address.worker(0, 0)


SaveStates = Callable[[int, Mapping[str, Any], Sequence[LayerState], Callable[[dict[str, Any]], None]], None]
"""(step, where, states, then) saves in the background, and calls ``then`` with ``states``, their description, or
``error``. ``where`` has ``url``, or ``snapshot``."""


class _Report(NamedTuple):
    position: dict[str, Any]
    states: Sequence[LayerState]


class Reporter:
    """Sends the reports of one worker.

    The first group takes checkpoints at steps that all of its workers know. In another group the workers are asked for
    reports at any time; the group agrees on the step of each. The n-th report answers the n-th request, and the last
    report, made at the end, all requests that are left.

    Parameters
    ----------
    trainer : Trainer
    state : RunState
    channel : Channel
    save_states : callable
    """

    def __init__(self, trainer: Trainer, state: RunState, channel: Channel, save_states: SaveStates) -> None:
        self._trainer = trainer
        self._state = state
        self._channel = channel
        self._save_states = save_states
        self._requests: deque[Message] = deque()
        self._reports: deque[_Report] = deque()
        self._last: _Report | None = None
        self._lock = threading.Lock()

    def report_now(self, step: int, where: Mapping[str, Any]) -> None:
        """Report for the checkpoint of a step; states are copied now and saved in the background."""
        self._send(self._make(), step, where)

    def _make(self) -> _Report:
        return _Report(self._trainer.position(self._state.step), self._trainer.states())

    def _send(self, report: _Report, step: int, where: Mapping[str, Any]) -> None:
        def send(saved: dict[str, Any]) -> None:
            self._channel.send("r-progress", FIRST, step=step, info={"position": report.position, **saved})

        if report.states:
            self._save_states(step, where, report.states, send)
        else:
            send({"states": None})

    # -- in other groups than the first --------------------------------------------------------------------

    def accept(self, request: Message) -> None:
        """Take the request of the first worker; called from other threads."""
        with self._lock:
            self._requests.append(request)
        self._answer()

    def is_due(self) -> bool:
        """Return whether a report is due before this step; the first worker of a group chooses the step of one."""
        state = self._state
        if self._requests and self._channel.address.id == 0 and state.checkpoint_at < state.step:
            state.choose_checkpoint()
        return state.step == state.checkpoint_at

    def report(self, last: bool = False) -> None:
        """Make a report; send it once it is asked for."""
        report = self._make()
        with self._lock:
            if last:
                self._last = report
            else:
                self._reports.append(report)
        self._answer()

    def _answer(self) -> None:
        """Send the reports that are made and were asked for."""
        while True:
            with self._lock:
                if not self._requests or not (self._reports or self._last):
                    return
                request = self._requests.popleft()
                report = self._reports.popleft() if self._reports else self._last
            assert report is not None
            self._send(report, request.step, request.info)
