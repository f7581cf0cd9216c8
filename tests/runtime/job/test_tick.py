"""What goes wrong for one job on a scheduler, or in one look at all of them, stops nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Status
from tornado.ioloop import IOLoop

from singa_dask.conf import ClusterConf
from singa_dask.runtime.job.names import SITE
from singa_dask.runtime.job.scheduler.departures import RETIRE
from singa_dask.runtime.job.scheduler.jobs import Jobs
from singa_dask.runtime.job.scheduler.performing import perform
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.job.scheduler.views import processes_of
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev
from singa_dask.runtime.job.state.job_facts import JobFacts
from singa_dask.runtime.job.state.job_state import JobState
from singa_dask.runtime.job.state.placer import Roster
from singa_dask.runtime.job.state.submission import JobSpec
from singa_dask.runtime.planning.layout import plan_processes
from singa_dask.runtime.planning.worker_choice import TO_WAIT, WorkerFacts
from tests.runtime.processes import digits

WORKER = "tcp://127.0.0.1:1"


class Here:
    """The `Jobs` of a scheduler without Dask workers, and two jobs that start on one that is not there yet."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.records: dict[str, JobRecord] = {}
        for job_id in ("broken", "sound"):
            job = digits("single").to_json()
            spec = JobSpec(job_id=job_id, job=job, workers=[WORKER], assignments={}, client="me")
            self.records[job_id] = jobs.records[job_id] = JobRecord(spec)
            self.records[job_id].state.begin(time.monotonic(), {})

    async def end_of(self, job_id: str) -> JobFacts:
        """Return the facts of a job once it is over."""
        for _ in range(1000):
            if job_id in self.jobs.history.facts:
                break
            await asyncio.sleep(0)
        return self.jobs.history.facts[job_id]

    def said(self, job_id: str) -> list[str]:
        """Return the messages to those who follow a job."""
        return [event["message"] for event in self.records[job_id].events.after(-1) if event["event"] == "log"]


def on_a_scheduler(test: Callable[[Here], Awaitable[None]]) -> Here:
    """Run a test with the plug-in of a scheduler that has no network."""

    async def run() -> Here:
        scheduler: Any = SimpleNamespace(
            address="here", workers={}, clients={}, handlers={RETIRE: None}, stream_handlers={}, status=Status.running,
            loop=IOLoop.current(), set_metadata=lambda keys, value: None,
        )  # fmt: skip
        plugin = Jobs()
        await plugin.start(scheduler)
        await plugin.detached.restored.wait()
        here = Here(plugin)
        await test(here)
        return here

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show nothing to browsers."""
    monkeypatch.setattr("singa_dask.runtime.job.scheduler.jobs.add_dashboard", lambda scheduler, views: lambda: None)


def broken(*given: Any, **named: Any) -> Any:
    raise RuntimeError("a screw is loose")


class Ticks:
    """Counts the ticks that a job gets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n: dict[str, int] = {}
        real = JobState.handle

        def handle(state: JobState, event: Any, *given: Any) -> list[Any]:
            if isinstance(event, ev.Tick):
                self.n[state.spec.job_id] = self.n.get(state.spec.job_id, 0) + 1
            return real(state, event, *given)

        monkeypatch.setattr(JobState, "handle", handle)


def look_breaks(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here.records["broken"].stalls, "look", broken)
    here.jobs._tick()


