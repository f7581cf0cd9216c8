"""Where drivers of detached jobs run, without a cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dask.config
import pytest
from distributed import Status
from distributed.comm import CommClosedError
from distributed.utils import TimeoutError as LateError  # type: ignore[attr-defined]
from tornado.ioloop import IOLoop

from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError, DataError, NotNowError, TakenOverError, UnloadableError
from singa_dask.runtime.job.driver import driver_host
from singa_dask.runtime.job.driver.driver import Lease, UnheardError
from singa_dask.runtime.job.driver.driver_host import DriverHost
from singa_dask.runtime.job.driver.job_run import JobRun
from singa_dask.runtime.job.limits import LIMITS, Limit
from singa_dask.runtime.job.names import Op
from singa_dask.runtime.job.scheduler import detached_jobs as module
from singa_dask.runtime.job.scheduler.detached_jobs import DetachedJobs
from singa_dask.runtime.job.scheduler.history import History
from singa_dask.runtime.job.scheduler.job_queue import JobQueue
from singa_dask.runtime.job.scheduler.performing import perform
from singa_dask.runtime.job.state.actions import Host
from singa_dask.runtime.job.state.events import Hosted
from singa_dask.runtime.job.state.job_facts import JobFacts
from tests.runtime.processes import digits


async def at_once(pool: None, function: Callable[..., Any], *given: Any) -> Any:
    """Call a function as an event loop does in a thread."""
    return function(*given)


class World:
    """A scheduler with some Dask workers; calls to them are noted, and not made."""

    def __init__(self, *workers: str) -> None:
        self.started: list[str] = []
        room = {"status": Status.running, "processing": {}, "nthreads": 1, "resources": {}}
        known = {each: SimpleNamespace(host=each.partition("/")[0], name=each, **room) for each in workers}
        loop = SimpleNamespace(add_callback=self.started_later, run_in_executor=at_once)
        scheduler: Any = SimpleNamespace(workers=known, client_comms={}, clients={}, loop=loop)
        self.workers, self.scheduler = known, scheduler
        self.jobs: dict[str, Any] = {}
        self.told: list[Any] = []
        self.history = History()
        self.waiting = JobQueue(scheduler, self.history)
        sites: Any = None
        self.silent: set[str] = set()
        self.detached = DetachedJobs(
            scheduler, self.jobs, self.history, sites, self.waiting, self._tell, lambda worker: worker in self.silent
        )

    def _tell(self, job_id: str, what: Any) -> None:
        self.told.append(what)

    def started_later(self, call: Any, what: Any, *given: Any) -> None:
        """Note the start of a driver; other calls do nothing here."""
        if call == self.detached._drive:
            self.started.append(what.worker)

    def detach(self, job_id: str = "job") -> str:
        return self.detached.detach({"job_id": job_id})

    def queue(self, job_id: str, priority: int = 0, **fields: Any) -> str:
        run = {"job_id": job_id, "job": digits("single").to_json(), "owner": "me@here", "run_url": "/run"}
        return self.detached.detach({**run, "queue": True, "priority": priority, **fields})

    def start_next(self, has_room: bool) -> list[str]:
        """Look whether the first queued job may start; return the jobs with drivers."""

        def check_room(cluster: ClusterConf) -> None:
            if not has_room:
                raise ClusterError("no room.")

        self.detached.start_next(check_room)
        return [job_id for job_id in "abc" if self.detached.worker_of(job_id)]


def test_drivers_are_spread_and_start_elsewhere_when_one_is_lost() -> None:
    world = World("h/a", "h/b", "h/c")
    assert [world.detach(job_id) for job_id in "12"] == ["", ""]
    assert world.started == ["h/a", "h/b"]
    assert "already running or queued" in world.detach("1")
    assert world.detached.renew("1", 1)
    del world.workers["h/a"]
    world.detached.lose("h/a")
    assert world.started[2:] == ["h/c"]
    assert (world.detached.renew("1", 1), world.detached.renew("1", 2)) == (False, True)
    world.detached.end_driver("1", 1, {"reason": "of the lost one", "exit_code": 1})
    assert world.detached.is_detached("1")
    world.detached.end_driver("1", 2, {})
    assert not world.detached.is_detached("1")


def test_a_late_driver_of_an_ended_job_does_not_end_a_new_job_with_its_id() -> None:
    world = World("h/a")
    world.detach()
    world.detached.end_driver("job", 1, {"reason": "a disk is full.", "exit_code": 1})
    with pytest.raises(RuntimeError, match="RUNNING cannot follow ENDED"):
        world.detached._detached["job"].drive("h/a")
    assert world.detach() == ""
    world.detached.end_driver("job", 1, {})
    assert world.detached.is_detached("job")


def test_a_driver_is_started_where_somebody_answers() -> None:
    world = World("here/a", "here/b", "there/c")
    scheduler: Any = world.detached._scheduler
    scheduler.client_comms["me"] = SimpleNamespace(comm=SimpleNamespace(peer_address="tcp://here:1"))
    world.detached.detach({"job_id": "job"}, client="me")
    world.jobs["job"] = SimpleNamespace(state=SimpleNamespace(phase="running", incarnation=0))
    assert world.started == ["here/a"]
    world.silent = {"here/a", "here/b"}
    for _ in range(3):
        world.detached.tick()
    assert world.started == ["here/a", "there/c"]
    # nobody answers: the driver that is there may be the first that does again
    for silent in (set(world.workers), {"here/a"}):
        world.silent = silent
        world.detached.tick()
        assert world.started[2:] == [] and world.detached.renew("job", 2)
    world.silent = {"here/a", "there/c"}
    world.detached.tick()
    assert world.started[2:] == ["here/b"]
    # one that is gone is not the last resort
    world.silent = set(world.workers)
    del world.workers["here/b"]
    world.detached.lose("here/b")
    assert world.started[3:] == [] and world.detached.worker_of("job") == ""
    world.silent = {"there/c"}
    world.detached.tick()
    assert world.started[3:] == ["here/a"]
    # one that has ended is not started again
    world.detached.end_driver("job", world.detached._detached["job"].number, {})
    world.silent = {"here/a"}
    world.detached.tick()
    assert world.started[4:] == []


@pytest.mark.parametrize("seed", range(100))
def test_whoever_falls_silent_drivers_are_where_somebody_answers(seed: int) -> None:
    draw, world, n = random.Random(seed), World("h/a", "h/b", "g/c"), 3
    for job_id in "12":
        world.detach(job_id)
        world.jobs[job_id] = SimpleNamespace(state=SimpleNamespace(phase="running", incarnation=0))
    where = {job_id: world.detached.worker_of(job_id) for job_id in "12"}
    for _ in range(60):
        n_before, answered = len(world.started), set(world.workers) - world.silent
        there = sorted(world.workers)
        what = draw.random()
        if what < 0.3 and there:
            world.silent.add(draw.choice(there))
        elif what < 0.6 and world.silent:
            world.silent.remove(draw.choice(sorted(world.silent)))
        elif what < 0.7 and there:
            gone = draw.choice(there)
            del world.workers[gone]
            world.silent.discard(gone)
            world.detached.lose(gone)
        elif what < 0.85:
            n += 1
            world.workers[f"h/{n}"] = SimpleNamespace(status=Status.running, host="h", processing={})
        world.detached.tick()
        now = {job_id: world.detached.worker_of(job_id) for job_id in "12"}
        answers = set(world.workers) - world.silent
        for job_id in "12":
            assert now[job_id] in answers or not answers, "it is where somebody answers"
            if where[job_id] in answered & answers:
                assert now[job_id] == where[job_id], "it stays where somebody answers"
        assert len(world.started) - n_before <= 4, "each is started once for a loss, and once by a look"
        where = now


def test_a_job_of_which_nobody_can_tell_whether_there_is_room_leaves_the_line() -> None:
    world = World("h/a")
    for job_id in "ab":
        world.queue(job_id)

    def check_room(cluster: ClusterConf) -> None:
        raise KeyError("a screw is loose")

    world.detached.start_next(check_room)
    reason = "the scheduler cannot tell whether there is room: KeyError: 'a screw is loose'"
    assert world.history.facts["a"].reason == world.detached.state_of("a")["failure"]["reason"] == reason
    assert world.start_next(has_room=True) == ["b"]


def test_a_job_without_a_dask_worker_for_its_driver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.detach()
    assert world.detached.state_of("job") == {"state": "starting"}
    monkeypatch.setitem(LIMITS, "driver", Limit("there is a Dask worker", "0s"))
    world.detached.tick()
    found = world.detached.state_of("job")
    assert (found["state"], found["failure"]["exit_code"]) == ("refused", 3)


def test_a_job_in_line_has_a_driver_once_it_is_its_turn_and_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("h/a")
    assert [world.queue(job_id, job_id == "c") for job_id in "abc"] == ["", "", ""]
    assert "already running or queued" in world.queue("a")
    assert world.start_next(has_room=False) == []
    assert world.detached.state_of("c") == {"state": "queued", "place": 1, "reason": "no room."}
    assert world.detached.state_of("b")["place"] == 3
    # once, however often it is asked
    assert [world.start_next(has_room=True) for _ in range(3)] == [["c"]] * 3
    assert world.started == ["h/a"]
    # somebody else had the room
    world.detached.end_driver("c", 1, {"reason": "taken.", "exit_code": 3, "again": True})
    assert world.start_next(has_room=True) == []
    assert world.detached.state_of("c")["reason"] == "taken."
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    world.detached.end_driver("c", 1, {"reason": "taken.", "exit_code": 3, "again": True})
    assert world.start_next(has_room=True) == ["c"]
    assert (world.detached.renew("c", 1), world.detached.renew("c", 2)) == (False, True)
    world.waiting.leave("c")
    world.jobs["c"] = SimpleNamespace(state=SimpleNamespace(phase="running", incarnation=0))
    assert world.detached.stop("a", "SIGTERM", by="me")
    assert world.history.facts["a"].state == "stopped"
    assert world.history.facts["a"].reason == "stopped by me while it was queued"
    assert world.start_next(has_room=True) == ["b", "c"]


@pytest.mark.parametrize(
    ("error", "waits"),
    [(UnloadableError("no such package."), False), (CommClosedError("it is gone"), True), (LateError(), True)],
    ids=repr,
)
def test_a_job_in_line_waits_for_dask_workers_that_may_be_back(error: Exception, waits: bool) -> None:
    world = World("h/a", "h/b")
    for job_id in "ab":
        world.queue(job_id)
    world.start_next(has_room=True)

    async def answer(*given: Any) -> Exception:
        return error

    world.detached._sites = cast("Any", SimpleNamespace(install=answer, ask=answer))
    driven = world.detached._detached["a"]
    for _ in range(2):
        asyncio.run(world.detached._drive(driven, driven.number, has_begun=False))
    assert world.started == ["h/a", "h/b"]
    assert world.waiting.has("a") == waits
    assert world.start_next(has_room=True) == ([] if waits else ["b"])
    if waits:
        driven.not_before = 0.0
        assert world.start_next(has_room=True) == ["a"]
    else:
        reason = world.history.facts["a"].reason
        said = "h/a: no such package. h/b: no such package."
        assert reason == f"no Dask worker can run the driver of the job: {said}"


@pytest.mark.parametrize(
    ("error", "begun", "runs", "number", "reason"),
    [
        (NotNowError("the job does not fit."), False, [], 1, "the job does not fit."),
        (DataError("x.arrow: no such file."), False, ["b"], 1, "x.arrow: no such file."),
        (
            TakenOverError("/run: another process writes there now."),
            True,
            ["b"],
            1,
            "/run: another process writes there now.",
        ),
        (UnheardError("the scheduler does not answer."), True, ["a", "b"], 2, ""),
        (UnheardError("the scheduler does not answer."), False, [], 1, "the scheduler does not answer."),
    ],
    ids=repr,
)
def test_a_driver_that_ends_while_the_scheduler_does_not_answer_stops_no_other_job(
    error: Exception, begun: bool, runs: list[str], number: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, host = World("h/a"), DriverHost()
    for job_id in "ab":
        world.queue(job_id)
    assert world.start_next(has_room=True) == ["a"]
    if begun:
        world.waiting.leave("a")
        world.jobs["a"] = SimpleNamespace(state=SimpleNamespace(phase="running", incarnation=0))
    late: list[BaseException] = [LateError(), CommClosedError("it is gone")]

    def ask(loop: Any, driven: Callable[..., None], callback_timeout: float, **facts: Any) -> None:
        if late:
            raise late.pop()
        driven(**facts)

    def carry_out(run: JobRun, lease: Lease) -> None:
        raise error

    monkeypatch.setattr(driver_host, "sync", ask)
    monkeypatch.setattr(driver_host, "TELL_AGAIN_S", 0.0)
    monkeypatch.setattr(host, "_carry_out", carry_out)
    scheduler = SimpleNamespace(**{Op.DRIVER_ENDED: world.detached.end_driver})
    host.setup(cast("Any", SimpleNamespace(handlers={}, scheduler=scheduler, loop=None)))
    host._run(JobRun.of(digits("single"), job_id="a", recording={}), Lease(1, has_begun=False, is_saved=True))
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    world.detached.tick()
    assert world.start_next(has_room=True) == runs
    assert world.detached._detached["a"].number == number
    in_line = {**world.waiting.facts(), **world.history.facts}.get("a", JobFacts(id="a"))
    assert (world.detached._detached["a"].failure or {"reason": in_line.reason})["reason"] == reason


def test_a_kept_job_without_checkpoints_is_told_what_it_can_lose(tmp_path: Path) -> None:
    without = digits("single", "checkpoint_freq=0").model_dump()
    assert World().detached.loss_of(without) == ""
    with dask.config.set({"distributed.singa-dask.state": str(tmp_path)}):
        drivers = World().detached
    assert "the job starts over" in drivers.loss_of(without)
    for key in ("checkpoint_freq=10", "checkpoint_minutes=10"):
        assert drivers.loss_of(digits("single", key).model_dump()) == ""


def test_one_that_is_stopped_before_it_began_does_not_begin() -> None:
    world = World("h/a")
    world.detach()
    facts = {"id": "job", "name": "job", "owner": "me@here", "run_url": "/run", "topology": {}, "train_steps": 1}
    world.waiting.turn({**facts, "detached": True}, "client")
    assert world.waiting.stop("job", "SIGTERM")
    assert world.waiting.is_stopped("job")
    assert world.detached.stop("job", "SIGINT", by="me")
    assert not world.detached.renew("job", 1)
    assert world.detached.state_of("job")["failure"]["exit_code"] == 130
    assert not world.waiting.has("job")
    assert world.history.facts["job"].reason == "stopped by me before the job had started"
    assert not world.detached.stop("job", "SIGINT")


def test_a_job_that_has_begun_goes_on_while_nobody_can_write_its_run_directory() -> None:
    world = World("h/a")
    world.detach()
    world.jobs["job"] = SimpleNamespace(state=SimpleNamespace(phase="running", incarnation=0))
    world.detached.end_driver("job", 1, {"reason": "a disk is full.", "exit_code": 1, "elsewhere": True})
    assert world.detached.is_detached("job")
    assert world.told[0]["message"] == "no process writes the run directory: a disk is full."
    assert world.detached.state_of("job") == {"state": "running"}


@pytest.mark.parametrize("when", ["save", "install", "never"])
@pytest.mark.parametrize("what", ["stopped", "lost"])
def test_a_job_that_is_stopped_while_its_driver_starts_gets_none(
    when: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, asked = World("h/a", "h/b"), list[str]()
    world.detach()

    def at(step: str) -> Callable[..., Any]:
        async def answer(*given: Any, **named: Any) -> None:
            asked.append(step)
            if step == when and what == "stopped":
                assert world.detached.stop("job", "SIGKILL")
            elif step == when:
                world.detached.lose("h/a")

        return answer

    monkeypatch.setattr(world.detached, "save", at("save"))
    world.detached._sites = cast("Any", SimpleNamespace(install=at("install"), ask=at("ask")))
    asyncio.run(world.detached._drive(world.detached._detached["job"], 1, has_begun=False))
    assert asked == {"save": ["save"], "install": ["save", "install"], "never": ["save", "install", "ask"]}[when]


def test_it_is_said_of_a_job_that_has_begun_that_no_dask_worker_takes_its_driver() -> None:
    world = World("h/a")
    world.detach()
    world.jobs["job"] = SimpleNamespace(state=SimpleNamespace(phase="running", incarnation=0))

    async def answer(*given: Any) -> Exception:
        return CommClosedError("it is gone")

    world.detached._sites = cast("Any", SimpleNamespace(install=answer, ask=answer))
    asyncio.run(world.detached._drive(world.detached._detached["job"], 1, has_begun=True))
    assert world.told[0]["message"] == "no process writes the run directory: h/a: CommClosedError: it is gone."


def test_a_scheduler_that_was_replaced_takes_and_starts_nothing(tmp_path: Path) -> None:
    """Its queued jobs end there, its drivers leave, and what it keeps is the newer one's."""

    async def replace() -> None:
        with dask.config.set({"distributed.singa-dask.state": str(tmp_path)}):
            world, newer = World("h/a"), World("h/a")
        for each in (world, newer):
            each.scheduler.loop = SimpleNamespace(
                run_in_executor=IOLoop.current().run_in_executor, add_callback=each.started_later
            )
            await each.detached.restore()
        assert [world.detach("failed"), world.detach("done"), world.detach("running"), world.queue("waits")] == [""] * 4
        world.detached.end_driver("failed", 1, {"reason": "of its own", "exit_code": 1})
        world.history.facts["done"] = JobFacts(id="done", state="done")  # its driver writes the summary
        world.jobs["running"] = SimpleNamespace(state=SimpleNamespace(phase="running", incarnation=0))
        assert world.detached.renew("running", 1)
        assert "A newer scheduler has taken over" in await world.detached.save("running", incarnation=1)
        assert not world.detached.renew("running", 1)
        assert "A newer scheduler has taken over" in world.detach("another")
        world.detached.tick()
        assert world.history.facts["waits"].state == "failed"
        assert world.detached.state_of("waits")["failure"]["exit_code"] == 3
        assert world.detached._detached["failed"].failure["reason"] == "of its own"
        assert [world.detached.is_detached(job_id) for job_id in ("done", "running")] == [True, True]
        world.detached.lose("h/a")
        world.detached.tick()
        await world.detached._drive(world.detached._detached["running"], 1, True)  # there are no sites to ask
        assert world.start_next(has_room=True) == []
        assert world.started == ["h/a"] * 3
        assert newer.detached.taken_over == ""

    asyncio.run(replace())
    assert [path.name for path in tmp_path.iterdir()] == ["owner.json"]


def test_a_scheduler_that_was_replaced_begins_no_incarnation() -> None:
    """Its number may be that of an incarnation of the newer one."""

    async def keep(job_id: str, incarnation: int) -> str:
        drivers.taken_over = "a newer scheduler has the job."
        return drivers.taken_over

    said: list[Any] = []
    drivers = SimpleNamespace(taken_over="", save=keep)
    jobs: Any = SimpleNamespace(detached=drivers, sites=None, handle=lambda job_id, event: said.append(event))
    record: Any = SimpleNamespace(spec=SimpleNamespace(job_id="job", driver=1))
    asyncio.run(perform(Host(2, 0, "h/a", cast("Any", None), {}), record, jobs))
    assert said == [Hosted(2, 0, error="a newer scheduler has the job.", final=True)]
