"""Streams, events and graphs."""

from __future__ import annotations

import threading
from typing import Any

from cupy import _errors, _world

_local = threading.local()


def _stacks() -> dict[int, list[Stream]]:
    stacks: dict[int, list[Stream]] = _local.__dict__.setdefault("stacks", {})
    return stacks


def current(device: int) -> Stream:
    """Return the stream of this thread on a device."""
    stack = _stacks().setdefault(device, [])
    return stack[-1] if stack else _null(device)


_nulls: dict[int, Stream] = {}


def _null(device: int) -> Stream:
    if device not in _nulls:
        _nulls[device] = Stream(null=True, _device=device)
    return _nulls[device]


def get_current_stream(device_id: int = -1) -> Stream:
    return current(_world.current_device() if device_id < 0 else device_id)


class Event:
    """A place in the work of a stream."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        _world.current_device()
        self._timed = not disable_timing
        self._queue: _world.Queue | None = None
        self._ticket = 0
        self._capture: _world.Capture | None = None

    def record(self, stream: Stream | None = None) -> None:
        queue = (Stream.null if stream is None else stream)._queue
        with _world.LOCK:
            self._queue, self._capture = queue, queue.capture
            self._ticket = queue.ticket()
            if self._capture is not None:
                self._ticket = len(self._capture.ops)

    def synchronize(self) -> None:
        with _world.LOCK:
            self._refuse_captured()
            if self._queue is not None:
                self._queue.wait_until(self._ticket)
            _world.raise_faults()

    @property
    def done(self) -> bool:
        """Asking runs one piece of work, so that who asks until it is true gets there."""
        with _world.LOCK:
            self._refuse_captured()
            if self._queue is None:
                return True
            self._queue.run_until(min(self._ticket, self._queue.taken + 1))
            return self._queue.taken >= self._ticket

    def _refuse_captured(self) -> None:
        if self._capture is not None and self._capture.open:
            raise _errors.CUDARuntimeError(_errors.CAPTURED_EVENT)


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Return the milliseconds from one event to another: one for each piece of work between them."""
    with _world.LOCK:
        for event in (start_event, end_event):
            event._refuse_captured()
            if not event._timed or event._queue is None:
                raise _errors.CUDARuntimeError(_errors.INVALID_HANDLE, "an event without a time")
            if event._queue.taken < event._ticket:
                raise _errors.CUDARuntimeError(_errors.NOT_READY)
        return float(end_event._ticket - start_event._ticket)


class Stream:
    """A queue of work of the device that is current when it is made."""

    null: Stream

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: int | None = None,
        _device: int | None = None,
    ) -> None:
        self.device_id = _world.current_device() if _device is None else _device
        self.ptr = 0
        if null:
            self._queue = _world.device_queues(self.device_id)[0]
        else:
            self.ptr, self._queue = _world.new_queue(self.device_id)

    def __enter__(self) -> Stream:
        _stacks().setdefault(self.device_id, []).append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _stacks()[self.device_id].pop()

    def use(self) -> Stream:
        stack = _stacks().setdefault(self.device_id, [])
        if stack:
            stack.pop()
        stack.append(self)
        return self

    @property
    def done(self) -> bool:
        """Asking runs one piece of work, so that who asks until it is true gets there."""
        with _world.LOCK:
            queue = self._queue
            if queue.capture is not None:
                raise _errors.CUDARuntimeError(_errors.CAPTURE_UNSUPPORTED)
            queue.run_until(queue.taken + 1)
            return not queue.ops

    def synchronize(self) -> None:
        self._queue.synchronize()

    def record(self, event: Event | None = None) -> Event:
        event = Event(disable_timing=True) if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        with _world.LOCK:
            queue, other, ticket = self._queue, event._queue, event._ticket
            if event._capture is not None and event._capture.open:
                self._join(event._capture, other, ticket)
            elif queue.capture is not None and other is not None:
                raise _errors.CUDARuntimeError(_errors.CAPTURE_ISOLATION)
            elif other is not None and other is not queue:
                queue.put(_world.Op("waiting for an event", lambda: other.run_until(ticket)))

    def _join(self, capture: _world.Capture, other: _world.Queue | None, ticket: int) -> None:
        """Take part in a capture, or (its own stream) take back one that does."""
        if self._queue.capture not in (None, capture):
            raise _errors.CUDARuntimeError(_errors.CAPTURE_ISOLATION)
        if self._queue is capture.origin and other in capture.unjoined and capture.unjoined[other] <= ticket:
            del capture.unjoined[other]
        self._queue.capture = capture

    def begin_capture(self, mode: int | None = None) -> None:
        if self._queue.null:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        with _world.LOCK:
            if self._queue.capture is not None:
                raise _errors.CUDARuntimeError(_errors.CAPTURE_UNSUPPORTED)
            self._queue.capture = _world.Capture(self._queue)

    def end_capture(self) -> Graph:
        with _world.LOCK:
            capture = self._queue.capture
            if capture is None or capture.origin is not self._queue:
                raise _errors.CUDARuntimeError(_errors.INVALID_VALUE, "this stream did not begin a capture")
            capture.open = False
            for queue in _world.device_queues(self.device_id):
                if queue.capture is capture:
                    queue.capture = None
            if capture.unjoined:
                raise _errors.CUDARuntimeError(_errors.CAPTURE_UNJOINED)
            return Graph(capture.ops, self.device_id)

    def is_capturing(self) -> bool:
        return self._queue.capture is not None


class Graph:
    """What a capture recorded, to be run as often as one likes."""

    def __init__(self, ops: list[_world.Op], device: int) -> None:
        self._ops = ops
        self._device = device

    def launch(self, stream: Stream | None = None) -> None:
        queue = (get_current_stream() if stream is None else stream)._queue
        if queue.device != self._device:
            raise _errors.CUDARuntimeError(_errors.INVALID_HANDLE, f"the graph is of device {self._device}")
        with _world.LOCK:
            for op in self._ops:
                queue.put(op)

    def upload(self, stream: Stream | None = None) -> None:
        """Nothing: a graph is always at hand."""


class _NullStream:
    """`Stream.null`: the default stream of the current device."""

    def __get__(self, instance: Any, owner: Any) -> Stream:
        return _null(_world.current_device())


Stream.null = _NullStream()  # type: ignore[assignment]