def foreign_heartbeat(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    known = SimpleNamespace(metrics={SITE: {"broken": [{"colour": "red"}]}}, last_seen=1.0, status="running")
    monkeypatch.setitem(here.jobs.scheduler.workers, WORKER, known)
    monkeypatch.setattr(here.jobs.left_over, "tick", lambda: False)
    here.jobs._tick()


def strange_metrics(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.jobs._on_event("broken", 0, {"event": "metrics", "colour": "red"}, worker=WORKER)


def answer_breaks(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here.jobs.sites, "host", broken)
    record = here.records["broken"]
    here.jobs._do(record, [act.Host(0, 0, WORKER, record.state.roster, {})])


OWN = [look_breaks, foreign_heartbeat, strange_metrics, answer_breaks]


@pytest.mark.parametrize("harm", OWN)
def test_an_error_of_one_job_ends_it_with_the_reason_and_no_other(
    harm: Callable[[Here, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Ticks(monkeypatch)

    async def test(here: Here) -> None:
        harm(here, monkeypatch)
        facts = await here.end_of("broken")
        assert (facts.state, facts.exit_code) == ("failed", 1)
        assert facts.reason.startswith("the scheduler: ")
        assert any(why in facts.reason for why in ("a screw is loose", "KeyError"))
        here.jobs._tick()
        assert list(here.jobs.records) == ["sound"]
        assert here.jobs._is_ticking

    on_a_scheduler(test)
    assert ticks.n["sound"] >= 1


@pytest.mark.parametrize(
    ("has_jobs", "has_drivers", "status", "goes_on"),
    [
        (True, False, Status.running, True),
        (False, True, Status.running, True),
        (False, False, Status.running, False),
        (True, True, Status.closed, False),
    ],
)
def test_a_scheduler_looks_as_long_as_there_is_something(
    has_jobs: bool, has_drivers: bool, status: Status, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(here: Here) -> None:
        jobs = here.jobs
        monkeypatch.setattr(jobs.left_over, "tick", lambda: False)
        monkeypatch.setattr(jobs.detached, "tick", lambda: has_drivers)
        jobs.scheduler.status = status
        if not has_jobs:
            jobs.records.clear()
        jobs._tick()
        assert jobs._is_ticking == goes_on

    on_a_scheduler(test)


def test_a_job_that_is_over_does_not_end_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(here: Here) -> None:
        state = here.records["broken"].state
        state.phase = "over"
        monkeypatch.setattr(state, "handle", broken)
        monkeypatch.setattr(state, "break_off", lambda failure: pytest.fail("it ends again"))
        here.jobs.handle("broken", ev.Tick())

    on_a_scheduler(test)


def test_what_cannot_be_shown_ends_no_job(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def test(here: Here) -> None:
        monkeypatch.setattr(here.records["broken"].activity, "add_event", broken)
        for text in ("one", "two"):
            event = {"event": "log", "level": "INFO", "message": text}
            here.jobs._on_event("broken", 0, event, worker=WORKER)
        assert here.said("broken") == ["one", "two"]
        assert list(here.jobs.records) == ["broken", "sound"]

    on_a_scheduler(test)
    assert [record.message for record in caplog.records] == [
        "broken: curves and rates of the job are not shown any more"
    ]


def test_the_end_of_a_job_that_cannot_be_told_is_its_end_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(here: Here) -> None:
        monkeypatch.setattr(here.records["broken"], "add_event", broken)
        here.jobs.handle("broken", ev.Signal("SIGKILL", "me"))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert list(here.jobs.records) == ["sound"]

    on_a_scheduler(test)


def test_a_detached_job_that_nobody_drives_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has a client."""
    signals: list[Any] = []

    async def test(here: Here) -> None:
        def handle(job_id: str, event: Any) -> None:
            signals.extend([(job_id, event)] if isinstance(event, ev.Signal) else [])

        monkeypatch.setattr(here.jobs, "handle", handle)
        drivers, record = here.jobs.detached, here.records["sound"]
        record.spec = replace(record.spec, driver=1)
        for is_driven, taken_over, phase in (
            (True, "", "running"),
            (True, "a newer scheduler has the job.", "running"),
            (False, "", "running"),
            (False, "", "over"),
        ):
            monkeypatch.setattr(drivers, "is_detached", lambda job_id, is_driven=is_driven: is_driven)
            drivers._saved.taken_over, record.state.phase = taken_over, phase
            here.jobs._tick_jobs()

    on_a_scheduler(test)
    assert signals == [("sound", ev.Signal("SIGTERM", by)) for by in ("a newer scheduler", "the end of its driver")]


def test_a_job_hears_of_what_it_depends_on_and_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    checkpoint = {"event": "checkpoint", "unit": "worker-0-0", "step": 5, "url": "run/checkpoint/step-5"}

    async def test(here: Here) -> None:
        monkeypatch.setattr(here.jobs, "handle", lambda job_id, event: heard.append(event))
        for what in (checkpoint, {"event": "log", "level": "INFO", "message": "hello"}):
            here.jobs._on_event("sound", 3, what, worker=WORKER)

    assert on_a_scheduler(test).said("sound") == ["hello"]
    assert heard == [ev.Saved(3, 5, "run/checkpoint/step-5")]


@pytest.mark.parametrize("part", ["heartbeats", "drivers", "waiting", "left over", "room", "limit"])
def test_an_error_in_a_look_at_all_jobs_is_told_once_and_time_goes_on(
    part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = Ticks(monkeypatch)

    async def test(here: Here) -> None:
        jobs = here.jobs
        where: dict[str, tuple[Any, str]] = {
            "heartbeats": (jobs._heartbeats, "look"),
            "drivers": (jobs.detached, "tick"),
            "waiting": (jobs.queue, "tick"),
            "left over": (jobs.left_over, "tick"),
            "room": (jobs.detached, "start_next"),
        }
        if part == "limit":
            monkeypatch.setattr("singa_dask.runtime.job.scheduler.left_over.limit", broken)
        else:
            monkeypatch.setattr(*where[part], broken)
        for _ in range(3):
            jobs._tick()
            assert jobs._is_ticking
        assert list(jobs.records) == ["broken", "sound"]

    here = on_a_scheduler(test)
    assert ticks.n == {"broken": 3, "sound": 3}
    why = "the scheduler failed to check its jobs: RuntimeError: a screw is loose"
    assert [record.message for record in caplog.records] == [why]
    for job_id in here.records:
        assert here.said(job_id) == [why]


def spec_of(job_id: str, **given: Any) -> dict[str, Any]:
    job = digits("single").to_json()
    return {"job_id": job_id, "job": job, "workers": [WORKER], "assignments": {}, "client": "me", **given}


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_client_that_was_gone_before_its_job_came_ends_it(is_gone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(here: Here) -> None:
        jobs, later = here.jobs, []
        monkeypatch.setattr(jobs.scheduler, "clients", {} if is_gone else {"me": None})
        monkeypatch.setattr(jobs, "_check_workers", lambda state: None)
        monkeypatch.setattr(jobs.tasks, "connect", nothing)
        monkeypatch.setattr(jobs.scheduler, "loop", SimpleNamespace(call_later=lambda s, *call: later.append(call)))
        monkeypatch.setattr(jobs, "_do", lambda record, actions: None)
        assert await jobs.submit(spec_of("new")) == ("", False)
        calls = [call for call in later if "new" in call]
        assert calls == ([(jobs._check_client, "new", 1)] if is_gone else [])

    on_a_scheduler(test)


def test_steps_of_a_process_that_was_replaced_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Dask worker was silent and is back, and hosts another process of the job now."""
    hosted = [{"process": 1, "incarnation": 0, "steps": {"0": 99}, "waits": {"worker-1-0": ("a lock", 70.0)}}]

    async def test(here: Here) -> None:
        known = SimpleNamespace(metrics={SITE: {"sound": hosted}}, last_seen=0.0, host="here", name="a", memory_limit=0)
        monkeypatch.setattr(here.jobs.scheduler, "workers", {WORKER: known})
        incarnation = here.records["sound"].state._incarnation
        layout = plan_processes(ClusterConf.model_validate({"nworker_groups": 2}))
        incarnation.roster = Roster(1, layout, (WORKER, "another"), (0, 1), 0)
        here.jobs._tell_steps("sound", here.records["sound"])
        assert here.records["sound"].state.steps == {}
        assert [each["steps"] for each in processes_of(here.records["sound"], here.jobs.scheduler)] == [{}, {}]
        hosted[0] |= {"process": 0, "workers": {}, "bytes": [0, 0]}
        here.jobs._tell_steps("sound", here.records["sound"])
        assert here.records["sound"].state.steps == {"0": 99}

    on_a_scheduler(test)


def test_a_client_that_was_back_meanwhile_has_as_long_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(here: Here) -> None:
        jobs, timers, ended = here.jobs, list[Callable[[], None]](), list[str]()
        later = SimpleNamespace(call_later=lambda s, do, *given: timers.append(lambda: do(*given)))
        monkeypatch.setattr(jobs.scheduler, "loop", later)
        monkeypatch.setattr(jobs, "handle", lambda job_id, event: ended.append(job_id))
        del jobs.records["broken"]
        for _ in range(2):  # it is lost, comes back, and is lost again
            jobs.remove_client(jobs.scheduler, "me")
        timers[0]()
        assert ended == []
        timers[1]()
        assert ended == ["sound"]

    on_a_scheduler(test)


async def nothing() -> None:
    pass


def test_a_job_may_ask_again_if_others_wait_or_there_is_no_room() -> None:
    async def test(here: Here) -> None:
        refusal, again = await here.jobs.submit(spec_of("new", workers=["tcp://gone:1"]))
        assert "does not fit" in refusal and again
        here.jobs.queue.turn({"id": "first", "name": "first"}, "me")
        refusal, again = await here.jobs.submit(spec_of("new"))
        assert "first first" in refusal and again
        here.jobs.queue.turn({"id": "new", "name": "new"}, "me")
        here.jobs.queue.stop("new", "SIGTERM")
        assert (await here.jobs.submit(spec_of("new")))[1]

    on_a_scheduler(test)


def test_a_job_that_came_too_late_is_refused_with_all_dask_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(here: Here) -> None:
        jobs = here.jobs
        busy = WorkerFacts(2, 2, "host", "w", note="2 by job first")
        facts = {WORKER: busy, "tcp://also:1": busy, "tcp://free:1": WorkerFacts(1, 0, "host", "v")}
        monkeypatch.setattr(jobs, "_room", lambda workers, wanted: {each: facts[each] for each in workers})
        monkeypatch.setattr(jobs.scheduler, "workers", facts)
        refusal, again = await jobs.submit(spec_of("new"))
        assert again and "3 are ready" in refusal and f"Threads are taken on: {WORKER} (2 by job first)" in refusal
        facts["tcp://free:1"] = WorkerFacts(2, 0, "host", "v")
        refusal, again = await jobs.submit(spec_of("new"))
        assert again and "There is room on others" in refusal
        monkeypatch.setattr(jobs.scheduler, "workers", {})

    on_a_scheduler(test)


def test_a_job_is_refused_where_the_scheduler_does_not_reach_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(here: Here) -> None:
        jobs = here.jobs
        monkeypatch.setattr(jobs, "_check_workers", lambda state: None)
        monkeypatch.setattr(jobs.tasks, "connect", broken)
        facts = {"id": "new", "name": "new"}
        jobs.queue.turn(facts, "me")
        refused = await jobs.submit(spec_of("new"))
        assert refused == ("the scheduler cannot start tasks: RuntimeError: a screw is loose", False)
        assert list(jobs.records) == ["broken", "sound"]
        assert jobs.queue.has("new")  # it keeps its place

    on_a_scheduler(test)


def test_a_job_that_does_not_wait_is_refused_before_it_has_a_driver() -> None:
    async def test(here: Here) -> None:
        jobs = here.jobs
        jobs.queue.turn({"id": "first", "name": "first"}, "me")
        await jobs.detached.restore()
        refusal = f"queued on this cluster: 1 job of this priority or a higher one, first first. {TO_WAIT}"
        assert [jobs.refusal("new", 0), jobs.refusal("new", 1), jobs.refusal("new")] == [refusal, "", ""]
        assert await jobs._detach({"job_id": "new", "queue": False, "priority": 0}, "me") == refusal
        assert not jobs.detached.has("new")

    on_a_scheduler(test)


def test_a_job_occupies_threads_before_it_begins() -> None:
    spec = JobSpec(job_id="new", job=digits("single").to_json(), workers=[WORKER], assignments={}, client="me")
    state = JobRecord(spec).state
    # a job that is submitted meanwhile must not get the same threads
    assert (state.phase, state.threads) == ("new", {WORKER: 2})


@pytest.mark.parametrize("n_lost", [2, None])
def test_a_request_is_repeated_until_a_dask_worker_answers(n_lost: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa_dask.runtime.job.scheduler.performing.AGAIN_S", 0.0)
    asked: list[str] = []

    async def test(here: Here) -> None:
        async def ask(worker: str, timeout_s: float, op: str, **arguments: Any) -> Any:
            asked.append(arguments["what"])
            if len(asked) == 1:  # another process of the job is replaced
                mine = here.records["sound"].state._incarnation
                mine.roster = mine.roster._replace(incarnation=mine.roster.incarnation + 1)
            if n_lost is None and len(asked) == 3:  # the job ends, while nobody answers
                here.jobs.handle("sound", ev.Signal("SIGKILL", ""))
            return TimeoutError() if n_lost is None or len(asked) <= n_lost else None

        here.jobs.sites.ask = ask  # type: ignore[method-assign]
        await perform(act.Request(WORKER, "stop"), here.records["sound"], here.jobs)

    on_a_scheduler(test)
    assert asked == ["stop"] * 3
