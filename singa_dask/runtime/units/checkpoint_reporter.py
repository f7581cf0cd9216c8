"""CheckpointReporter: report a worker's position and the states of its layers, for checkpoints."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from singa_dask.comm.message import Address, Message
from singa_dask.runtime.checkpoints.checkpoint import Save
from singa_dask.runtime.checkpoints.layer_states import LayerState, write_states
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.pending_checkpoints import Event
from singa_dask.runtime.units.run_state import RunState
from singa_dask.runtime.units.saving import Saving
from singa_dask.runtime.units.trainer import Trainer

FIRST = Address.worker(0, 0)


class _Report(NamedTuple):
    position: dict[str, Any]
    states: Sequence[LayerState]


class CheckpointReporter:
    """Sends the reports of one worker for checkpoints and snapshots.

    A report has the position of the worker and the states of its layers. The first worker group reports at steps that
    all its workers know in advance. Other groups get requests for reports at any time. The workers of such a group
    agree on the step of each report, and on the request that the report answers. The agreement is needed because a
    request whose sender was lost may have reached only some workers. The report at the end of the training answers all
    remaining requests. Requests for the last checkpoint are answered only by this report.

    Reports keep checkpoints consistent. A worker reports only after servers have answered all its gradients. The worker
    begins its next step only after the message ``taken``, when the servers have copied their slices. If the first
    worker is replaced, its replacement also releases workers that wait because of earlier requests.
    """

    def __init__(self, trainer: Trainer, state: RunState, channel: Channel, saving: Saving) -> None:
        self._trainer = trainer
        self._state = state
        self._channel = channel
        self._saving = saving
        self._requests: dict[tuple[str, int], Message] = {}
        self._reports: dict[tuple[str, int], _Report] = {}
        self._last: _Report | None = None
        # answered requests, to ignore a request that is repeated after units were replaced
        self._answered: deque[tuple[str, int]] = deque(maxlen=8)
        self._held: tuple[str, int] | None = None
        self._first_step = state.step
        self._lock = threading.Lock()
        if channel.address.group:
            channel.on("taken", self._release)

    def report_now(self, step: int, where: Mapping[str, Any]) -> None:
        """Send a report for the checkpoint of a step.

        Layer states are copied now, and saved in the background.
        """
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

        self._saving.later(step, where, write, send)

    def accept(self, request: Message) -> None:
        """Accept a request of the first worker. Other threads call this method."""
        requester, step = request.info["requester"], request.step
        with self._lock:
            if (requester, step) in self._answered:
                return
            # drop requests of an earlier first worker, which was replaced
            self._requests = {key: each for key, each in self._requests.items() if key[0] == requester}
            self._requests[requester, step] = request
        self._answer()

    def is_due(self) -> bool:
        """Return whether a report is due before this step. The first worker of the group chooses the step.

        No report is due before the first step: if the group has restarted, some servers may already have applied its
        update of that step.
        """
        state = self._state
        if self._requests and self._channel.address.id == 0 and not state.reports_at and state.step > self._first_step:
            with self._lock:
                request = next((key for key, each in self._requests.items() if not each.info.get("rescue")), None)
            if request is not None:
                state.reports_at[state.agree_on("report-at", request=list(request))] = request
        return state.step in state.reports_at

    def report(self, last: bool = False) -> None:
        """Create a report, and send it once it is requested.

        Then wait until the servers have copied their slices.

        The ``last`` report, at the end of the training, does not wait.
        """
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
        """Send ``arrived`` to the first worker again, if this worker waits for copies of servers.

        Any thread may call this method.
        """
        held = self._held
        if held is not None:
            self._channel.send("arrived", FIRST, step=held[1], info={"requester": held[0]})

    def _release(self, message: Message) -> None:
        if self._held == (message.info["requester"], message.step):
            self._held = None

    def _answer(self) -> None:
        """Send each report that exists and was requested."""
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
