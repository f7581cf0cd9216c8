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
    save_states : callable
    """

    def __init__(self, trainer: Trainer, state: RunState, channel: Channel, save_states: SaveStates) -> None:
        self._trainer = trainer
        self._state = state
        self._channel = channel
        self._save_states = save_states
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
        def send(saved: dict[str, Any]) -> None:
            info = {"term": where["term"], "position": report.position, **saved}
            self._channel.send("r-progress", FIRST, step=step, info=info)

        if report.states:
            self._save_states(step, where, report.states, send)
        else:
            send({"states": None})

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
