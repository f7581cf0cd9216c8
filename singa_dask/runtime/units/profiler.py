"""Profiler: measures the layers and waits of a worker, or the updates of a server, in the steps that are profiled."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.comm import Message
from singa_dask.conf import Phase
from singa_dask.gate import Gate
from singa_dask.layers import Layer
from singa_dask.net import NeuralNet
from singa_dask.runtime.units.server import Server
from singa_dask.runtime.units.trace import Trace

__all__ = ["Profiler", "ServerProfiler"]

SHORTEST_NS = 10_000
"""Waits, tests and checkpoints that take less are not shown: there was nothing to do."""


class Profiler:
    """Records the steps of one worker that are in a window, and nothing before and after it.

    On a GPU each layer is waited for, and kernels are not captured, in these steps: they are slower than others.

    Parameters
    ----------
    unit : str
        The worker.
    nets : mapping of Phase to NeuralNet
    gate : Gate
        Of the worker.
    trace : Trace or None
        Of its process; None if the job is not profiled.
    window : range
        The steps.
    times_s : callable
        See `Trainer.times_s`.
    """

    def __init__(
        self,
        unit: str,
        nets: Mapping[Phase, NeuralNet],
        gate: Gate,
        trace: Trace | None,
        window: range,
        times_s: Callable[[], tuple[float, float, float]],
    ) -> None:
        self._unit = unit
        self._nets = nets
        self._ops = nets[Phase.TRAIN].ops
        self._gate = gate
        self._trace = trace
        self._window = window
        self._times_s = times_s
        self._is_on = False
        self._step = -1
        self._in_step = False
        self._marked = 0
        self._before = (0.0, 0.0, 0.0)
        # of this step: start and duration, in nanoseconds
        self._waits: list[tuple[int, int]] = []
        self._layers: dict[str, dict[str, list[float]]] = {}
        self._parts: dict[str, list[float]] = {}
        if trace is not None:
            trace.open(window)

    def begin(self, step: int) -> None:
        """Begin what belongs to a step: tests and checkpoints before it, and the step itself."""
        if self._trace is None:
            return
        self._step = step
        if (step in self._window) != self._is_on:
            self._switch(self._trace, not self._is_on)
        self._marked = time.monotonic_ns()
        if step == self._window.stop + 1:  # the answers to the last gradients have come by now
            self._trace.flush()

    def end(self) -> None:
        """Record nothing from now on."""
        if self._trace is not None and self._is_on:
            self._switch(self._trace, False)

    def _switch(self, trace: Trace, on: bool) -> None:
        self._is_on = on
        trace.record_all(on)
        self._gate.on_waited = self._on_waited if on else None
        for net in self._nets.values():
            net.on_layer = self._on_layer if on else None

    # -- what is measured ----------------------------------------------------------------------------------

    def mark(self, name: str) -> None:
        """Record what was done since the last mark under a name, if it has taken long enough to be seen."""
        if self._is_on:
            assert self._trace is not None
            self._trace.add(self._unit, name, name, self._marked, SHORTEST_NS)
            self._marked = time.monotonic_ns()

    def begin_step(self) -> None:
        """Begin to train."""
        if self._is_on:
            self._waits.clear()
            self._before = self._times_s()
            self._in_step = True

    def end_step(self) -> None:
        """Record a step of training."""
        if self._is_on:
            self._add_step()

    def _add_step(self) -> None:
        assert self._trace is not None
        self._in_step = False
        self._ops.synchronize()
        total = (time.monotonic_ns() - self._marked) / 1e6
        self._trace.add(self._unit, f"step {self._step}", "step", self._marked)
        _, data, params = (1e3 * (now - then) for now, then in zip(self._times_s(), self._before, strict=True))
        others = max(sum(duration for _, duration in self._waits) / 1e6 - data - params, 0.0)
        compute = max(total - data - params - others, 0.0)
        for name, ms in {"compute": compute, "data": data, "params": params, "workers": others}.items():
            self._parts.setdefault(f"{name}_ms", []).append(ms)
        for times in self._layers.values():
            for each in times.values():
                each.append(0.0)

    def _on_layer(self, layer: Layer, direction: str, start: int) -> None:
        """Record that a layer was computed; also each copy of it in an unrolled net."""
        assert self._trace is not None
        self._ops.synchronize()
        if self._in_step:
            duration = time.monotonic_ns() - start - sum(each for since, each in self._waits if since >= start)
            times = self._layers.setdefault(layer.conf_name, {"forward": [0.0], "backward": [0.0]})
            times[direction][-1] += duration / 1e6
        self._trace.add(self._unit, f"{layer.conf_name} {direction}", direction, start, step=self._step)

    def _on_waited(self, what: str, since: float) -> None:
        """Record a wait that ends now; ``since`` is a value of ``time.monotonic``."""
        assert self._trace is not None
        start = int(since * 1e9)
        self._waits.append((start, time.monotonic_ns() - start))
        self._trace.add(self._unit, what, "wait", start, SHORTEST_NS)

    def summary(self) -> dict[str, Any]:
        """Return the medians of the steps that were recorded, in milliseconds; empty if there are none.

        ``layers`` has ``forward_ms`` and ``backward_ms`` of each layer, without its waits. ``step_parts`` has
        ``compute_ms``, ``data_ms``, ``params_ms``, and where workers compute parts of one net ``workers_ms``, in which
        they wait for each other.
        """
        if not self._parts:
            return {}
        layers = {
            name: {f"{direction}_ms": _median(ms[:-1]) for direction, ms in times.items()}
            for name, times in self._layers.items()
        }
        parts = {name: _median(ms) for name, ms in self._parts.items()}
        if not self._nets[Phase.TRAIN].is_partitioned:
            del parts["workers_ms"]
        return {"layers": layers, "step_parts": parts}


def _median(values: Sequence[float]) -> float:
    return round(float(np.median(values)), 4)


class ServerProfiler:
    """Hands messages to a server, and records those that belong to a step that is profiled.

    Parameters
    ----------
    server : Server
    trace : Trace
        Of its process.
    windows : collection of range
        Steps to record, of each worker group that it serves.
    names : sequence of str
        Params in the order of their indices; see `JobPlan`.
    """

    def __init__(self, server: Server, trace: Trace, windows: Collection[range], names: Sequence[str]) -> None:
        self._server = server
        self._trace = trace
        self._names = names
        self._n_groups = len(windows)
        self._past: set[int] = set()
        for window in windows:
            trace.open(window)

    def handle(self, message: Message) -> list[Message]:
        """Take one message, as `Server.handle`."""
        first = message.parts[0] if message.parts else message
        if not self._trace.covers(first.step):
            if first.kind == "update" and self._trace.is_past(first.step - 1):
                self._end(first.info["group"])
            return self._server.handle(message)
        start = time.monotonic_ns()
        answers = self._server.handle(message)
        params = sorted({self._names[part.param] for part in message.parts or (message,) if part.param >= 0})
        name = f"{first.kind} {params[0] if len(params) == 1 else f'{len(params)} params'}"
        facts: dict[str, Any] = {"step": first.step, "from": str(message.src), "params": ", ".join(params)}
        self._trace.add(str(self._server.address), name, first.kind, start, **facts)
        return answers

    def _end(self, group: int) -> None:
        """Send what was recorded once every worker group is past the steps to record."""
        if group not in self._past:
            self._past.add(group)
            if len(self._past) == self._n_groups:
                self._trace.flush()
