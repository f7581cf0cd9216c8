"""Reporter: report a worker's position and the states of its layers, for checkpoints."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from singa_dask.comm.message import Address, Message
from singa_dask.runtime.checkpoints.checkpoint import Save
from singa_dask.runtime.checkpoints.layer_states import LayerState, write_states
from singa_dask.runtime.units.pending import Event
from singa_dask.runtime.units.run_state import Channel, RunState
from singa_dask.runtime.units.trainer import Trainer

FIRST = Address.worker(0, 0)

SaveLater = Callable[[int, Mapping[str, Any], Callable[[Save], Event], Callable[[Event], None]], None]
"""(step, where, write, then) calls ``write`` in the background with a `Save` for ``where``, a ``url`` or memory.

``then`` takes its result, the description of a part, or an ``error``."""


class _Report(NamedTuple):
    position: dict[str, Any]
    states: Sequence[LayerState]


class Reporter:
    """Sends the reports of one worker.

    The first group takes checkpoints at steps that all of its workers know. Another group may be asked for reports at
    any time. Its workers agree on the step of each report and on the request that it answers, because a request may
    have reached only some of them if its sender was lost. The report at the end of the training answers all remaining
    requests. No other report answers requests for the last checkpoint.

    A checkpoint is consistent: before a worker reports, servers have answered all its gradients, and the worker begins
    no step before the servers have copied their slices (``taken``). If the first worker is replaced, its replacement
    also releases the workers that wait because of earlier requests.
    """

    def __init__(self, trainer: Trainer, state: RunState, channel: Channel, save_later: SaveLater) -> None:
        self._trainer = trainer
        self._state = state
        self._channel = channel
        self._save_later = save_later
        self._requests: dict[tuple[str, int], Message] = {}
        self._reports: dict[tuple[str, int], _Report] = {}
        self._last: _Report | None = None
        # requests that were answered, because a request may be repeated when units are replaced
        self._answered: deque[tuple[str, int]] = deque(maxlen=8)
        self._held: tuple[str, int] | None = None
        self._first_step = state.step
        self._lock = threading.Lock()
        if channel.address.group:
            channel.on("taken", self._release)

    def report_now(self, step: int, where: Mapping[str, Any]) -> None:
        """Report for the checkpoint of a step. States are copied now and saved in the background."""
        self._send(self._make(), step, where)

    def _make(self) -> _Report:
        return _Report(self._trainer.position(self._state.step), self._trainer.states())

    def _send(self, report: _Report, step: int, where: Mapping[str, Any]) -> None:
        def send(saved: Event) -> None:
            info = {"requester": where["requester"], "position": report.position, **saved}
            self._channel.send("r-progress", FIRST, step=step, info=info)

        if not report.states:
            send({"states": None})
            return
        here = self._channel.address

        def write(save: Save) -> Event:
            return {"states": write_states(save, here.group, here.id, report.states)}

        self._save_later(step, where, write, send)

    def accept(self, request: Message) -> None:
        """Accept a request of the first worker. Called in other threads."""
        requester, step = request.info["requester"], request.step
        with self._lock:
            if (requester, step) in self._answered:
                return
            # drop requests of a worker that was replaced
            self._requests = {key: each for key, each in self._requests.items() if key[0] == requester}
            self._requests[requester, step] = request
        self._answer()

    def is_due(self) -> bool:
        """Return whether a report is due before this step. The first worker of the group chooses the step.

        No report is due before the first step, because some servers may already have updates of a group that restarts.
        """
        state = self._state
        if self._requests and self._channel.address.id == 0 and not state.reports_at and state.step > self._first_step:
            with self._lock:
                request = next((key for key, each in self._requests.items() if not each.info.get("rescue")), None)
            if request is not None:
                state.choose_report(request)
        return state.step in state.reports_at

    def report(self, last: bool = False) -> None:
        """Create a report, and send it once it is requested. Unless it is the last one, wait for the servers."""
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
        """Report again to the first worker that this one waits, if it does. Any thread may call this."""
        held = self._held
        if held is not None:
            self._channel.send("arrived", FIRST, step=held[1], info={"requester": held[0]})

    def _release(self, message: Message) -> None:
        if self._held == (message.info["requester"], message.step):
            self._held = None

    def _answer(self) -> None:
        """Send the reports that exist and are requested."""
        while True:
            with self._lock:
                key = next((key for key in self._requests if self._last or key in self._reports), None)
                if key is None:
                    return
                request, report = self._requests.pop(key), self._reports.pop(key, self._last)
                self._answered.append(key)
            assert report is not None
            if report is self._last:
                self._channel.send("arrived", FIRST, step=request.step, info={"requester": key[0]})
            self._send(report, request.step, request.info)
