"""Which Dask workers have not been heard of, whatever the clock of the day says."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest

from singa_dask.runtime.job.scheduler import heartbeats as module
from singa_dask.runtime.job.scheduler.heartbeats import Heartbeats


class Scheduler:
    """A scheduler with Dask workers; ``clock`` is the clock of the day."""

    def __init__(self, *names: str) -> None:
        self.clock = 1_000_000.0
        self.workers = {name: SimpleNamespace(last_seen=self.clock) for name in names or ("a", "b")}

    def hear(self, *names: str) -> None:
        for name in names:
            self.workers[name].last_seen = self.clock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time of the clock that never goes back, in a list."""
    seconds = [50.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: seconds[0])
    return seconds


def pass_time(found: Heartbeats, scheduler: Any, now: list[float], seconds: float, *heard: str) -> None:
    """Let time pass, with heartbeats and a look each half second."""
    for _ in range(round(seconds / 0.5)):
        now[0] += 0.5
        scheduler.clock += 0.5
        scheduler.hear(*heard)
        found.look()


def test_a_worker_that_stops_on_a_calm_cluster_is_silent_after_ten_seconds(now: list[float]) -> None:
    scheduler: Any = Scheduler()
    heartbeats = Heartbeats(scheduler)
    pass_time(heartbeats, scheduler, now, 60.0, "a", "b")
    pass_time(heartbeats, scheduler, now, 9.0, "a")
    assert not heartbeats.is_silent("b")
    pass_time(heartbeats, scheduler, now, 3.0, "a")
    assert (heartbeats.is_silent("a"), heartbeats.is_silent("b")) == (False, True)
    scheduler.clock += 0.1
    scheduler.hear("b")
    assert not heartbeats.is_silent("b")  # also before the next look
    assert not heartbeats.is_silent("nobody")


def test_no_worker_of_a_starved_cluster_is_silent_until_it_stops(now: list[float]) -> None:
    generator = random.Random(0)
    names = [f"w{i}" for i in range(6)]
    scheduler: Any = Scheduler(*names)
    heartbeats = Heartbeats(scheduler)
    pass_time(heartbeats, scheduler, now, 30.0, *names)
    load, due = 0.5, dict.fromkeys(names, 0.0)  # load: mean seconds between heartbeats, which rises to 8

    def beats(seconds: float, *stopped: str) -> list[str]:
        nonlocal load
        silent = []
        for _ in range(round(2 * seconds)):
            load = min(8.0, 1.02 * load)
            for name in names:
                due[name] -= 0.5
            late = [name for name in names if due[name] <= 0 and name not in stopped]
            due.update({name: generator.expovariate(1 / load) for name in late})
            pass_time(heartbeats, scheduler, now, 0.5, *late)
            silent += filter(heartbeats.is_silent, names)
        return silent

    assert beats(3600.0) == []
    assert set(beats(240.0, "w3")) == {"w3"}


def test_a_network_that_is_silent_is_not_taken_for_lost_workers(now: list[float]) -> None:
    scheduler: Any = Scheduler("a", "b", "c")
    heartbeats = Heartbeats(scheduler)
    pass_time(heartbeats, scheduler, now, 60.0, "a", "b", "c")
    pass_time(heartbeats, scheduler, now, 60.0)
    assert not any(map(heartbeats.is_silent, "abc"))
    with dask.config.set({"distributed.scheduler.worker-ttl": "100s"}):
        heartbeats = Heartbeats(scheduler)
    pass_time(heartbeats, scheduler, now, 101.0)
    assert all(map(heartbeats.is_silent, "abc"))


def test_the_least_silence_is_in_the_configuration(now: list[float]) -> None:
    scheduler: Any = Scheduler()
    with dask.config.set({"distributed.singa-dask.silent": "60s"}):
        heartbeats = Heartbeats(scheduler)
    pass_time(heartbeats, scheduler, now, 30.0, "a", "b")
    pass_time(heartbeats, scheduler, now, 55.0, "a")
    assert not heartbeats.is_silent("b")
    pass_time(heartbeats, scheduler, now, 10.0, "a")
    assert heartbeats.is_silent("b")


@pytest.mark.parametrize("step", [-3600.0, -5.0, 5.0, 3600.0])
def test_nobody_is_lost_when_the_clock_is_set(now: list[float], step: float) -> None:
    scheduler: Any = Scheduler()
    found = Heartbeats(scheduler)
    pass_time(found, scheduler, now, 10.0, "a", "b")
    scheduler.clock += step
    found.look()
    assert not any(map(found.is_silent, scheduler.workers))
    pass_time(found, scheduler, now, 15.0, "a")  # nor is one that is lost after it missed
    assert (found.is_silent("a"), found.is_silent("b")) == (False, True)


def test_a_scheduler_that_was_held_up_has_heard_of_nobody(now: list[float]) -> None:
    scheduler: Any = Scheduler()
    found = Heartbeats(scheduler)
    pass_time(found, scheduler, now, 2.0, "a", "b")
    now[0] += 30.0
    found.look()
    assert not any(map(found.is_silent, scheduler.workers))


def test_the_delays_of_others_count_as_if_each_were_looked_at_by_itself(now: list[float]) -> None:
    generator = random.Random(1)
    for n in (1, 2, 3, 4, 5, 9, 40):
        names = [f"w{i}" for i in range(n)]
        scheduler: Any = Scheduler(*names)
        heartbeats = Heartbeats(scheduler)
        for _ in range(100):
            pass_time(
                heartbeats,
                scheduler,
                now,
                0.5,
                *(name for i, name in enumerate(names) if generator.random() < 1 / (i + 1)),
            )
        gaps = {name: max(beats.usual, beats.silence) for name, beats in heartbeats._beats.items()}
        for name in names:
            others = sorted(gap for other, gap in gaps.items() if other != name)
            usual = max([heartbeats._beats[name].usual, *others[(len(others) - 1) // 4 :][:1]])
            expected = min(max(10.0, module.PHI * math.log(10) * usual), 300.0)
            assert heartbeats.limit_of(name) == pytest.approx(expected)
