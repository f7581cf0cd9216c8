"""Which Dask workers have not been heard of, whatever the clock of the day says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from singa_dask.runtime.job import sites as departures
from singa_dask.runtime.job.sites import Heartbeats


class Scheduler:
    """A scheduler with two Dask workers; ``clock`` is the clock of the day."""

    def __init__(self) -> None:
        self.clock = 1_000_000.0
        self.workers = {name: SimpleNamespace(last_seen=self.clock) for name in ("a", "b")}

    def hear(self, *names: str) -> None:
        for name in names:
            self.workers[name].last_seen = self.clock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time of the clock that never goes back, in a list."""
    seconds = [50.0]
    monkeypatch.setattr(departures.time, "monotonic", lambda: seconds[0])
    return seconds


def pass_time(found: Heartbeats, scheduler: Any, now: list[float], seconds: float, *heard: str) -> None:
    """Let time pass, with heartbeats and a look each half second."""
    for _ in range(round(seconds / 0.5)):
        now[0] += 0.5
        scheduler.clock += 0.5
        scheduler.hear(*heard)
        found.look()


def test_a_worker_without_heartbeats_is_silent(now: list[float]) -> None:
    scheduler: Any = Scheduler()
    found = Heartbeats(scheduler)
    pass_time(found, scheduler, now, 4.5, "a")
    assert not found.is_silent("b")
    pass_time(found, scheduler, now, 2.0, "a")
    assert (found.is_silent("a"), found.is_silent("b")) == (False, True)
    scheduler.clock += 0.1
    scheduler.hear("b")
    assert not found.is_silent("b")  # also before the next look
    assert not found.is_silent("nobody")


@pytest.mark.parametrize("step", [-3600.0, -5.0, 5.0, 3600.0])
def test_nobody_is_lost_when_the_clock_is_set(now: list[float], step: float) -> None:
    scheduler: Any = Scheduler()
    found = Heartbeats(scheduler)
    pass_time(found, scheduler, now, 10.0, "a", "b")
    scheduler.clock += step
    found.look()
    assert not any(map(found.is_silent, scheduler.workers))
    pass_time(found, scheduler, now, 10.0, "a")  # nor is one that is lost after it missed
    assert (found.is_silent("a"), found.is_silent("b")) == (False, True)


def test_a_scheduler_that_was_held_up_has_heard_of_nobody(now: list[float]) -> None:
    scheduler: Any = Scheduler()
    found = Heartbeats(scheduler)
    pass_time(found, scheduler, now, 2.0, "a", "b")
    now[0] += 30.0
    found.look()
    assert not any(map(found.is_silent, scheduler.workers))
