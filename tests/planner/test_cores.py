"""How simulated threads share the cores of a host; all times are counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from singa_dask.planner.model import Machine
from singa_dask.planner.phantoms import Meter
from singa_dask.planner.virtual_time import COLD_S, TURN_S, Cores, VirtualClock
from tests.planner.fakes import FakeCosts

MS = 1e-3
Work = tuple[str, float, int, float]
"""Name of a thread, when it wakes up, threads, milliseconds of work."""


def ends(n_cores: int, *works: Work, speed: float = 1.0) -> dict[str, float]:
    """Return when threads end, in ms."""
    clock, found = VirtualClock(FakeCosts(), Meter()), dict[str, float]()
    cores = Cores(clock, Machine("here", n_cores, speed))

    def wake(name: str, n_threads: int, ms: float) -> None:
        thread: Any = name
        cores.run(thread, n_threads, ms * MS, lambda: found.update({name: clock.now / MS}))

    for name, at_ms, n_threads, ms in works:
        clock.at(at_ms * MS, lambda each=(name, n_threads, ms): wake(*each))  # type: ignore[misc]
    clock.run()
    assert cores.n_busy(0) == 0
    return {name: round(found[name], 6) for name in sorted(found)}


def test_a_free_core_is_taken() -> None:
    assert ends(2, ("a", 0, 1, 5), ("b", 1, 1, 5)) == {"a": 5, "b": 6}
    assert ends(2, ("a", 0, 1, 5), ("b", 1, 1, 5), speed=0.5) == {"a": 10, "b": 11}


def test_who_wakes_up_interrupts_who_runs() -> None:
    assert ends(1, ("a", 0, 1, 5), ("b", 1, 1, 1)) == {"a": 6, "b": 2}
    # c interrupts the one that has run for longest, and the other core is not free before it ends
    assert ends(2, ("a", 0, 1, 5), ("b", 1, 1, 5), ("c", 2, 1, 1)) == {"a": 6, "b": 6, "c": 3}


def test_threads_of_a_core_take_turns() -> None:
    turn = TURN_S / MS
    assert ends(1, ("a", 0, 1, 3 * turn), ("b", 0, 1, 3 * turn)) == {"a": 6 * turn, "b": 5 * turn}


def test_who_waits_moves_to_a_free_core_after_a_time() -> None:
    assert COLD_S == 2 * MS
    # b's core is free after 1 ms; a, which c has interrupted, takes it after 2 ms
    assert ends(2, ("a", 0, 1, 10), ("b", 0, 1, 1), ("c", 0, 1, 10)) == {"a": 12, "b": 1, "c": 10}


def test_threads_that_wait_for_each_other_share_a_core_with_who_wakes_up() -> None:
    # while one of them shares its core, all are half as fast
    assert ends(4, ("all", 0, 4, 8), ("one", 2, 1, 1)) == {"all": 8.5, "one": 3}
    assert ends(4, ("all", 0, 4, 8), ("one", 2, 1, 4), ("two", 4, 1, 4)) == {"all": 11, "one": 6, "two": 8}
    # three of four cores are free, and the other is not taken before the end
    assert ends(4, ("one", 0, 1, 4), ("all", 1, 4, 6)) == {"all": 9, "one": 4}
    # the core that is left is for whoever comes, and then one thread of a task has a core of its own
    assert ends(4, ("most", 0, 3, 8), ("one", 2, 1, 4), ("two", 4, 1, 4)) == {"most": 10, "one": 6, "two": 8}
    assert ends(2, ("all", 0, 2, 4), ("one", 2, 1, 8), ("two", 7, 1, 1)) == {"all": 6, "one": 10, "two": 8}


def test_more_threads_than_cores_are_slower() -> None:
    assert ends(2, ("all", 0, 4, 8)) == {"all": 16}


@pytest.mark.parametrize("n_cores", [1, 2, 3, 5])
def test_no_work_is_lost_and_no_core_does_more_than_it_can(n_cores: int) -> None:
    works = [(f"t{i}", (i * 7 % 5) / 2, 1 + i % 2, 1 + i * 13 % 11) for i in range(12)]
    last, work = max(ends(n_cores, *works).values()), sum(n * ms for _, _, n, ms in works)
    # all of it on all cores at best; at worst on one, after the last has woken up
    assert work / n_cores <= last <= 2 + work
