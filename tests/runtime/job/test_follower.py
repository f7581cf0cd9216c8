"""Followers of a job: all of its events, in order, each once."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from singa_dask.runtime.job.follower import Follower, ask_jobs
from singa_dask.runtime.job.job_record import PAGE, events_after
from singa_dask.runtime.job.names import JOBS, Op
from tests.runtime.processes import Driven, digits

pytestmark = pytest.mark.cluster


def test_events_come_in_pages() -> None:
    kept = deque([{"n": n} for n in range(3 * PAGE)], maxlen=2 * PAGE)
    first = events_after(kept, -1)
    assert [event["n"] for event in first] == list(range(PAGE, 2 * PAGE))
    assert events_after(kept, 3 * PAGE - 2) == [{"n": 3 * PAGE - 1}]
    assert events_after(kept, 3 * PAGE) == []
    assert events_after(deque(), -1) == []


class FakeClient:
    """A client of a scheduler that has some events of a job, and sends others in an order of their own."""

    id = "fake"
    status = "running"

    def __init__(self, kept: list[dict[str, Any]], sent: list[dict[str, Any]]) -> None:
        self.kept, self.sent = kept, sent
        self.scheduler = self

    def __getattr__(self, name: str) -> Any:
        assert name == Op.EVENTS
        return self._events

    def _events(self, job_id: str, after: int, client: str) -> list[dict[str, Any]]:
        return [event for event in self.kept if event["n"] > after][:2]

    def sync(self, function: Any, *, callback_timeout: float, **arguments: Any) -> Any:
        return function(**arguments)

    def unsubscribe_topic(self, topic: str) -> None:
        """Send no more events."""

    def subscribe_topic(self, topic: str, handler: Any) -> None:
        for event in self.sent:
            handler((0.0, event))


def test_events_that_are_missing_late_or_doubled_are_put_in_order() -> None:
    events = [{"event": "log", "n": n} for n in range(7)] + [{"event": "over", "n": 7}]
    sent = [events[i] for i in (0, 0, 2, 1, 6, 5, 3, 7)]
    got: list[dict[str, Any]] = []
    client: Any = FakeClient(events, sent)
    follower = Follower(client, "job", got.append)
    follower.subscribe()
    assert follower.follow() == events[-1]
    assert got == [{"event": "log"}] * 7
    assert follower.n == 7


def test_what_is_not_kept_any_more_is_said() -> None:
    events = [{"event": "log", "n": n} for n in (5, 6)] + [{"event": "over", "n": 7}]
    got: list[dict[str, Any]] = []
    client: Any = FakeClient(events, [])
    Follower(client, "job", got.append, after=2).follow()
    assert "2 events of the job are missing" in got[0]["message"]
    assert got[1:] == [{"event": "log"}] * 2


def test_one_that_comes_late_has_all_events_and_one_that_leaves_ends_nothing(client: Client, tmp_path: Path) -> None:
    late: list[dict[str, Any]] = []
    threads: list[threading.Thread] = []

    def come_late(driven: Driven, event: dict[str, Any]) -> None:
        with Client(client.scheduler.address, set_as_default=False) as other:
            leaving = Follower(other, driven.job_id, lambda event: leaving.leave())
            leaving.subscribe()
            assert leaving.follow() is None
        threads.append(threading.Thread(target=follow, args=(driven.job_id,), name="late"))
        threads[0].start()

    def follow(job_id: str) -> None:
        with Client(client.scheduler.address, set_as_default=False) as other:
            follower = Follower(other, job_id, late.append)
            follower.subscribe()
            follower.follow()

    driven = Driven(digits("downpour", "disp_freq=1", "train_steps=300"), client, tmp_path, come_late)
    threads[0].join()
    assert driven.result.state == "done"
    told = [event for event in driven.events if event["event"] != "started"]
    assert late == told
    again: list[dict[str, Any]] = []
    Follower(client, driven.job_id, again.append).follow()
    assert again == told
    facts = client.run_on_scheduler(facts_of, driven.job_id)
    assert (facts["state"], facts["step"], facts["run_url"]) == ("done", 300, driven.url)
    assert facts["metrics"]["train"] == driven.result.train
    assert ask_jobs(client, Op.EVENTS, job_id="nobody") is None


def facts_of(job_id: str, dask_scheduler: Any) -> Any:
    return dask_scheduler.plugins[JOBS].history.facts[job_id]
