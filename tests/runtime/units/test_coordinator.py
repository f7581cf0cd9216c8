"""The barriers at the start and at the end of a job: nobody goes before all are there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm.message import Address, Message
from singa_dask.runtime.planning.layout import Rejoin
from singa_dask.runtime.units.barrier_coordinator import BarrierCoordinator

WORKERS = [Address.worker(g, i) for g in range(2) for i in range(2)]
SERVERS = [Address.server(0, i) for i in range(2)]
UNITS = {unit: 0 for unit in (*WORKERS, *SERVERS)}


def say(coordinator: BarrierCoordinator, kind: str, unit: Address) -> list[tuple[str, Address]]:
    info = {"host": "here", "facts": {}, "error": ""}
    answers = coordinator.handle(Message(kind, unit, Address.stub(0), info=info))
    return [(answer.kind, answer.dst) for answer in answers]


@pytest.mark.parametrize(
    ("kind", "answer", "who", "told"),
    [
        ("hello", "start", [*WORKERS, *SERVERS], [*WORKERS, *SERVERS]),
        ("ready", "go", WORKERS, WORKERS),
        ("leave", "stop", WORKERS, SERVERS),
    ],
)
def test_the_last_one_frees_all_who_wait(kind: str, answer: str, who: list[Address], told: list[Address]) -> None:
    coordinator = BarrierCoordinator(UNITS)
    for unit in who[:-1]:
        assert say(coordinator, kind, unit) == []
    assert coordinator.missing(kind) == [who[-1]]
    assert sorted(say(coordinator, kind, who[-1])) == sorted((answer, unit) for unit in told)
    assert coordinator.missing(kind) == []


@given(st.permutations(WORKERS))
def test_servers_stop_after_the_last_worker_of_all_groups(order: list[Address]) -> None:
    coordinator = BarrierCoordinator(UNITS)
    for unit in order[:-1]:
        assert say(coordinator, "leave", unit) == []
    assert [unit for _, unit in say(coordinator, "leave", order[-1])] == SERVERS


def test_a_unit_that_says_it_twice_counts_once() -> None:
    coordinator = BarrierCoordinator(UNITS)
    for _ in range(len(UNITS)):
        assert say(coordinator, "hello", WORKERS[0]) == []


def pass_barriers(coordinator: BarrierCoordinator) -> None:
    for unit in UNITS:
        say(coordinator, "hello", unit)
    for unit in WORKERS:
        say(coordinator, "ready", unit)


def test_units_that_start_again_wait_for_each_other_only() -> None:
    coordinator = BarrierCoordinator(UNITS)
    pass_barriers(coordinator)
    again = [*WORKERS[2:], SERVERS[1]]
    assert coordinator.replace(again) == []
    assert coordinator.missing("hello") == sorted(again)
    assert coordinator.missing("ready") == WORKERS[2:]
    assert say(coordinator, "hello", again[0]) == say(coordinator, "hello", again[1]) == []
    assert sorted(say(coordinator, "hello", again[2])) == sorted(("start", unit) for unit in again)
    assert say(coordinator, "ready", again[0]) == []
    assert say(coordinator, "ready", again[1]) == [("go", unit) for unit in again[:2]]


def test_servers_wait_for_workers_that_start_again_but_not_for_those_that_are_done() -> None:
    coordinator = BarrierCoordinator(UNITS)
    pass_barriers(coordinator)
    for unit in WORKERS[:3]:
        say(coordinator, "leave", unit)
    coordinator.replace(WORKERS[:1])
    assert coordinator.missing("leave") == [WORKERS[0], WORKERS[3]]
    assert say(coordinator, "leave", WORKERS[3]) == []
    stop = coordinator.replace([], left=WORKERS[:1])
    assert [(message.kind, message.dst) for message in stop] == [("stop", unit) for unit in SERVERS]


def test_a_barrier_that_the_lost_unit_had_not_reached_waits_for_the_one_that_replaces_it() -> None:
    coordinator = BarrierCoordinator(UNITS)
    for unit in (*WORKERS, SERVERS[0]):
        say(coordinator, "hello", unit)
    coordinator.replace([WORKERS[3]])
    assert say(coordinator, "hello", SERVERS[1]) == []
    assert say(coordinator, "hello", WORKERS[3]) == [("start", unit) for unit in sorted(UNITS)]


def test_a_new_coordinator_waits_for_units_that_are_not_running_and_have_not_left() -> None:
    running, left = frozenset([*WORKERS[1:3], SERVERS[0]]), frozenset(WORKERS[3:])
    coordinator = BarrierCoordinator(UNITS, Rejoin(running, left, {0: 7}))
    assert coordinator.missing("hello") == [SERVERS[1], WORKERS[0]]
    assert coordinator.missing("ready") == [WORKERS[0]]
    assert coordinator.missing("leave") == WORKERS[:3]


def test_a_running_unit_whose_answer_was_lost_is_answered_when_it_asks_again() -> None:
    coordinator = BarrierCoordinator(UNITS, Rejoin(frozenset([*WORKERS[1:], *SERVERS]), frozenset(), {0: 7}))
    assert say(coordinator, "ready", WORKERS[2]) == []
    assert say(coordinator, "ready", WORKERS[0]) == [("go", WORKERS[0]), ("go", WORKERS[2])]
    assert say(coordinator, "ready", WORKERS[1]) == [("go", WORKERS[1])]


def test_a_server_that_joins_after_all_workers_have_left_ends() -> None:
    coordinator = BarrierCoordinator(UNITS, Rejoin(frozenset(SERVERS[:1]), frozenset(WORKERS), {}))
    assert say(coordinator, "hello", SERVERS[1])[-1] == ("stop", SERVERS[1])


def test_files_of_which_workers_have_opened_two_versions() -> None:
    coordinator = BarrierCoordinator(UNITS)

    def ready(unit: Address, host: str, **files: str) -> list[Message]:
        return coordinator.handle(Message("ready", unit, Address.stub(0), info={"host": host, "facts": files}))

    ready(WORKERS[0], "a", one="1", two="1")
    ready(WORKERS[1], "b", one="1", two="2")
    ready(WORKERS[2], "b", two="1", three="9")
    answers = {answer.dst: answer.info["differing"] for answer in ready(WORKERS[3], "d", one="4", three="9")}
    assert answers == {
        WORKERS[0]: {},
        WORKERS[1]: {"two": ["1", "a"]},
        WORKERS[2]: {},
        WORKERS[3]: {"one": ["1", "a"]},
    }
    # one that starts again is compared with the first
    coordinator.replace(WORKERS[:1])
    assert [answer.info["differing"] for answer in ready(WORKERS[0], "e", one="5", two="1")] == [{"one": ["1", "a"]}]


def test_a_job_with_a_replaced_file_ends_with_its_error_after_all_have_left() -> None:
    coordinator = BarrierCoordinator({**UNITS, SERVERS[1]: 1})
    for unit, error in zip(WORKERS, ("", "x: the file was replaced.", "", ""), strict=True):
        answers = coordinator.handle(Message("leave", unit, Address.stub(0), info={"error": error}))
        assert (answers == []) == (unit != WORKERS[-1])
    assert [(answer.kind, answer.dst) for answer in answers] == [("abort", Address.stub(0)), ("abort", Address.stub(1))]
    assert answers[0].info["reason"] == "worker-0-1: x: the file was replaced."
