"""A queued job that cannot start: it waits for room, and for nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from distributed import Client

from singa_dask.errors import (
    ClusterError,
    ConfigError,
    DataError,
    NoAnswerError,
    NotNowError,
    ReplacedError,
    SingaError,
    UnloadableError,
)
from singa_dask.runtime import Driver
from singa_dask.runtime.job.client import detached
from singa_dask.runtime.job.dask_tasks import on_dask
from singa_dask.runtime.job.driver import driver as module
from singa_dask.runtime.job.driver import driver_host, job_run
from singa_dask.runtime.job.driver.driver import Lease, UnheardError
from singa_dask.runtime.job.driver.driver_host import DriverHost
from singa_dask.runtime.job.driver.job_run import JobRun
from singa_dask.runtime.job.driver.locality import Placed
from singa_dask.runtime.job.names import Op
from tests.runtime.processes import digits

NO_ROOM = NotNowError("the job does not fit.")
UNLOADABLE = UnloadableError("w: the Dask worker cannot load the package: no module. Install it there.")
REFUSED = ClusterError("the scheduler cannot start tasks: OSError: no port.")
ENDS = [UNLOADABLE, REFUSED, DataError("x.arrow: no such file."), KeyError("a screw is loose")]


class Queued(Driver):
    """A driver of the first queued job, whose attempts to begin end with some errors."""

    def __init__(self, directory: Path, *errors: Exception) -> None:
        client = cast("Client", SimpleNamespace(id="me"))
        run = JobRun.of(digits("single"), run_url=str(directory), job_id="job")
        super().__init__(run, client, on_event=self._add, queue=True)
        self.errors = list(errors)
        self.said: list[str] = []
        cast("Any", self._follower).ask = lambda op, **given: {"ahead": [], "end": {}}

    def _add(self, event: dict[str, Any]) -> None:
        self.said.append(event["message"])

    def _wait_for_signal(self) -> None:
        pass

    def _begin(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


def test_a_job_waits_in_line_for_room(tmp_path: Path) -> None:
    driver = Queued(tmp_path, NO_ROOM, NO_ROOM)
    driver._begin_queued()
    assert driver.said == ["first in the queue: the job does not fit."]


@pytest.mark.parametrize("again", [True, False])
def test_the_scheduler_says_whether_a_job_that_it_refuses_may_ask_again(again: bool, tmp_path: Path) -> None:
    driver = Queued(tmp_path)
    driver._has_started = True
    cast("Any", driver._follower).ask = lambda op, **given: ("no.", again)
    with pytest.raises(ClusterError, match="no") as caught:
        driver._submit(Placed(["w"], {}, []))
    assert isinstance(caught.value, NotNowError) == again


def test_a_bug_in_a_check_is_not_taken_for_a_scheduler_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        raise KeyError("a screw is loose")

    monkeypatch.setattr(detached, "install_jobs", lambda client: None)
    monkeypatch.setattr(detached, "ask_jobs", lambda client, op, **given: {})
    monkeypatch.setattr(detached, "check_ended", fail)
    run = JobRun.of(digits("single"), run_url=str(tmp_path), job_id="job")
    with pytest.raises(KeyError, match="a screw is loose"):
        detached.detach(cast("Any", SimpleNamespace(id="me", scheduler=None)), run)


class Unanswered(Driver):
    """A driver whose submission is answered only if its place in the queue is asked for once more."""

    def __init__(self, directory: Path, **given: Any) -> None:
        run = JobRun.of(digits("single"), run_url=str(directory), job_id="job")
        client = cast("Client", SimpleNamespace(id="me"))
        super().__init__(run, client, on_event=lambda event: None, **given)
        self._has_started = True
        self.asked: list[str] = []
        cast("Any", self._follower).ask = self._answer
        cast("Any", self._follower).follow_to_its_end = lambda: None

    def _answer(self, op: str, **given: Any) -> Any:
        self.asked.append(op)
        if op == Op.TURN:
            return {"ahead": [], "end": {}}
        if self.asked.count(Op.TURN) < 2:
            raise NoAnswerError("the scheduler has not answered for 60 s.")
        return "", False

    def _prepare(self) -> None:
        pass

    def _place(self) -> Placed:
        return Placed(["w"], {}, [])

    def _wait_for_signal(self) -> None:
        pass


@pytest.mark.parametrize(
    ("given", "error", "asked"),
    [
        ({"lease": Lease(1, has_begun=False)}, UnheardError, [Op.SUBMIT]),
        ({"lease": Lease(1, has_begun=False, is_saved=True), "queue": True}, UnheardError, [Op.SUBMIT]),
        ({}, NoAnswerError, [Op.SUBMIT]),
        ({"queue": True}, ReplacedError, [Op.TURN, Op.SUBMIT] * 2),
    ],
)
def test_a_submission_without_an_answer_may_run(
    given: dict[str, Any], error: type[Exception], asked: list[str], tmp_path: Path
) -> None:
    """Its driver does not end it: the next one follows it, or the scheduler keeps it in the queue."""
    driver = Unanswered(tmp_path, **given)
    with pytest.raises(error) as caught:
        driver.run()
    assert (caught.type, driver.asked, driver.has_begun) == (error, asked, True)


@pytest.mark.parametrize("answers", [[("no.", True)] * 2, [("no.", False)], [("no.", True), ("", False)]], ids=str)
def test_a_refused_job_is_placed_once_more_and_leaves_no_run_directory(
    answers: list[tuple[str, bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(Driver):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            cast("Any", self._follower).ask = lambda op, **given: left.pop(0)
            cast("Any", self._follower).follow_to_its_end = end

        def _prepare(self) -> None:
            pass

        def _place(self) -> Placed:
            return Placed(["w"], {}, [])

    def end() -> None:
        raise KeyboardInterrupt

    left, url = list(answers), str(tmp_path / "run")
    monkeypatch.setattr(job_run, "Driver", Refused)
    run = JobRun.of(digits("single"), run_url=url, job_id="job", recording={"job_text": "", "resolved_text": ""})
    client = cast("Any", SimpleNamespace(id="me", scheduler=None))
    is_refused = bool(answers[-1][0])
    with pytest.raises(ClusterError if is_refused else KeyboardInterrupt):
        run.carry_out(client, run.directory(), run.observers())
    assert not left
    assert (tmp_path / "run").exists() != is_refused


@pytest.mark.parametrize("error", ENDS, ids=repr)
def test_a_job_that_room_does_not_help_leaves_the_line_to_others(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[Any] = []
    monkeypatch.setattr(module, "ask_jobs", lambda client, op, **given: left.append((op, given["failure"])))
    driver = Queued(tmp_path, NO_ROOM, error)
    with pytest.raises(type(error)):
        driver._begin_queued()
    ((op, failure),) = left
    assert op == Op.LEAVE
    assert str(error) in failure["reason"]
    assert failure["exit_code"] == getattr(error, "exit_code", 1)


def test_a_job_that_is_refused_as_others_wait_leaves_no_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[Any] = []
    run = JobRun.of(digits("single"), run_url=str(tmp_path / "run"), job_id="job")
    driver = Driver(run, cast("Any", SimpleNamespace(id="me")), on_event=published.append)
    asked: list[str] = []

    def ask(op: str, **given: Any) -> str:
        asked.append(op)
        return f"queued on this cluster: 1 job of priority {given['priority']}."

    cast("Any", driver._follower).ask = ask
    with pytest.raises(ClusterError, match="queued on this cluster: 1 job of priority 0"):
        driver.run()
    assert (asked, published) == ([Op.REFUSAL], [])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("error", "again"), [(NO_ROOM, True), (UNLOADABLE, False), (REFUSED, False)])
def test_a_detached_job_waits_in_line_for_room_alone(
    error: SingaError, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []
    host = DriverHost()
    host._drivers, host.worker = (
        {},
        cast("Any", SimpleNamespace(loop=None, scheduler=SimpleNamespace(**{Op.DRIVER_ENDED: 0}))),
    )

    def fail(*given: Any) -> None:
        raise error

    monkeypatch.setattr(host, "_carry_out", fail)
    monkeypatch.setattr(driver_host, "sync", lambda loop, ask, **given: told.append(given["failure"]))
    host._run(JobRun.of(digits("single"), job_id="job", recording={}), Lease(1, has_begun=False))
    assert [(each["again"], each["reason"]) for each in told] == [(again, str(error))]


def test_a_dask_worker_that_cannot_run_a_task_for_want_of_the_package_is_told_from_a_full_one() -> None:
    class Failed:
        def add_done_callback(self, done: Any) -> None:
            done(self)

        def result(self) -> None:
            raise ImportError("w: the Dask worker cannot load the package")

    client: Any = SimpleNamespace(map=lambda *given, **named: [Failed()], cancel=lambda futures: None)
    with pytest.raises(UnloadableError, match="cannot load the package"):
        list(on_dask(client)([lambda: None]))


@pytest.mark.parametrize("way", ["attached", "first in the queue", "detached", "to detach"])
def test_a_job_does_not_start_where_another_one_runs(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(op: str, **given: Any) -> Any:
        asked.append(op)
        return {Op.RUNS: {"other": True}, Op.RENEW: True}.get(op, "")

    monkeypatch.setattr(detached, "install_jobs", lambda client: None)
    monkeypatch.setattr(detached, "ask_jobs", lambda client, op, **given: ask(op, **given))
    published: list[Any] = []
    client = cast("Any", SimpleNamespace(id="me"))
    run = JobRun.of(digits("single"), run_url=str(tmp_path / "run"), job_id="job")
    lease = Lease(1, has_begun=False) if way == "detached" else None
    driver = Driver(run, client, on_event=published.append, lease=lease, queue=way == "first in the queue")
    cast("Any", driver._follower).ask = ask
    with pytest.raises(ConfigError, match="stop other"):
        if way == "attached":
            driver.run()
        elif way == "to detach":
            detached.detach(client, run)
        else:
            driver._submit(Placed(["w"], {}, []))
    assert asked[-1] == Op.RUNS
    assert not {Op.SUBMIT, Op.DETACH} & {*asked}
    assert not published
