"""The sender of a worker on a GPU, and the timer of its steps; the device does things when the test says so."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from singa_dask.comm.message import Address, Message
from singa_dask.conf import ParamConf
from singa_dask.layers import Param
from singa_dask.ops import NumpyOps
from singa_dask.runtime.units import step_timer
from singa_dask.runtime.units.host_mirror import HostMirror

WORKER = Address.worker(0, 0)
TIMEOUT_S = 240


class Event:
    """Something on the device that is done when it is told to, or fails."""

    def __init__(self) -> None:
        self.step: Any = lambda: None
        self._done = threading.Event()

    def synchronize(self) -> None:
        assert self._done.wait(TIMEOUT_S)
        self.step()

    def happen(self) -> None:
        self._done.set()


class Device(NumpyOps):
    """A device of whose copies and marks the test holds the events."""

    device = "cuda:0"

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.uploads: list[tuple[np.ndarray, Event]] = []
        self.ended = False

    def transfers(self) -> Device:
        return self

    def mark(self) -> Event:
        self.events.append(Event())
        return self.events[-1]

    def download(self, x: np.ndarray, out: np.ndarray, after: Event) -> Event:
        assert after is self.events[-1]
        self.mark().step = lambda: np.copyto(out, x)
        return self.events[-1]

    def upload(self, x: np.ndarray, out: np.ndarray, after: Event) -> None:
        self.uploads.append((x.copy(), after))
        np.copyto(out, x)

    def synchronize(self) -> None:
        self.ended = True


class Side:
    """A mirror with two params, the second of them idle, and what it posts."""

    def __init__(self) -> None:
        self.device = Device()
        self.posted: SimpleQueue[Message] = SimpleQueue()
        self.failed: SimpleQueue[BaseException] = SimpleQueue()
        self.mirror = HostMirror(WORKER, self.device, self.posted.put, self.failed.put)
        self.params = [Param(name, (3,), ParamConf()) for name in "ab"]
        self.params[0].allocate_grad(np.zeros)
        self.params[1].is_idle = True
        self.values = [np.zeros(3, np.float32) for _ in self.params]
        pairs = zip(self.params, self.values, strict=True)
        self.host_copies = [
            host_copy for param, values in pairs for host_copy in self.mirror.add(param, values, [param])
        ]
        self.device.events.clear()

    def send(self, step: int, param: Param | None = None) -> None:
        self.mirror.send(Message("update", WORKER, Address.stub(0), step=step), param)

    def next(self) -> int:
        return self.posted.get(timeout=TIMEOUT_S).step


def test_a_message_leaves_after_its_gradient_and_those_before_it() -> None:
    side = Side()
    assert [host_copy.size for host_copy in side.host_copies] == [3, 0]
    with side.mirror:
        side.params[0].grad[:] = 7
        side.send(0, side.params[0])
        side.send(1, side.params[1])
        side.send(2)
        computed, copied, idle = side.device.events
        idle.happen()
        computed.happen()
        assert side.posted.empty()
        assert not side.host_copies[0].any()
        copied.happen()
        assert [side.next() for _ in range(3)] == [0, 1, 2]
        assert side.host_copies[0].tolist() == [7] * 3
    assert side.device.ended
    assert side.failed.empty()


def test_what_was_given_to_the_sender_leaves_before_it_ends() -> None:
    side = Side()
    with side.mirror:
        for step in range(100):
            side.send(step)
    assert [side.next() for _ in range(100)] == list(range(100))


def test_new_values_come_once_after_those_before_them_were_read() -> None:
    side = Side()
    owner, host_copy = side.params[0], side.values[0]
    with side.mirror:
        side.mirror.collect(owner)
        assert side.device.uploads == []  # there are none
        for version in range(2):
            host_copy[:] = 5 + version
            owner.publish(version)
            for _ in range(2):
                side.mirror.collect(owner)
            assert owner.values.tolist() == [5 + version] * 3
            assert len(side.device.uploads) == 1 + version
            side.send(version, owner)
        (_, first), (_, second) = side.device.uploads
        assert second is side.device.events[0]
        assert first is not second
        for event in side.device.events:
            event.happen()


def test_an_error_of_the_device_is_told_and_ends_the_sender() -> None:
    side = Side()
    wrong = RuntimeError("an illegal address")

    def fail() -> None:
        raise wrong

    with side.mirror:
        side.send(0, side.params[0])
        copied = side.device.events[-1]
        copied.step = fail
        copied.happen()
        assert side.failed.get(timeout=TIMEOUT_S) is wrong
        side.send(1)
    assert side.posted.empty()


def test_an_error_is_not_hidden_by_the_device_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("a device that has failed says so at every call")

    side = Side()
    monkeypatch.setattr(side.device, "synchronize", fail)
    with pytest.raises(KeyError, match="first"), side.mirror:
        raise KeyError("first")


# -- the timer -------------------------------------------------------------------------------------------------


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [0.0]
    monkeypatch.setattr(step_timer.time, "perf_counter", lambda: time[0])
    return time


def test_on_a_cpu_a_step_is_what_its_calls_take(now: list[float]) -> None:
    steps = step_timer.StepTimer(NumpyOps())
    for seconds in (1.0, 2.0):
        steps.begin()
        now[0] += seconds
        steps.end()
        now[0] += 100  # a test
    steps.synchronize()
    assert list(steps.seconds) == [1.0, 2.0]


def test_on_a_gpu_a_step_ends_there(now: list[float]) -> None:
    device = Device()
    steps = step_timer.StepTimer(device)

    def take(until: float) -> None:
        """Enqueue a step that the device ends at some time."""
        steps.begin()
        now[0] += 0.25
        event = Event()
        event.step = lambda: now.__setitem__(0, max(now[0], until))
        event.happen()
        device.mark = lambda: event  # type: ignore[method-assign]
        steps.end()

    for until in (1.0, 2.0, 5.0):
        take(until)
    assert list(steps.seconds) == [1.0]
    steps.synchronize()
    assert list(steps.seconds) == [1.0, 1.0, 3.0]
    now[0] = 100.0  # after a test
    take(101.0)
    steps.synchronize()
    assert list(steps.seconds) == [1.0, 1.0, 3.0, 1.0]
