"""What the first worker and others do when units start anew: requests are repeated, and each is answered once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from singa_dask.comm.message import Address, Message
from singa_dask.conf import ClusterConf, JobConf, Phase
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.manifest import make_manifest
from singa_dask.runtime.planning.layout import Rejoin
from singa_dask.runtime.units.checkpoint_reporter import CheckpointReporter
from singa_dask.runtime.units.initial_state import InitialState
from singa_dask.runtime.units.pending_checkpoints import PendingCheckpoints
from tests.runtime.harness import mlp
from tests.runtime.units.test_run_state import Side

FIRST = Address.worker(0, 0)
SERVERS = [Address.server(0, i) for i in range(2)]
OTHERS = [Address.worker(1, i) for i in range(2)]
POSITION = {"step": 9, "cursors": {"train": {"data": {"samples_seen": 9}}}}


def part(server: Address, requester: str = "now", step: int = 8, tensors: Sequence[Any] = ()) -> Message:
    return Message(
        "part", server, FIRST, step=step, info={"requester": requester, "file": str(server), "tensors": list(tensors)}
    )


def report(worker: Address, requester: str = "now", step: int = 8) -> Message:
    info = {"requester": requester, "position": POSITION, "states": None}
    return Message("r-progress", worker, FIRST, step=step, info=info)


@pytest.fixture
def pending() -> PendingCheckpoints:
    def complete(step: int, parts: Sequence[Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        return {"event": "snapshot", "manifest": make_manifest(parts, facts)}

    cluster = ClusterConf(nservers_per_group=2, nworker_groups=2, nworkers_per_group=2)
    made = PendingCheckpoints("snapshot", cluster, "now", complete)
    asked = made.begin(8, {"step": 8}, {"snapshot": 0})
    assert asked == {"snapshot": 0, "requester": "now"}
    for i in range(2):
        assert made.take(report(Address.worker(0, i))) is None
    return made


# -- the worker that asks ------------------------------------------------------------------------------


def test_only_what_is_missing_is_asked_for_again(pending: PendingCheckpoints) -> None:
    pending.take(report(OTHERS[0]))
    again = pending.requests_to_repeat(OTHERS)
    assert [(step, unit) for step, unit, _ in again] == [(8, OTHERS[0]), (8, OTHERS[1])]
    for message in (*map(part, SERVERS), report(OTHERS[0])):
        assert pending.take(message) is None
    assert pending.requests_to_repeat(OTHERS)[-1][1:] == (OTHERS[1], {"snapshot": 0, "requester": "now"})
    for worker in OTHERS:
        event = pending.take(report(worker))
    assert event is not None and event["event"] == "snapshot"
    assert event["manifest"]["parts"] == [{"file": str(server), "tensors": []} for server in SERVERS]
    assert not pending


def test_a_group_that_has_reported_is_not_asked_again(pending: PendingCheckpoints) -> None:
    for worker in OTHERS:
        pending.take(report(worker))
    assert pending.requests_to_repeat(OTHERS) == []


def test_answers_to_the_worker_before_do_not_count(pending: PendingCheckpoints) -> None:
    for message in (*map(report, OTHERS), part(SERVERS[0])):
        assert pending.take(message) is None
    assert pending.take(part(SERVERS[1], requester="before")) is None
    assert pending.take(part(SERVERS[1], step=4)) is None
    assert pending
    assert pending.take(part(SERVERS[1])) is not None


def test_two_answers_of_one_unit_count_once(pending: PendingCheckpoints) -> None:
    for message in (*map(report, OTHERS), part(SERVERS[0]), part(SERVERS[0])):
        assert pending.take(message) is None


def test_nobody_waits_for_workers_that_are_done(pending: PendingCheckpoints) -> None:
    for server in SERVERS:
        pending.take(part(server))
    pending.take(report(OTHERS[0]))
    events = pending.leave(OTHERS[1])
    assert [event["event"] for event in events] == ["snapshot"]
    assert events[0]["manifest"]["groups"]["1"] == POSITION
    pending.begin(12, {"step": 12}, {"snapshot": 0})
    for worker in (Address.worker(0, 0), Address.worker(0, 1), OTHERS[0]):
        pending.take(report(worker, step=12))
    assert pending.take(part(SERVERS[0], step=12)) is None
    assert pending.take(part(SERVERS[1], step=12)) is not None


@pytest.mark.parametrize("n_applied", [8, 9, 10])
def test_what_is_no_consistent_cut_is_dropped(pending: PendingCheckpoints, n_applied: int) -> None:
    """A worker group is lost and starts again while servers take their copies: one of them has a gradient more."""
    applied = {"0": POSITION["step"] - 1, "1": POSITION["step"] - 1}
    tensors = [
        {"key": f"w/value/{i}", "param": "w", "what": "value", "applied": {**applied, "1": (9, n_applied)[i] - 1}}
        for i in range(2)
    ]
    for message in (*map(report, OTHERS), part(SERVERS[0], tensors=tensors[:1])):
        assert pending.take(message) is None
    event = pending.take(part(SERVERS[1], tensors=tensors[1:]))
    assert event is not None
    if n_applied == POSITION["step"]:
        assert event["event"] == "snapshot"
    else:
        assert (event["event"], event["level"]) == ("log", "WARNING")
        assert event["message"].startswith(
            "the snapshot of step 8 was dropped: not a consistent cut: worker group 1 is"
        )
    assert not pending


# -- a worker that is asked ----------------------------------------------------------------------------


class Still:
    """A `Trainer` that only says where it stands."""

    def position(self, step: int) -> dict[str, Any]:
        return {"step": step}

    def collect_all(self) -> None:
        """Wait for nothing."""

    def states(self) -> list[Any]:
        return []


class Reporting:
    """The `CheckpointReporter` of a worker of the second group, as its training loop uses it."""

    def __init__(self, index: int) -> None:
        self.side = Side(OTHERS[index])
        self.state = self.side.state(4, nworker_groups=2, nworkers_per_group=2)
        trainer: Any = Still()
        no_states: Any = None
        self.reporter = CheckpointReporter(trainer, self.state, self.side.channel, no_states)
        self.state.step = 5

    def ask(self, requester: str, step: int) -> None:
        info = {"snapshot": True, "requester": requester}
        self.reporter.accept(Message("progress", FIRST, self.side.channel.address, step=step, info=info))

    def go_to(self, step: int) -> None:
        while self.state.step < step:
            if self.reporter.is_due():
                (requester, at) = self.state.reports_at[self.state.step]
                taken = Message("taken", FIRST, self.side.channel.address, step=at, info={"requester": requester})
                self.side.inbox.put(taken)
                self.reporter.report()
            self.state.step += 1

    def reports(self) -> list[tuple[str, int, int]]:
        """Return (requester, step, own step) of each report sent."""
        sent = [message for message in self.side.posted if message.kind == "r-progress"]
        return [(each.info["requester"], each.step, each.info["position"]["step"]) for each in sent]


def agree(leader: Reporting, other: Reporting) -> None:
    """Deliver what the leader tells the other worker of its group about steps."""
    leader.side.inbox.put(Message("r-report-at", OTHERS[1], OTHERS[0]))
    assert leader.reporter.is_due() is False
    other.state.accept(leader.side.posted[-1])


def test_a_group_reports_at_one_step_whatever_was_lost_before() -> None:
    leader, other = Reporting(0), Reporting(1)
    leader.ask("before", 8)  # and the worker that asks is lost before it asks the other one
    agree(leader, other)
    for each in (leader, other):
        each.go_to(10)
    leader.ask("now", 12)
    agree(leader, other)
    for each in (leader, other):
        each.go_to(20)
    other.ask("now", 12)
    assert leader.reports()[-1] == other.reports()[-1] == ("now", 12, leader.reports()[-1][2])
    assert len(other.reports()) == 1


def test_a_worker_that_is_a_step_behind_answers_two_requests() -> None:
    """The first worker of the group may have made a report, and chosen the step of the next, meanwhile."""
    leader, other = Reporting(0), Reporting(1)
    leader.ask("now", 8)
    other.ask("now", 8)
    agree(leader, other)
    other.go_to(7)
    leader.go_to(8)
    leader.ask("now", 9)
    other.ask("now", 9)
    agree(leader, other)
    for each in (leader, other):
        each.go_to(12)
    assert leader.reports() == other.reports() == [("now", 8, 7), ("now", 9, 10)]


def test_requests_of_a_worker_that_was_replaced_are_dropped() -> None:
    leader, other = Reporting(0), Reporting(1)
    leader.ask("before", 8)
    leader.ask("now", 12)
    agree(leader, other)
    for each in (leader, other):
        each.go_to(10)
    assert [each[:2] for each in leader.reports()] == [("now", 12)]


def test_a_request_that_comes_twice_is_answered_once() -> None:
    leader, other = Reporting(0), Reporting(1)
    leader.ask("now", 8)
    agree(leader, other)
    leader.go_to(10)
    leader.ask("now", 8)
    assert leader.reporter.is_due() is False
    assert len(leader.reports()) == 1


def test_the_last_report_answers_all_that_is_left() -> None:
    other = Reporting(1)
    other.ask("now", 8)
    other.reporter.report(last=True)
    other.ask("now", 12)
    assert other.reports() == [("now", 8, 5), ("now", 12, 5)]


def test_only_the_newest_answers_are_remembered() -> None:
    other = Reporting(1)
    other.reporter.report(last=True)
    for step in (*range(20), 19, 0):
        other.ask("now", step)
    assert [step for _, step, _ in other.reports()] == [*range(20), 0]


def test_the_end_is_told_again_to_groups_that_start_anew() -> None:
    side = Side()
    state = side.state(5, nworker_groups=3)
    units = [Address.worker(1, 0), Address.worker(1, 1), Address.server(0, 0)]
    state.repeat_end(units)
    assert side.posted == []
    state.end_early("it is good")
    side.posted.clear()
    state.repeat_end(units)
    assert [(each.kind, each.dst, each.info["reason"]) for each in side.posted] == [("end", units[0], "it is good")]


# -- where a group that rejoins begins -----------------------------------------------------------------


def rejoining(job: JobConf, steps: Mapping[int, int]) -> InitialState:
    return InitialState(job, rejoin=Rejoin(frozenset(), frozenset(), steps))


def test_a_group_that_rejoins_reads_on_at_its_step() -> None:
    job = mlp()
    initial_state = rejoining(job, {1: 7})
    assert (initial_state.step_of(0), initial_state.step_of(1)) == (0, 7)
    assert initial_state.manifest_of(1) == {}
    skipped: list[int] = []

    class Net:
        def advance(self, n_batches: int) -> None:
            skipped.append(n_batches)

    net: Any = Net()
    for group in (0, 1):
        initial_state.seek({Phase.TRAIN: net}, group, 2)
    assert skipped == [7]


def test_a_group_that_rejoins_tests_again_unless_it_goes_on_at_the_step_of_the_snapshot() -> None:
    manifest = {"step": 8, "seed": mlp().seed, "tested": True, "metrics": {"test.loss": {"value": 1.0, "step": 8}},
                "groups": {"0": {"step": 8, "cursors": {}}}, "parts": []}  # fmt: skip
    snapshot = Checkpoint.from_manifest(manifest, lambda file: None, "snapshot")
    for step, tested in ((8, True), (9, False)):
        found = InitialState(mlp(), snapshot, rejoin=Rejoin(frozenset(), frozenset(), {0: step})).manifest_of(0)
        assert (found["tested"], found["metrics"]) == (tested, manifest["metrics"])
