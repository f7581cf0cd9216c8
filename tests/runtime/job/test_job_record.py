"""A job without a step for a minute is named; those who follow a job get its events."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from singa_dask.runtime.job.job_end import JobEnd, outcome
from singa_dask.runtime.job.scheduler import history as module
from singa_dask.runtime.job.scheduler.evidence import Evidence
from singa_dask.runtime.job.scheduler.history import EVENTS_OF_A_JOB, JOBS_WITH_EVENTS, History
from singa_dask.runtime.job.scheduler.stalls import Stalls
from tests.runtime.dashboard.jobs import full


def test_a_job_that_goes_on_is_not_named() -> None:
    stalls = Stalls()
    assert not any(stalls.look({"0": step}, {}, 30.0 * step) for step in range(100))


def test_one_that_does_not_is_named_when_the_time_has_doubled() -> None:
    stalls = Stalls()
    waits = {"worker-0-1": ("records of layer data", 60.0), "worker-0-0": ("update of param w", 61.0)}
    said = {now: text for now in range(0, 300, 5) if (text := stalls.look({"0": 7}, waits, float(now)))}
    assert list(said) == [60, 120, 240]
    assert said[60] == (
        "no step for 60 s. worker-0-0 waits for update of param w (61 s); "
        "worker-0-1 waits for records of layer data (60 s)."
    )
    assert not stalls.look({"0": 8}, waits, 300.0)
    assert "No unit is waiting" in stalls.look({"0": 8}, {}, 360.0)


def test_all_events_of_a_job_are_kept_until_its_client_has_had_them() -> None:
    record = full("ended", n_reports=1)
    record.spec = replace(record.spec, client="mine")
    n = EVENTS_OF_A_JOB + 50
    for i in range(n):
        record.add_event({"event": "log", "level": "INFO", "message": str(i)})
    history = History()
    history.add(record)
    history.trim("ended", client="another")
    assert sum(1 for _ in reversed(history.events("ended") or ())) >= n
    history.trim("ended", client="mine")
    assert sum(1 for _ in reversed(history.events("ended") or ())) == EVENTS_OF_A_JOB


def test_a_client_that_asks_late_hears_of_the_end_of_each_of_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep of equal jobs ends within one look of its client."""
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    history = History()

    def end(job_id: str) -> None:
        ended = full(job_id, n_reports=1)
        ended.spec = replace(ended.spec, client="mine")
        history.add(ended)

    for i in range(JOBS_WITH_EVENTS + 10):
        end(f"job-{i}")
    for i in range(JOBS_WITH_EVENTS + 10):
        assert history.events(f"job-{i}") is not None
        history.trim(f"job-{i}", client="mine")
    end("one more")
    # those that were heard of, the oldest first, and none that is new
    assert [history.events(f"job-{i}") is None for i in (10, 11)] == [True, False]
    assert history.events("one more") is not None
    clock[0] += 61.0  # nobody comes for it
    end("later")
    for i in range(JOBS_WITH_EVENTS):
        end(f"later-{i}")
    assert history.events("one more") is None


def test_those_who_wait_get_the_next_event_and_the_newest_steps() -> None:
    async def wait() -> list[list[str]]:
        record = full("runs", n_reports=1)
        last = record.events.after(-1)[-1]["n"]
        asyncio.get_running_loop().call_soon(record.add_event, {"event": "steps", "steps": {"0": 3}})
        asked = [await record.next_events(last, wait_s) for wait_s in (60.0, 0.0)]
        asyncio.get_running_loop().call_soon(record.add_event, {"event": "notice", "message": "more"})
        asked.append(await record.next_events(last, 60.0))
        return [[event["event"] for event in events] for events in asked]

    assert asyncio.run(wait()) == [["steps"], [], ["notice", "steps"]]


def test_the_last_steps_of_all_groups_come_before_the_end() -> None:
    record = full("ended", n_reports=1)
    before = record.events.after(-1)[-1]["n"]
    for steps in ({"0": 70, "1": 71}, {"0": 76}, {"1": 72}):
        record.add_event({"event": "steps", "steps": steps})
    record.add_event({"event": "over", "reports": {}})
    steps_event, over = record.events.after(before)
    assert steps_event["steps"] == {"0": 76, "1": 72}
    assert over["event"] == "over"


def test_who_is_needed_for_the_steps_of_others_is_alive() -> None:
    evidence = Evidence()
    needed_by = {"a": ["0", "1"], "b": ["0"], "c": ["1"]}  # a has the servers
    for now, step in enumerate([10, 11, 12]):  # c tells nothing any more, and b stands still
        evidence.look({"a": {}, "b": {"0": 10}, "c": {"1": step}}, needed_by, float(now))
    assert evidence.is_alive("a", 3.0, within_s=2.0)
    assert not evidence.is_alive("a", 30.0, within_s=2.0)
    # nobody else tells of the steps that need them
    assert not evidence.is_alive("b", 3.0, within_s=2.0)
    assert not evidence.is_alive("c", 3.0, within_s=2.0)


def test_a_worker_of_a_group_is_alive_while_another_one_of_it_makes_steps() -> None:
    evidence = Evidence()
    for now, step in enumerate([3, 3, 4]):
        evidence.look({"a": {"0": 3}, "b": {"0": step}}, {"a": ["0"], "b": ["0"]}, float(now))
    assert evidence.is_alive("a", 2.5, within_s=1.0)
    assert not evidence.is_alive("b", 2.5, within_s=1.0)


def test_a_job_that_stopped_because_a_dask_worker_closed_says_so() -> None:
    report = {"unit": "worker-0-0", "state": "done", "step": 5, "step_ms": {}, "stopped": True}
    assert outcome(JobEnd(reports={"worker-0-0": report})) == ("stopped", 5, "stopped by a Dask worker that has closed")
