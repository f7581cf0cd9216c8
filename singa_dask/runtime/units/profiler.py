"""Measure the layers and waits of a worker, and the updates of a server, in profiled steps.

A `Trace` collects the spans of the units of one process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.cancellation import Cancellation
from singa_dask.comm.message import Message
from singa_dask.conf import Phase
from singa_dask.layers import Layer
from singa_dask.runtime.planning.nets import Nets
from singa_dask.runtime.units.server import Server

logger = logging.getLogger(__name__)


DIRECTIONS = ("forward", "backward")
MAX_SPANS = 50_000
"""Maximum number of spans that a process keeps. Later spans are only counted."""

Span = list[Any]


class Trace:
    """Collects the spans (timed sections) of one process, and emits them as an event ``profile``.

    Thread-safe.

    Times are values of ``time.monotonic_ns``, in nanoseconds. A span is a list of track, name, kind, start, duration,
    arguments, and an arrow. An arrow connects the spans of sending and of receiving a message: it is ``"out <id>"``
    on the sender and ``"in <id>"`` on the receiver, else an empty string.

    Parameters
    ----------
    process : int
        Number of this process in the job.
    emit : callable
        Called with each event ``profile``, which has these keys. ``process``; ``began``: when ``time.monotonic_ns`` was
        0 on this host, in seconds since the epoch; ``spans``: all spans, including the spans of earlier events;
        ``recorded``: the number of spans, including dropped ones.
    """

    def __init__(self, process: int, emit: Callable[[dict[str, Any]], object]) -> None:
        self._process = process
        self._emit = emit
        self._spans: list[Span] = []
        self._n_recorded = self._n_passed_on = 0
        # replace this set instead of changing it, because other threads read it without the lock
        self._windows: frozenset[range] = frozenset()
        self._n_recording = 0
        # Process -> number of messages sent to it or received from it. The number identifies a message on both ends,
        # because each message arrives exactly once and in order.
        self._n_sent: Counter[int] = Counter()
        self._n_received: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._flushing = threading.Lock()

    def open(self, window: range) -> None:
        """Add a range of steps of a worker group to the steps to record."""
        with self._lock:
            self._windows |= {window}

    def covers(self, step: int) -> bool:
        """Return whether a step is to be recorded."""
        return any(step in window for window in self._windows)

    def is_past(self, step: int) -> bool:
        """Return whether a step is after all steps to be recorded."""
        return all(step >= window.stop for window in self._windows)

    def record_all(self, on: bool) -> None:
        """Start or stop recording, for one worker, the messages that belong to no step."""
        with self._lock:
            self._n_recording += 1 if on else -1

    def add(self, track: str, name: str, kind: str, start: int, shortest: int = 0, **arguments: Any) -> None:
        """Add a span that ends now, unless it is shorter than ``shortest`` nanoseconds."""
        duration = time.monotonic_ns() - start
        if duration >= shortest:
            self._add([track, name, kind, start, duration, arguments, ""])

    def _add(self, span: Span) -> None:
        with self._lock:
            self._n_recorded += 1
            if len(self._spans) < MAX_SPANS:
                self._spans.append(span)

    def send(self, process: int, message: Message, send: Callable[[], None]) -> None:
        """Call ``send`` to send a message to another process, and record the time."""
        with self._sending:
            start = time.monotonic_ns()
            send()
            self._n_sent[process] += 1
            arrow = f"out {self._process}-{process}-{self._n_sent[process]}"
            self._add_message("messages sent", message, start, arrow)

    def receive(self, process: int, message: Message, deliver: Callable[[], None]) -> None:
        """Call ``deliver`` to deliver a message from another process, and record the time."""
        start = time.monotonic_ns()
        self._n_received[process] += 1
        arrow = f"in {process}-{self._process}-{self._n_received[process]}"
        deliver()
        self._add_message("messages received", message, start, arrow)

    def forget(self, process: int) -> None:
        """Restart the counts of messages exchanged with a process that is replaced."""
        with self._sending:
            del self._n_sent[process], self._n_received[process]

    def _add_message(self, track: str, message: Message, start: int, arrow: str) -> None:
        first = message.parts[0] if message.parts else message
        if not (self.covers(first.step) if first.step >= 0 else self._n_recording):
            return
        facts: dict[str, Any] = {"from": str(message.src), "to": str(message.dst), "bytes": message.n_bytes}
        if first.step >= 0:
            facts["step"] = first.step
        if len(message.parts) > 1:
            facts["messages"] = len(message.parts)
        self._add([track, first.kind, "message", start, time.monotonic_ns() - start, facts, arrow])

    def flush(self) -> None:
        """Emit all spans, if there are new ones since the last event."""
        with self._flushing:
            with self._lock:
                spans, n_before, self._n_passed_on = list(self._spans), self._n_passed_on, self._n_recorded
            if self._n_passed_on > n_before:
                began = time.time() - time.monotonic()
                facts = {"began": began, "recorded": self._n_passed_on, "spans": spans}
                self._emit({"event": "profile", "process": self._process, **facts})


SHORTEST_NS = 10_000
"""Waits, tests and checkpoints that are shorter than this are not recorded, because there was nothing to do."""


class Profiler:
    """Records the profiled steps of one worker.

    On a GPU a profiled step is slower than other steps, because the profiler waits for the end of each layer, and
    kernels are not captured in a CUDA graph.

    Parameters
    ----------
    unit : str
        Name of the worker.
    trace : Trace or None
        Trace of the process; None if the job is not profiled.
    window : range
        The steps to record.
    times_s : callable
        Returns the durations that `WorkerMetrics.times_s` returns.
    """

    def __init__(
        self,
        unit: str,
        nets: Nets,
        cancellation: Cancellation,
        trace: Trace | None,
        window: range,
        times_s: Callable[[], tuple[float, float, float]],
    ) -> None:
        self._unit = unit
        self._nets = nets
        self._ops = nets[Phase.TRAIN].ops
        self._cancellation = cancellation
        self._trace = trace or Trace(0, lambda event: None)
        self._window = window
        self._times_s = times_s
        self._is_on = False
        self._step = -1
        self._in_step = False
        self._marked = 0
        self._before = (0.0, 0.0, 0.0)
        # (start, duration) of each wait in this step, in nanoseconds
        self._waits: list[tuple[int, int]] = []
        # for each step: milliseconds by (layer, direction), and milliseconds by part of the step
        self._layers: list[defaultdict[tuple[str, str], float]] = []
        self._parts: list[dict[str, float]] = []
        self._trace.open(window)

    def begin(self, step: int) -> None:
        """Begin a step. The tests and checkpoints before its training part belong to it."""
        self._step = step
        self._switch(step in self._window)
        self._marked = time.monotonic_ns()
        if step == self._window.stop + 1:  # by now, servers have answered the gradients of the last recorded step
            self._trace.flush()

    def end(self) -> None:
        """Stop recording."""
        self._switch(False)

    def _switch(self, on: bool) -> None:
        if on != self._is_on:
            self._is_on = on
            self._trace.record_all(on)
            self._cancellation.on_waited = self._on_waited if on else None
            for net in self._nets.each():
                net.on_layer = self._on_layer if on else None

    def mark(self, name: str) -> None:
        """Record the time since the previous mark as a span with this name, unless it is very short."""
        if self._is_on:
            self._trace.add(self._unit, name, name, self._marked, SHORTEST_NS)
            self._marked = time.monotonic_ns()

    def begin_step(self) -> None:
        """Begin the training part of a step."""
        if self._is_on:
            self._waits.clear()
            self._layers.append(defaultdict(float))
            self._before = self._times_s()
            self._in_step = True

    def end_step(self) -> None:
        """Record the training part of a step."""
        if not self._is_on:
            return
        self._in_step = False
        self._ops.synchronize()
        total = (time.monotonic_ns() - self._marked) / 1e6
        self._trace.add(self._unit, f"step {self._step}", "step", self._marked)
        _, data, params = (1e3 * (now - then) for now, then in zip(self._times_s(), self._before, strict=True))
        others = max(sum(duration for _, duration in self._waits) / 1e6 - data - params, 0.0)
        compute = max(total - data - params - others, 0.0)
        self._parts.append({"compute_ms": compute, "data_ms": data, "params_ms": params, "workers_ms": others})

    def _on_layer(self, layer: Layer, direction: str, start: int) -> None:
        """Record the computation of a layer. The copies of a layer in an unrolled net count as one layer."""
        self._ops.synchronize()
        if self._in_step:
            waited = sum(duration for since, duration in self._waits if since >= start)
            self._layers[-1][layer.conf_name, direction] += (time.monotonic_ns() - start - waited) / 1e6
        self._trace.add(self._unit, f"{layer.conf_name} {direction}", direction, start, step=self._step)

    def _on_waited(self, what: str, since: float) -> None:
        """Record a wait that ends now; ``since`` is a value of ``time.monotonic``."""
        start = int(since * 1e9)
        self._waits.append((start, time.monotonic_ns() - start))
        self._trace.add(self._unit, what, "wait", start, SHORTEST_NS)

    def summary(self) -> dict[str, Any]:
        """Return medians over the recorded steps, in milliseconds; empty if no step was recorded.

        Returns
        -------
        dict
            ``layers`` has ``forward_ms`` and ``backward_ms`` of each layer, without waits. ``step_parts`` has
            ``compute_ms``, and the waits ``data_ms``, ``params_ms`` and, in a partitioned net, ``workers_ms``.
        """
        if not self._parts:
            return {}
        steps = self._layers[: len(self._parts)]  # an early stop may have interrupted the last step
        layers = {
            name: {f"{direction}_ms": _median(step[name, direction] for step in steps) for direction in DIRECTIONS}
            for name in dict.fromkeys(name for step in steps for name, _ in step)
        }
        parts = {name: _median(step[name] for step in self._parts) for name in self._parts[0]}
        self._log_slow(layers, sum(parts.values()))
        if not self._nets[Phase.TRAIN].is_partitioned:
            del parts["workers_ms"]
        return {"layers": layers, "step_parts": parts}

    def _log_slow(self, layers: Mapping[str, Mapping[str, float]], step_ms: float) -> None:
        """Warn about a user's own layer that calls no kernels and takes more than half of a step."""
        own = {
            layer.conf_name: type(layer)
            for layer in self._nets[Phase.TRAIN].layers
            if not layer.speed.capturable and not type(layer).__module__.startswith("singa_dask.")
        }
        for name, cls in own.items():
            share = sum(layers.get(name, {}).values()) / step_ms
            if share > 0.5:
                logger.warning(
                    "layer %s: %s takes %.0f %% of a step, with functions of numpy instead of kernels. If it computes "
                    "value by value, extend singa_dask.Elementwise, else call kernels: self.ops.",
                    name, f"{cls.__module__}.{cls.__name__}", 100 * share,
                )  # fmt: skip


