"""What a driver is told besides the events of its job: errors of a callback, and a stderr that is gone."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from singa_dask.errors import SingaError, UnitError
from singa_dask.runtime.job import driver as module
from singa_dask.runtime.job.driver import JobRun
from tests.runtime.processes import digits

LOST = "stderr cannot be written: its reader is gone."


class Recorder(nullcontext[None]):
    """A run directory or observers that are nowhere."""

    def on_event(self, event: dict[str, Any]) -> None:
        pass


class FakeDriver:
    """A driver whose job has some events, and ends with an error."""

    def __init__(self, job: Any, client: Any, *, on_event: Any, **given: Any) -> None:
        self.on_event = on_event
        self.stopped: list[str] = []
        self.warned: list[str] = []

    def stop(self, signal_name: str, by: str) -> None:
        self.stopped.append(f"{signal_name}: {by}")

    def warn(self, message: str) -> None:
        self.warned.append(message)
        self.on_event({"event": "log", "message": message})

    def run(self) -> None:
        for kind in ("queued", "placed", "metrics"):
            self.on_event({"event": kind})
        raise UnitError("a unit failed.")


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> list[FakeDriver]:
    """Gather the drivers, which drive nothing."""
    monkeypatch.setattr(module, "Driver", FakeDriver)
    return []


def carry_out(drivers: list[FakeDriver], on_event: Any) -> None:
    run = JobRun.of(digits("single"), job_id="job", recording={})
    nowhere: Any = Recorder()
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


@pytest.mark.parametrize("lost", [LOST, ""])
def test_a_stderr_that_is_lost_is_said_once_in_the_log(
    lost: str, drivers: list[FakeDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by a job in line: its run directory is not there yet."""
    seen: list[str] = []
    monkeypatch.setattr(module, "STDERR", SimpleNamespace(lost=lost))
    with pytest.raises(UnitError):
        carry_out(drivers, lambda event: seen.append(event["event"]))
    assert drivers[0].warned == ([lost] if lost else [])
    assert seen == ["queued", "placed", *(["log"] if lost else []), "metrics"]
