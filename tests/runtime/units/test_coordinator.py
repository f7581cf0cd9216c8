"""The barriers at the start and at the end of a job: nobody goes before all are there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm import Address, Message
from singa_dask.runtime.units.coordinator import Coordinator

WORKERS = [Address.worker(g, i) for g in range(2) for i in range(2)]
SERVERS = [Address.server(0, i) for i in range(2)]
UNITS = {unit: 0 for unit in (*WORKERS, *SERVERS)}


def say(coordinator: Coordinator, kind: str, unit: Address) -> list[tuple[str, Address]]:
    answers = coordinator.handle(Message(kind, unit, Address.stub(0)))
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
    coordinator = Coordinator(UNITS)
    for unit in who[:-1]:
        assert say(coordinator, kind, unit) == []
    assert coordinator.missing(kind) == [who[-1]]
    assert sorted(say(coordinator, kind, who[-1])) == sorted((answer, unit) for unit in told)
    assert coordinator.missing(kind) == []


@given(st.permutations(WORKERS))
def test_servers_stop_after_the_last_worker_of_all_groups(order: list[Address]) -> None:
    coordinator = Coordinator(UNITS)
    for unit in order[:-1]:
        assert say(coordinator, "leave", unit) == []
    assert [unit for _, unit in say(coordinator, "leave", order[-1])] == SERVERS


def test_a_unit_that_says_it_twice_counts_once() -> None:
    coordinator = Coordinator(UNITS)
    for _ in range(len(UNITS)):
        assert say(coordinator, "hello", WORKERS[0]) == []