def _median(values: Iterable[float]) -> float:
    return round(float(np.median(list(values))), 4)


def profile_server(
    server: Server, trace: Trace, windows: Collection[range], names: Sequence[str]
) -> Callable[[Message], list[Message]]:
    """Return a handler that passes messages to a server, and records them in profiled steps.

    Parameters
    ----------
    windows : collection of range
        The steps to record, one range for each worker group that the server serves.
    names : sequence of str
        Name of each param by its index.
    """
    past: set[int] = set()
    for window in windows:
        trace.open(window)

    def handle(message: Message) -> list[Message]:
        first = message.parts[0] if message.parts else message
        if not trace.covers(first.step):
            if first.kind == "update" and trace.is_past(first.step - 1) and first.info["group"] not in past:
                past.add(first.info["group"])
                if len(past) == len(windows):  # all worker groups have passed the steps to record
                    trace.flush()
            return server.handle(message)
        start = time.monotonic_ns()
        answers = server.handle(message)
        params = sorted({names[part.param] for part in message.parts or (message,) if part.param >= 0})
        name = f"{first.kind} {params[0] if len(params) == 1 else f'{len(params)} params'}"
        facts: dict[str, Any] = {"step": first.step, "from": str(message.src), "params": ", ".join(params)}
        trace.add(str(server.address), name, first.kind, start, **facts)
        return answers

    return handle
