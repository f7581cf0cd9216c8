"""A driver without a cluster: errors of a callback, a stderr that is gone, and who drives the job from then on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from singa_dask.errors import ReplacedError, SingaError, UnitError
from singa_dask.runtime.job.driver import driver_host, job_run
from singa_dask.runtime.job.driver.driver import Lease, UnheardError, said_late
from singa_dask.runtime.job.driver.driver_host import DriverHost
from singa_dask.runtime.job.driver.job_run import JobRun
from singa_dask.runtime.job.driver.result import Result
from singa_dask.runtime.job.names import Op
from tests.runtime.processes import digits, driver_of

LOST = "stderr cannot be written: its reader is gone."


class Recorder(nullcontext[None]):
    """A run directory or observers that are nowhere."""

    summary: Mapping[str, Any] = MappingProxyType({})

    def on_event(self, event: dict[str, Any]) -> None:
        pass

    def finish(self, summary: Mapping[str, Any]) -> Mapping[str, Any]:
        self.summary = summary
        return summary


class FakeDriver:
    """A driver whose job has some events, and ends with a result or an error."""

    has_begun = True

    result: Any = None

    def __init__(self, job: Any, client: Any, *, on_event: Any, **given: Any) -> None:
        self.on_event = on_event
        self.stopped: list[str] = []
        self.warned: list[str] = []

    def stop(self, signal_name: str, by: str) -> None:
        self.stopped.append(f"{signal_name}: {by}")

    def warn(self, message: str) -> None:
        self.warned.append(message)
        self.on_event({"event": "log", "message": message})

    def run(self) -> Any:
        for kind in ("queued", "placed", "metrics"):
            self.on_event({"event": kind})
        if self.result is None:
            raise UnitError("a unit failed.")
        return self.result


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> list[FakeDriver]:
    """Gather the drivers, which drive nothing."""
    monkeypatch.setattr(job_run, "Driver", FakeDriver)
    return []


def carry_out(drivers: list[FakeDriver], on_event: Any, nowhere: Any = None) -> None:
    run, nowhere = JobRun.of(digits("single"), job_id="job", recording={}), nowhere or Recorder()
    run.carry_out(cast("Any", None), nowhere, nowhere, on_event, cast("Any", drivers.append))


def test_an_error_of_a_callback_stops_the_job_once_and_is_raised(drivers: list[FakeDriver]) -> None:
    def fail(event: dict[str, Any]) -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        carry_out(drivers, fail)
    assert drivers[0].stopped == ["SIGTERM: ValueError('a bug') in on_event"]
    with pytest.raises(SingaError, match="a unit failed"):
        carry_out(drivers, lambda event: None)
    assert drivers[1].stopped == []


@pytest.mark.parametrize(("state", "written"), [("stopped", "failed"), ("done", "done")])
def test_a_job_that_an_error_of_a_callback_has_stopped_has_failed(
    state: str, written: str, drivers: list[FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Recorder()
    phases: dict[str, Any] = {"train": {}, "test": {}, "validation": {}}
    times: dict[str, Any] = {"seconds": 1.0, "step_ms": {}, "samples_per_s": 0.0, "wait_ms": {}}
    result = Result("digits", "job", state, steps=4, topology={}, restarts=0, bytes={}, **phases, **times)

    def fail(event: dict[str, Any]) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(FakeDriver, "result", result)
    with pytest.raises(ValueError, match="a bug"):
        carry_out(drivers, fail, directory)
    assert directory.summary["state"] == written


@pytest.mark.parametrize("lost", [LOST, ""])
def test_a_stderr_that_is_lost_is_said_once_in_the_log(
    lost: str, drivers: list[FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by a queued job: its run directory is not there yet."""
    seen: list[str] = []
    monkeypatch.setattr(job_run, "STDERR", SimpleNamespace(lost=lost))
    with pytest.raises(UnitError):
        carry_out(drivers, lambda event: seen.append(event["event"]))
    assert drivers[0].warned == ([lost] if lost else [])
    assert seen == ["queued", "placed", *(["log"] if lost else []), "metrics"]


@pytest.mark.parametrize(
    ("heard", "is_saved", "error"),
    [
        ("another driver", False, ReplacedError),
        ("another driver", True, ReplacedError),
        ("nothing", True, UnheardError),
        ("nothing", False, None),  # nobody else ends the job
        ("the end", True, None),
    ],
)
def test_a_driver_leaves_the_job_to_those_who_go_on_with_it(
    heard: str, is_saved: bool, error: type[Exception] | None, tmp_path: Path
) -> None:
    client: Any = SimpleNamespace(id="me")
    lease, given = Lease(2, has_begun=True, is_saved=is_saved), {"run_url": str(tmp_path), "job_id": "job"}
    driver = driver_of(digits("single"), client, on_event=lambda event: None, lease=lease, **given)
    follower = cast("Any", driver._follower)
    nothing = follower._give_up("the scheduler has not answered for 60 s")
    over = {"another driver": None, "nothing": nothing, "the end": replace(nothing, is_heard=True)}[heard]
    follower.follow_to_its_end = lambda: over
    if error is None:
        assert driver.run().state == "failed"
    else:
        with pytest.raises(error) as caught:
            driver.run()
        assert caught.type is error


class Leaving(DriverHost):
    """A Dask worker that closes, with a scheduler that does not answer."""

    def __init__(self) -> None:
        self.n_told = 0
        self.setup(
            cast("Any", SimpleNamespace(handlers={}, scheduler=SimpleNamespace(**{Op.DRIVER_ENDED: None}), loop=None))
        )
        self._leaving.set()

    def tell(self, *given: Any, **facts: Any) -> None:
        self.n_told += 1
        assert self.n_told < 9
        raise TimeoutError


def test_a_dask_worker_that_closes_starts_no_driver_and_waits_for_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Leaving()
    run = JobRun.of(digits("single"), job_id="job", recording={})
    monkeypatch.setattr(driver_host, "sync", host.tell)
    monkeypatch.setattr(host, "_carry_out", lambda run, lease: host._on_driver(cast("Any", None)))
    host._run(run, Lease(1, has_begun=False))
    assert host.n_told == 0  # the job has not ended
    monkeypatch.setattr(host, "_carry_out", lambda run, lease: None)
    host._run(run, Lease(1, has_begun=False))
    assert host.n_told == 1


def test_a_long_wait_is_said_once_and_a_short_one_is_not() -> None:
    lines, is_said = list[str](), threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        is_said.set()

    with said_late("short", say, 3600):
        pass
    with said_late("long", say, 0):
        assert is_said.wait(60)
    assert lines == ["long"]
