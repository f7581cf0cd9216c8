"""ServerProfiler: records what a server does with messages of the steps that are profiled."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from singa_dask.comm import Message
from singa_dask.runtime.units.server import Server
from singa_dask.runtime.units.trace import Trace

__all__ = ["ServerProfiler"]


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
