"""Trace: what the units of one process do in the steps that are profiled."""

from __future__ import annotations

import base64
import json
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from singa_dask.comm import Message

__all__ = ["Trace"]

MAX_SPANS = 50_000
"""Spans that a process keeps until it sends them; those after them are counted and dropped."""

Span = list[Any]


class Trace:
    """Collects spans of time of one process, and sends them as events ``profile``.

    Times are those of ``time.monotonic_ns``, in nanoseconds. A span is a list: track, name, kind, start and duration in
    nanoseconds, arguments, and the end of an arrow, ``"out <id>"`` or ``"in <id>"``, or nothing. All methods are called
    from any thread.

    Parameters
    ----------
    process : int
    emit : callable
        Takes an event, a dict that msgpack can serialise. ``profile`` has ``process``; ``began``, seconds since the
        epoch at which ``time.monotonic_ns`` was 0 on the clock of this host; ``spans``, JSON that zlib has compressed,
        as base64; ``dropped``.
    max_spans : int
    """

    def __init__(self, process: int, emit: Callable[[dict[str, Any]], None], max_spans: int = MAX_SPANS) -> None:
        self._process = process
        self._emit = emit
        self._max_spans = max_spans
        self._spans: list[Span] = []
        self._n_dropped = 0
        # replaced, never changed: others look at it without the lock
        self._windows: frozenset[range] = frozenset()
        self._n_recording = 0
        # messages to and from each process; both ends count alike, as each comes once and in order
        self._n_sent: Counter[int] = Counter()
        self._n_received: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._sending = threading.Lock()

    def open(self, window: range) -> None:
        """Record what belongs to these steps of a worker group."""
        with self._lock:
            self._windows |= {window}

    def covers(self, step: int) -> bool:
        """Return whether a step of some worker group is one to record."""
        return any(step in window for window in self._windows)

    def is_past(self, step: int) -> bool:
        """Return whether a step is after those to record."""
        return all(step >= window.stop for window in self._windows)

    def record_all(self, on: bool) -> None:
        """Begin to record messages that belong to no step, for one worker, or end it."""
        with self._lock:
            self._n_recording += 1 if on else -1

    # -- spans ---------------------------------------------------------------------------------------------

    def add(self, track: str, name: str, kind: str, start: int, shortest: int = 0, **given: Any) -> None:
        """Add a span that ends now, if it is not shorter than ``shortest``; ``given`` are its arguments."""
        duration = time.monotonic_ns() - start
        if duration >= shortest:
            self._add([track, name, kind, start, duration, given, ""])

    def _add(self, span: Span) -> None:
        with self._lock:
            if len(self._spans) < self._max_spans:
                self._spans.append(span)
            else:
                self._n_dropped += 1

    # -- messages ------------------------------------------------------------------------------------------

    def send(self, process: int, message: Message, send: Callable[[], None]) -> None:
        """Send a message to another process, and record that."""
        with self._sending:
            start = time.monotonic_ns()
            send()
            self._n_sent[process] += 1
            arrow = f"out {self._process}-{process}-{self._n_sent[process]}"
            self._add_message("messages sent", message, start, arrow)

    def receive(self, process: int, message: Message, deliver: Callable[[], None]) -> None:
        """Deliver a message from another process, and record that."""
        start = time.monotonic_ns()
        self._n_received[process] += 1
        arrow = f"in {process}-{self._process}-{self._n_received[process]}"
        deliver()
        self._add_message("messages received", message, start, arrow)

    def forget(self, process: int) -> None:
        """Count the messages to and from a process anew, which is replaced by another."""
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

    # -- the end -------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what is there."""
        with self._lock:
            spans, self._spans = self._spans, []
            n_dropped, self._n_dropped = self._n_dropped, 0
        if not spans:
            return
        # one short text: the scheduler keeps it, passes it on, and must not be held up by it
        content = base64.b64encode(zlib.compress(json.dumps(spans, separators=(",", ":")).encode(), 1)).decode()
        began = time.time() - time.monotonic()
        self._emit(
            {"event": "profile", "process": self._process, "began": began, "dropped": n_dropped, "spans": content}
        )
