"""A process that was replaced while it slept changes nothing in a run directory, whatever it was doing."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from singa_dask import fs
from singa_dask.errors import TakenOverError
from singa_dask.observe.files import journal, run_directory, trace_file
from singa_dask.observe.files.journal import Journal
from singa_dask.observe.files.run_directory import RunDirectory
from singa_dask.observe.programs.observers import Observers
from singa_dask.observe.programs.tensorboard_files import TensorboardFiles

STARTED = {"event": "started", "time": 0.0, "topology": {}}
BEGUN = {**STARTED, "begun": True}
SUMMARY = {"state": "done", "seconds": 2.0, "train": {}, "test": {}, "validation": {}}
RECORDED = {"process": 0, "incarnation": 0, "host": "", "began": 0.0, "recorded": 1, "offset_s": 0.0, "error_s": 0.0}


def metrics(step: int) -> dict[str, Any]:
    return {"event": "metrics", "phase": "train", "group": 0, "step": step, "time": 1.5, "loss": 0.25}


EVENTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "metrics.jsonl": metrics,
    "log": lambda n: {"event": "log", "unit": "driver", "time": 0.0, "level": "INFO", "message": f"{n}"},
    "bad_records.jsonl": lambda n: {"event": "bad_record", "unit": "worker-0-0", "row": n},
    "trace.json": lambda n: {"event": "profile", "process": 0},
}
"""By what they are written to: events, each another one by its number."""


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for module in (journal, trace_file):
        monkeypatch.setattr(module, "REWRITE_S", 0.0)
    monkeypatch.setattr(journal, "REWRITE_SHARE", 0)
    monkeypatch.setattr(run_directory, "is_in_use", lambda url: False)  # as on a filesystem without locks
    begin = RunDirectory._begin

    def begin_with_spans(self: RunDirectory) -> None:
        begin(self)
        trace_file.write_spans(self.url, {**RECORDED, "spans": [["worker-0-0", "step", "step", 1, 2, {}, ""]]})

    monkeypatch.setattr(RunDirectory, "_begin", begin_with_spans)
    return str(tmp_path / "run") if request.param == "local" else f"memory://{uuid.uuid4().hex}/run"


def all_of(url: str) -> dict[str, bytes]:
    """Return the content of all files of a directory but those that are being written."""
    found = {}
    for name, is_folder, _ in fs.entries(url):
        inner = fs.join(url, name)
        found |= {f"{name}/{key}": each for key, each in all_of(inner).items()} if is_folder else {}
        found |= {} if is_folder or name.endswith(".tmp") else {name: fs.read_bytes(inner)}
    return found


def owner(url: str, **given: Any) -> RunDirectory:
    return RunDirectory(url, "name: a", "name: a", command={"time": 1.0, "arguments": []}, **given)


def driver(url: str) -> RunDirectory:
    """Return the directory of the driver that follows the job after the first one."""
    newer = owner(url, job_id="job", driver=2)
    newer.on_event(BEGUN)
    return newer


def resumed(url: str) -> RunDirectory:
    """Return the directory of a run that goes on after the first client, which sleeps."""
    newer = RunDirectory(url, "name: a", "name: a", goes_on=True, steps={0: 2}, job_id="later")
    newer.on_event(STARTED)
    return newer


def replace(url: str, newer: RunDirectory, n: int = 9) -> dict[str, bytes]:
    """Record the run to its end; return all files."""
    with newer:
        for make in EVENTS.values():
            for k in range(n):
                newer.on_event(make(k))
        newer.finish(SUMMARY)
    return all_of(url)


WAYS = pytest.mark.parametrize(("number", "replaced_by"), [(1, driver), (0, resumed)])


@WAYS
@pytest.mark.parametrize("kind", EVENTS)
def test_one_that_sleeps_before_it_records_an_event(url: str, kind: str, number: int, replaced_by: Any) -> None:
    sleeper = owner(url, job_id="job", driver=number)
    with sleeper:
        for event in (STARTED, *map(EVENTS[kind], range(3))):
            sleeper.on_event(event)
        wanted = replace(url, replaced_by(url))
        with pytest.raises(TakenOverError, match="another process writes there now"):
            sleeper.on_event(EVENTS[kind](7))
        # and in the rest of a page
        with suppress(TakenOverError):
            sleeper.on_event(EVENTS[kind](8))
        assert all_of(url) == wanted
    assert all_of(url) == wanted
    assert len(wanted["metrics.jsonl"].splitlines()) >= 9


@WAYS
@pytest.mark.parametrize("kind", EVENTS)
def test_one_that_sleeps_before_it_records_the_first_event(url: str, kind: str, number: int, replaced_by: Any) -> None:
    """It makes no file of a kind that its successor needed none of."""
    sleeper = owner(url, job_id="job", driver=number)
    with sleeper:
        sleeper.on_event(STARTED)
        with replaced_by(url) as newer:
            newer.finish(SUMMARY)
        wanted = all_of(url)
        with suppress(TakenOverError):  # a span is only kept for the end
            sleeper.on_event(EVENTS[kind](7))
    assert all_of(url) == wanted


@pytest.mark.parametrize("kind", [kind for kind in EVENTS if kind != "trace.json"])
def test_one_that_sleeps_between_its_last_look_and_its_line(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, done = str(tmp_path / "run"), {}
    monkeypatch.setattr(run_directory, "is_in_use", lambda url: False)
    sleeper = owner(url, job_id="job", driver=1)
    check = sleeper._owner.check

    def sleep() -> None:
        check()
        if not done:
            done.update(replace(url, driver(url)))

    with sleeper:
        for event in (STARTED, *map(EVENTS[kind], range(3))):
            sleeper.on_event(event)
        monkeypatch.setattr(sleeper._owner, "check", sleep)
        sleeper.on_event(EVENTS[kind](20))
        assert all_of(url) == done
        with pytest.raises(TakenOverError):
            sleeper.on_event(EVENTS[kind](21))
    assert all_of(url) == done
    assert done


@WAYS
def test_one_that_sleeps_before_it_saves_lines(
    url: str, number: int, replaced_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "REWRITE_S", 1e9)
    sleeper = owner(url, job_id="job", driver=number)
    with sleeper:
        for event in (STARTED, *map(metrics, range(3))):
            sleeper.on_event(event)
        wanted = replace(url, replaced_by(url))
    assert all_of(url) == wanted


@WAYS
def test_one_that_sleeps_before_it_writes_the_summary(url: str, number: int, replaced_by: Any) -> None:
    sleeper = owner(url, job_id="job", driver=number)
    with sleeper:
        for event in (STARTED, *map(metrics, range(3))):
            sleeper.on_event(event)
        wanted = replace(url, replaced_by(url))
        with pytest.raises(TakenOverError):
            sleeper.finish({**SUMMARY, "state": "failed"})
    assert all_of(url) == wanted


@pytest.mark.parametrize("start", [STARTED, BEGUN])
def test_one_that_sleeps_before_it_begins(url: str, start: dict[str, Any]) -> None:
    sleeper = owner(url, job_id="job", driver=1, replaces=True)
    newer = owner(url, job_id="job", driver=2, replaces=True)
    newer.on_event(STARTED)
    wanted = replace(url, newer)
    fs.write_atomic(fs.join(url, "checkpoint/step-5/manifest.json"), b"")
    with sleeper, pytest.raises(TakenOverError):
        sleeper.on_event(start)
    assert all_of(url) == {**wanted, "checkpoint/step-5/manifest.json": b""}


CHANGES = [
    (RunDirectory, "_write"),
    (RunDirectory, "_remove"),
    (Journal, "filter"),
    (Journal, "clear"),
    (Journal, "save"),
]
"""What a process does one after the other as it begins."""


@pytest.mark.parametrize("how", ["replaces", "goes_on"])
@pytest.mark.parametrize("n", range(1, 15))
def test_one_that_sleeps_while_it_begins(url: str, how: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sleeps before its ``n``-th change; if it makes fewer, it has begun by then."""
    with owner(url, job_id="before") as before:
        for event in (STARTED, *({**metrics(k), "time": 0.5} for k in range(9))):
            before.on_event(event)
    for step in (3, 6):
        fs.write_atomic(fs.join(url, f"checkpoint/step-{step}/manifest.json"), b"")
    given: dict[str, Any] = {"job_id": "job", how: True, "steps": {0: 4} if how == "goes_on" else {}}
    wanted, left = dict[str, bytes](), n

    def sleep() -> None:
        nonlocal left
        left -= 1
        if not left:
            newer = owner(url, driver=2, **given)
            newer.on_event(STARTED)
            fs.write_atomic(fs.join(url, "checkpoint/step-8/manifest.json"), b"")
            wanted.update(replace(url, newer))

    def asleep_before(change: Any, *given: Any) -> None:
        sleep()
        change(*given)

    for kind, name in CHANGES:
        real = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *given, real=real: asleep_before(real, *given))
    sleeper = owner(url, driver=1, **given)
    with sleeper, suppress(TakenOverError):
        sleeper.on_event(STARTED)
        while left > 0:
            sleep()
        sleeper.on_event(metrics(7))
    assert all_of(url) == wanted


def test_one_that_has_not_begun_is_not_refused_by_the_run_before(url: str) -> None:
    with owner(url, job_id="before") as before:
        before.on_event(STARTED)
    waits = owner(url, job_id="job", goes_on=True)
    with waits:  # in line
        waits.on_event(EVENTS["log"](0))
        waits.on_event(STARTED)
        waits.on_event(metrics(0))
    assert json.loads(all_of(url)["metrics.jsonl"])["step"] == 0


def test_event_files_are_not_written_by_one_that_was_replaced(url: str) -> None:
    sleeper, files = owner(url, job_id="job", driver=1), TensorboardFiles(url)
    with suppress(TakenOverError), Observers([files]), sleeper:
        for event in (STARTED, metrics(0)):
            sleeper.on_event(event)
            files.on_event(event)
        newer, its_files = driver(url), TensorboardFiles(url)
        its_files.on_event(BEGUN)
        replace(url, newer)
        its_files.on_event(metrics(8))
        its_files.close()
        wanted = all_of(url)
        sleeper.on_event(metrics(7))
    assert all_of(url) == wanted
