"""Channels and the steps that a group agrees on, without nets."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from singa_dask.cancellation import Cancellation
from singa_dask.comm.message import Address, Message
from singa_dask.errors import Aborted
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.run_state import RunState
from tests.runtime.harness import mlp

FIRST, SECOND = Address.worker(0, 0), Address.worker(0, 1)


class Side:
    """The channel of a worker, what it has posted, and its inbox."""

    def __init__(self, address: Address = FIRST) -> None:
        self.posted: list[Message] = []
        self.inbox: SimpleQueue[Message] = SimpleQueue()
        self.channel = Channel(address, self.posted.append, [].append, self.inbox, Cancellation())

    def receive(self, kind: str, **info: str) -> None:
        self.inbox.put(Message(kind, src=SECOND, dst=self.channel.address, info=info))

    def state(self, step: int, ahead: int = 0, **cluster: int) -> RunState:
        return RunState(mlp(cluster=cluster), self.channel, step, ahead)


def test_what_comes_meanwhile_goes_to_its_handler() -> None:
    side = Side()
    seen: list[Message] = []
    side.channel.on("cursors", seen.append)
    for kind in ("cursors", "cursors", "taken", "cursors"):
        side.receive(kind)
    assert side.channel.wait_for("taken").kind == "taken"
    assert len(seen) == 2
    assert side.channel.has_messages()
    side.channel.receive("the rest")
    assert len(seen) == 3
    assert not side.channel.has_messages()


def test_an_abort_ends_every_wait() -> None:
    side = Side()
    for wait in (lambda: side.channel.wait_for("go"), lambda: side.channel.receive("anything")):
        side.receive("abort", reason="worker-0-1: a mistake")
        with pytest.raises(Aborted, match="worker-0-1: a mistake"):
            wait()


@pytest.mark.parametrize(("n_workers", "ahead", "wanted"), [(1, 0, 5), (2, 0, 7), (2, 3, 10)])
def test_a_group_stops_at_a_step_that_none_has_reached(n_workers: int, ahead: int, wanted: int) -> None:
    side = Side()
    state = side.state(5, ahead, nworkers_per_group=n_workers)
    assert not state.should_stop()
    state.requested.add("stop")
    side.receive("r-stop-at")
    assert state.should_stop() == (n_workers == 1)
    assert state.stop_at == wanted
    assert [(message.kind, message.dst, message.step) for message in side.posted] == [
        ("stop-at", SECOND, wanted) for _ in range(n_workers - 1)
    ]
    state.step = wanted
    assert state.should_stop()
    assert state.was_stopped


def test_another_worker_takes_the_steps_of_the_first() -> None:
    state = Side(SECOND).state(3, nworkers_per_group=2)
    for kind, step in (("checkpoint-at", 6), ("snapshot-at", 7), ("stop-at", 8)):
        state.accept(Message(kind, src=FIRST, dst=SECOND, step=step, info={"reason": ""}))
    assert (state.save_at, state.stop_at) == ({"checkpoint": 6, "snapshot": 7}, 8)
    assert not state.is_first


def test_a_snapshot_stays_requested_until_it_is_taken() -> None:
    side = Side()
    state = side.state(5, nworkers_per_group=2)
    state.requested.add("snapshot")
    side.receive("r-snapshot-at")
    state.save_at["snapshot"] = state.agree_on("snapshot-at")
    assert (state.save_at["snapshot"], state.requested) == (7, {"snapshot"})
    assert [(message.kind, message.dst, message.step) for message in side.posted] == [("snapshot-at", SECOND, 7)]


def test_the_first_worker_ends_all_groups_once() -> None:
    side = Side()
    state = side.state(4, nworker_groups=3)
    state.end_early("")
    assert (state.stop_at, side.posted) == (-1, [])
    for _ in range(2):
        state.end_early("no better")
    assert [(message.kind, message.dst) for message in side.posted] == [
        ("end", Address.worker(group, 0)) for group in (1, 2)
    ]
    assert (state.stop_at, state.is_over, state.was_stopped) == (4, True, False)
