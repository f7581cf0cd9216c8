"""The devices of a process, its queues of work, and when that work runs: as late as CUDA allows.

A queue is what is behind a stream. Work that is put into it runs in order, when somebody waits for it; waiting for an
event of another queue runs that one up to the event. With SIMULATED_ORDER=reverse every second queue of a device
runs its work at once: the other end of what the hardware may do.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cupy import _errors

LOCK = threading.RLock()
# As on hardware: who enqueues more than this waits for the oldest.
DEEPEST_QUEUE = 1024
FAULTS: list[str] = []
_local = threading.local()


def reverse() -> bool:
    return os.environ.get("SIMULATED_ORDER") == "reverse"


def device_count() -> int:
    """Count the devices that this process sees, as CUDA_VISIBLE_DEVICES has it."""
    there = int(os.environ.get("SIMULATED_DEVICES", "2"))
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if seen is not None:
        count = 0
        for part in seen.split(","):
            if not part.strip().isdigit() or int(part) >= there:
                break
            count += 1
        there = count
    if there == 0:
        raise _errors.CUDARuntimeError(_errors.NO_DEVICE)
    return there


def current_device() -> int:
    device_count()
    return int(getattr(_local, "device", 0))


def set_device(device: int) -> None:
    if not 0 <= device < device_count():
        raise _errors.CUDARuntimeError(_errors.INVALID_DEVICE)
    _local.device = device


class Op:
    """One piece of work: what runs, its name for messages, the blocks of device memory that it touches, and its bytes.

    ``n_bytes`` is how large the arrays are that it reads and writes, each counted once.
    """

    __slots__ = ("blocks", "checked", "n_bytes", "name", "run")

    def __init__(
        self, name: str, run: Callable[[], Any], blocks: Iterable[Any] = (), checked: bool = False, n_bytes: int = 0
    ) -> None:
        self.name = name
        self.run = run
        self.blocks = tuple(blocks)
        self.checked = checked
        self.n_bytes = n_bytes

    def __call__(self) -> None:
        for block in self.blocks:
            block.check_alive(self.name)
        self.run()
        if self.checked:
            for block in self.blocks:
                block.check_ends(self.name)


class Meter:
    """What is asked of the devices: work in the order in which it is enqueued, and how often the host waits for it."""

    def __init__(self, runs: bool) -> None:
        self.runs = runs
        self.ops: list[Op] = []
        self.n_waits = 0


UNMETERED = _meter = Meter(True)


@contextlib.contextmanager
def metered(runs: bool = True) -> Iterator[Meter]:
    """Give what is asked of the devices in the context; the work is left out, so that values mean nothing, or runs."""
    global _meter
    before, _meter = _meter, Meter(runs and _meter.runs)
    try:
        yield _meter
    finally:
        _meter = before


class Capture:
    """What is enqueued between begin_capture and end_capture, on the stream itself and on those that join it."""

    def __init__(self, origin: Queue) -> None:
        self.origin = origin
        self.ops: list[Op] = []
        self.open = True
        # How many ops of streams that joined the origin has not waited for.
        self.unjoined: dict[Queue, int] = {}


class Queue:
    """The work of one stream, oldest first."""

    def __init__(self, device: int, null: bool = False, early: bool = False) -> None:
        self.device = device
        self.null = null
        self.early = early
        self.ops: collections.deque[Op] = collections.deque()
        self.taken = 0
        self.capture: Capture | None = None

    def put(self, op: Op) -> None:
        with LOCK:
            if self.capture is not None:
                self.capture.ops.append(op)
                if self is not self.capture.origin:
                    self.capture.unjoined[self] = len(self.capture.ops)
                return
            if _meter is not UNMETERED:
                _meter.ops.append(op)
            if not _meter.runs:
                return
            for block in op.blocks:
                if block.device != self.device:
                    why = f"{op.name} runs on device {self.device}, its array is on device {block.device}"
                    raise _errors.CUDARuntimeError(_errors.INVALID_HANDLE, why)
            if self.null:
                drain(self.device)
            self.ops.append(op)
            if self.null or self.early:
                self.run_until(self.ticket())
            elif len(self.ops) > DEEPEST_QUEUE:
                self.run_until(self.taken + DEEPEST_QUEUE // 2)

    def ticket(self) -> int:
        """Return the number of the last op that is in the queue: it has run when `taken` is as much."""
        return self.taken + len(self.ops)

    def wait_until(self, ticket: int) -> None:
        """Have the host wait for what is in the queue up to a ticket."""
        with LOCK:
            _meter.n_waits += self.taken < ticket
            self.run_until(ticket)

    def run_until(self, ticket: int) -> None:
        with LOCK:
            while self.taken < ticket and self.ops:
                op = self.ops.popleft()
                self.taken += 1
                op()

    def synchronize(self) -> None:
        with LOCK:
            if self.capture is not None:
                raise _errors.CUDARuntimeError(_errors.CAPTURE_UNSUPPORTED)
            if self.null:
                drain(self.device)
            self.wait_until(self.ticket())
            raise_faults()


_QUEUES: dict[int, list[Queue]] = {}
_BY_HANDLE: dict[int, Queue] = {}


def new_queue(device: int) -> tuple[int, Queue]:
    """Make a queue of a device and the number that stands for its stream."""
    with LOCK:
        queues = device_queues(device)
        queue = Queue(device, early=reverse() and len(queues) % 2 == 0)
        queues.append(queue)
        handle = 0x10000 + 16 * (1 + len(_BY_HANDLE))
        _BY_HANDLE[handle] = queue
        return handle, queue


def device_queues(device: int) -> list[Queue]:
    with LOCK:
        return _QUEUES.setdefault(device, [Queue(device, null=True)])


def queue_of(handle: int) -> Queue:
    """Return the queue of a stream by its number; 0 and 1 are the default stream of the current device."""
    if handle in (0, 1):
        return device_queues(current_device())[0]
    try:
        return _BY_HANDLE[handle]
    except KeyError:
        raise _errors.CUDARuntimeError(_errors.INVALID_HANDLE, f"there is no stream {handle}") from None


def drain(device: int) -> None:
    """Run all that is enqueued on a device, but what streams capture."""
    with LOCK:
        for queue in device_queues(device):
            queue.run_until(queue.ticket())


def raise_faults() -> None:
    """Raise what was found where nothing could be raised."""
    if FAULTS:
        text = FAULTS[0]
        FAULTS.clear()
        raise _errors.CUDARuntimeError(_errors.ILLEGAL_ADDRESS, text)


def synchronize_device(device: int) -> None:
    from cupy import _memory

    with LOCK:
        if any(queue.capture is not None for queue in device_queues(device)):
            raise _errors.CUDARuntimeError(_errors.CAPTURE_UNSUPPORTED)
        _meter.n_waits += 1
        drain(device)
        _memory.check_all(device)
        raise_faults()


def settle() -> None:
    """Run what is left on all devices and look at their memory; what fails is forgotten after it has been raised."""
    from cupy import _memory

    with LOCK:
        try:
            for device, queues in _QUEUES.items():
                for queue in queues:
                    queue.capture = None
                drain(device)
                _memory.check_all(device)
            raise_faults()
        finally:
            for queue in (queue for queues in _QUEUES.values() for queue in queues):
                queue.ops.clear()
