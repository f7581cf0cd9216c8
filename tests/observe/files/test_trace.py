"""``trace.json`` is whole after each event, and viewers can read it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from singa_dask.observe.files import trace_file
from singa_dask.observe.files.run_directory import RunDirectory
from singa_dask.observe.files.trace_file import write_spans

STARTED = {"event": "started", "job": "j", "time": 1000.0, "topology": {}}
HOST = {"host": "10.0.0.1", "began": 900.0, "offset_s": 0.0, "error_s": 0.0}


def record(directory: RunDirectory, process: int, *spans: list[Any], incarnation: int = 0, **given: Any) -> None:
    """Write what a process has recorded, and say so."""
    facts = {"process": process, "incarnation": incarnation, "recorded": len(spans), "spans": spans}
    write_spans(directory.url, {**HOST, **facts, **given})
    directory.on_event({"event": "profile", "process": process})


def span(name: str, start_s: float, track: str = "worker-0-0", arrow: str = "", **arguments: Any) -> list[Any]:
    return [track, name, "step", int(start_s * 1e9), 5_000_000, arguments, arrow]


def trace_of(url: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((url / "trace.json").read_text())
    return found


def shown(url: Path) -> list[tuple[int, str]]:
    return [(each["pid"], each["name"]) for each in trace_of(url)["traceEvents"] if each["ph"] == "X"]


def test_times_count_from_the_start_of_the_run_on_the_clock_of_the_scheduler(tmp_path: Path) -> None:
    with RunDirectory(str(tmp_path), "", "") as directory:
        directory.on_event(STARTED)
        record(directory, 0, span("step 20", 102.0, step=20))
        record(directory, 1, span("step 20", 202.0), began=300.0, offset_s=500.0, error_s=0.001)
    found = trace_of(tmp_path)
    first, second = (each for each in found["traceEvents"] if each["ph"] == "X")
    assert first == {
        "name": "step 20", "cat": "step", "ph": "X", "pid": 0, "tid": 0, "ts": 2e6, "dur": 5000.0, "args": {"step": 20}
    }  # fmt: skip
    assert second["ts"] == 2e6
    assert found["otherData"]["began"] == 1000.0
    facts = {"index": 1, "incarnation": 0, "host": "10.0.0.1", "clock_error_ms": 1.0, "dropped": 0}
    assert found["otherData"]["processes"][1] == facts


def test_units_and_messages_are_named_and_in_order(tmp_path: Path) -> None:
    with RunDirectory(str(tmp_path), "", "") as directory:
        directory.on_event(STARTED)
        spans = span("update", 102.0, "messages sent", "out 0-1-7"), span("update fc1.w", 102.0, "server-0-0")
        record(directory, 0, *spans)
        record(directory, 1, span("update", 102.1, "messages received", "in 0-1-7"))
    events = trace_of(tmp_path)["traceEvents"]
    threads = [each["args"]["name"] for each in events if each["name"] == "thread_name"]
    ranks = [each["args"]["sort_index"] for each in events if each["name"] == "thread_sort_index"]
    assert list(zip(threads, ranks, strict=True)) == [("messages sent", 2), ("server-0-0", 1), ("messages received", 3)]
    begin, end = (each for each in events if each["cat" if "cat" in each else "name"] == "message" and "id" in each)
    assert (begin["ph"], begin["id"], begin["pid"]) == ("s", "0x100000007", 0)
    assert (end["ph"], end["id"], end["pid"], end["bp"]) == ("f", "0x100000007", 1, "e")


def test_a_newer_incarnation_replaces_what_a_process_did_before(tmp_path: Path) -> None:
    with RunDirectory(str(tmp_path), "", "") as directory:
        directory.on_event(STARTED)
        record(directory, 0, span("step 20", 102.0), span("step 21", 103.0), recorded=5)
        record(directory, 1, span("step 20", 102.0))
        record(directory, 1, span("step 30", 110.0), incarnation=10)
        record(directory, 1, span("late", 102.0), incarnation=9)
    assert shown(tmp_path) == [(0, "step 20"), (0, "step 21"), (1, "step 30")]
    assert [each["dropped"] for each in trace_of(tmp_path)["otherData"]["processes"]] == [3, 0]


def test_it_is_written_a_while_after_the_last_process_has_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [10.0]
    monkeypatch.setattr(trace_file, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    with RunDirectory(str(tmp_path), "", "") as directory:
        directory.on_event(STARTED)
        record(directory, 0, span("step 20", 102.0))
        record(directory, 1, span("step 20", 102.0))
        directory.on_event({"event": "steps", "steps": {"0": 30}})
        assert not (tmp_path / "trace.json").exists()
        clock[0] += 1
        directory.on_event({"event": "steps", "steps": {"0": 40}})
        assert shown(tmp_path) == [(0, "step 20"), (1, "step 20")]


def test_another_driver_goes_on_with_it(tmp_path: Path) -> None:
    with RunDirectory(str(tmp_path), "", "") as directory:
        directory.on_event(STARTED)
        record(directory, 0, span("step 20", 102.0))
    with RunDirectory(str(tmp_path), "", "", driver=2) as directory:
        directory.on_event({**STARTED, "time": 2000.0, "begun": True})
        record(directory, 1, span("step 20", 103.0))
    assert shown(tmp_path) == [(0, "step 20"), (1, "step 20")]
    assert [each["ts"] for each in trace_of(tmp_path)["traceEvents"] if each["ph"] == "X"] == [0.0, 1e6]


def test_a_run_that_starts_over_has_nothing_of_the_one_before(tmp_path: Path) -> None:
    for name, given in (("first", {}), ("second", {"goes_on": True})):
        with RunDirectory(str(tmp_path), "", "", **given) as directory:
            directory.on_event(STARTED)
            if name == "first":
                record(directory, 1, span(name, 102.0))
            record(directory, 0, span(name, 102.0))
    assert shown(tmp_path) == [(0, "second")]


def test_processes_on_other_disks_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RunDirectory(str(tmp_path), "", "") as directory:
        directory.on_event(STARTED)
        directory.on_event({"event": "profile", "process": 0})
    assert "The job continues" in caplog.text


def test_a_run_that_is_not_profiled_has_none(tmp_path: Path) -> None:
    with RunDirectory(str(tmp_path), "", "") as directory:
        directory.on_event(STARTED)
    assert not (tmp_path / "trace.json").exists()
