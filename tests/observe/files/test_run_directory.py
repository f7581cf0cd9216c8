"""Everything about a run can be read in its directory, on a local disk and elsewhere."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from singa_dask import fs
from singa_dask.errors import ConfigError, DataError
from singa_dask.fs.ownership import OWNER
from singa_dask.observe import new_job_id, to_json
from singa_dask.observe.files import journal, run_directory
from singa_dask.observe.files.run_directory import OWN_FILES, RunDirectory, newest_run

STARTED = {"event": "started", "job": "j", "time": 0.0, "topology": {}}
METRICS = {"event": "metrics", "phase": "train", "group": 0, "step": 10, "time": 1.5, "loss": 0.25, "accuracy": 0.5}
CHECKPOINT = {"event": "checkpoint", "step": 11, "url": "somewhere"}
LOG = {"event": "log", "unit": "worker-0-1", "time": 0.0, "level": "INFO", "message": "hello\nthere"}


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "run") if request.param == "local" else f"memory://{uuid.uuid4().hex}/run"


def read(url: str, name: str) -> str:
    return fs.read_bytes(fs.join(url, name)).decode()


def metrics_of(url: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read(url, "metrics.jsonl").splitlines()]


def test_a_run_is_written_down(url: str) -> None:
    with RunDirectory(url, "name: a\n", "name: a\nseed: 0\n") as directory:
        for event in (STARTED, METRICS, CHECKPOINT, LOG):
            directory.on_event(event)
    directory.finish({"state": "done", "train": {"loss": math.nan}})
    assert read(url, "job.yaml") == "name: a\n"
    assert read(url, "resolved.yaml") == "name: a\nseed: 0\n"
    assert metrics_of(url) == [METRICS, CHECKPOINT]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO hello\nthere\n", read(url, "log/worker-0-1.log"))
    assert json.loads(read(url, "summary.json")) == {"state": "done", "train": {"loss": None}}


def test_bad_records_have_a_file_of_their_own(url: str) -> None:
    bad = {"unit": "worker-0-0", "layer": "data", "url": "x.bin", "block": 0, "row": 3, "reason": "no record"}
    with RunDirectory(url, "", "") as directory:
        for event in (STARTED, {"event": "bad_record", **bad, "worker": "tcp://1.2.3.4:5"}, METRICS):
            directory.on_event(event)
    assert [json.loads(line) for line in read(url, "bad_records.jsonl").splitlines()] == [bad]
    assert metrics_of(url) == [METRICS]


def test_metrics_can_be_read_while_the_run_goes_on(tmp_path: Path) -> None:
    with RunDirectory(str(tmp_path), "", "") as directory:
        directory.on_event(STARTED)
        directory.on_event(METRICS)
        assert metrics_of(str(tmp_path)) == [METRICS]


def test_a_checkpoint_saves_metrics_where_files_cannot_grow() -> None:
    url = f"memory://{uuid.uuid4().hex}"
    with RunDirectory(url, "", "") as directory:
        for event in (STARTED, METRICS, CHECKPOINT):
            directory.on_event(event)
        assert metrics_of(url) == [METRICS, CHECKPOINT]


def test_a_resumed_run_goes_on_in_the_same_files(url: str) -> None:
    for goes_on in (False, True):
        with RunDirectory(url, f"{goes_on}", "", goes_on=goes_on) as directory:
            directory.on_event(STARTED)
            directory.on_event(METRICS)
    assert metrics_of(url) == [METRICS, METRICS]
    assert read(url, "job.yaml") == "True"


def test_a_run_that_is_there_is_not_written_over(url: str) -> None:
    RunDirectory(url, "first", "").on_event(STARTED)
    with pytest.raises(ConfigError, match=r"a run is already there\. Continue it"):
        RunDirectory(url, "second", "")
    assert read(url, "job.yaml") == "first"


def test_a_job_that_never_started_leaves_nothing(url: str) -> None:
    with RunDirectory(url, "", ""):
        pass
    assert not fs.exists(url)


def test_a_refused_job_removes_its_own_files_alone(url: str) -> None:
    first, again = {"time": 0.0}, {"time": 1.0}
    for theirs in ("log/driver.log", "notes.txt", ""):
        if theirs:
            fs.write_atomic(fs.join(url, theirs), "theirs\n")
        with RunDirectory(url, "", "", command=first) as directory:
            directory.on_event({**LOG, "event": "notice", "unit": "driver"})
            directory.on_event(STARTED)
            directory.withdraw()
        left = [name for name in (*OWN_FILES, OWNER, "log/driver.log", "notes.txt") if fs.exists(fs.join(url, name))]
        assert left == [theirs] * bool(theirs)
        if theirs:
            assert read(url, theirs).startswith("theirs\n")
            fs.remove_tree(url)
    for events in ([], [STARTED]):
        with RunDirectory(url, "", "", replaces=True, command=first) as directory:
            for event in ({**LOG, "event": "notice", "unit": "driver"}, *events):
                directory.on_event(event)
            directory.withdraw()
        assert not [name for name in (*OWN_FILES, OWNER, "log/driver.log") if fs.exists(fs.join(url, name))]
    if fs.local_path(url):
        assert not fs.exists(url)
    with RunDirectory(url, "", "", command=first) as directory:
        directory.on_event(STARTED)
    with RunDirectory(url, "", "", goes_on=True, command=again) as directory:
        directory.on_event(STARTED)
        directory.withdraw()
    assert len(read(url, "commands.jsonl").splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "start"), [("digits-mlp", "digits-mlp"), ("a b/ö?", "a-b-ö"), ("..", "job"), ("", "job")]
)
def test_job_ids_are_fit_for_file_names(name: str, start: str) -> None:
    assert re.fullmatch(re.escape(start) + r"-\d{8}-\d{6}-[0-9a-f]{4}", new_job_id(name))


def test_the_newest_run_with_a_checkpoint_is_found(tmp_path: Path) -> None:
    for run in ("m-20250101-000000-aaaa", "m-20260101-000000-0000", "m-x-20270101-000000-0000"):
        (tmp_path / run / "checkpoint").mkdir(parents=True)
    (tmp_path / "m-20280101-000000-0000").mkdir()
    assert newest_run(str(tmp_path), "m") == str(tmp_path / "m-20260101-000000-0000")


@pytest.mark.parametrize("parent", ["empty", "missing"])
def test_no_run_to_resume_is_said(tmp_path: Path, parent: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no run of job 'm' with a checkpoint"):
        newest_run(str(tmp_path / parent), "m")


def test_json_has_null_for_what_is_not_finite() -> None:
    assert to_json({"a": [math.inf, 1.0], "b": (math.nan,)}) == '{"a": [null, 1.0], "b": [null]}'


COMMAND = {"time": 100.0, "arguments": ["singa-dask", "run"], "init_from": []}


def event(step: int, phase: str = "train", group: int = 0, time: float = 0.0, **found: float) -> dict[str, Any]:
    return {"event": "metrics", "phase": phase, "group": group, "step": step, "time": time, **found}


def test_what_is_measured_again_takes_the_place_of_what_was(url: str) -> None:
    first = [event(0, loss=1.0), event(2, "test"), event(2), {**CHECKPOINT, "step": 2}, event(4), event(3, group=1)]
    again = [event(2, "test", time=1.0), event(2, time=1.0), event(4, time=1.0)]
    with RunDirectory(url, "", "") as directory:
        for each in (STARTED, *first):
            directory.on_event(each)
    with RunDirectory(url, "", "", goes_on=True, steps={0: 2, 1: 3}) as directory:
        for each in (STARTED, *again):
            directory.on_event(each)
    assert metrics_of(url) == [event(0, loss=1.0), {**CHECKPOINT, "step": 2}, *again]


def test_a_test_of_the_first_step_that_is_not_done_again_stays(url: str) -> None:
    with RunDirectory(url, "", "") as directory:
        for each in (STARTED, event(2, "test", loss=1.0), event(2)):
            directory.on_event(each)
    with RunDirectory(url, "", "", goes_on=True, steps={0: 2}) as directory:
        for each in (STARTED, event(2)):
            directory.on_event(each)
    assert metrics_of(url) == [event(2, "test", loss=1.0), event(2)]


def test_a_line_that_was_cut_off_by_a_kill_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(event(0)) + '\n{"event": "metr')
    with RunDirectory(str(tmp_path), "", "", goes_on=True, steps={0: 5}) as directory:
        for each in (STARTED, event(5)):
            directory.on_event(each)
    assert metrics_of(str(tmp_path)) == [event(0), event(5)]


def test_the_summary_of_a_resumed_run_is_of_all_of_it(url: str) -> None:
    def run(start: float, steps: dict[int, int], killed: bool, *events: dict[str, Any]) -> dict[str, Any]:
        command = {**COMMAND, "time": start}
        with RunDirectory(url, "", "", goes_on=bool(steps), steps=steps, command=command) as directory:
            for each in (STARTED, *events):
                directory.on_event(each)
            if killed:
                return {}
            summary = {"steps": 8, "seconds": 2.5, "train": {}, "test": {"loss": 0.1}, "validation": {}}
            return directory.finish(summary)

    first = run(100.0, {}, True, event(2, time=104.0, loss=0.5), event(2, "validation", time=105.0, loss=0.4))
    assert first == {}
    second = run(200.0, {0: 4}, False)
    assert (second["seconds"], second["resumes"]) == (7.5, 1)
    assert (second["train"], second["test"], second["validation"]) == ({"loss": 0.5}, {"loss": 0.1}, {"loss": 0.4})
    assert json.loads(read(url, "summary.json")) == second
    assert run(300.0, {0: 8}, False)["seconds"] == 10.0
    commands = [json.loads(line) for line in read(url, "commands.jsonl").splitlines()]
    assert [(each["time"], each["seconds_before"]) for each in commands] == [(100.0, 0.0), (200.0, 5.0), (300.0, 7.5)]


def test_a_run_that_goes_on_without_a_step_left_has_the_result_of_all_of_it(url: str) -> None:
    base = {"accuracy": {"value": 0.5, "answer": "always saying 'a'", "records": 100}}
    said = []
    for steps in ({}, {0: 8}):
        baselines = {} if steps else {"train": base}
        learning = {"baselines": baselines, "broken": {}, "changes": {}}
        with RunDirectory(url, "", "", goes_on=bool(steps), steps=steps, command=COMMAND) as directory:
            for each in (STARTED,) if steps else (STARTED, event(7, accuracy=0.9)):
                directory.on_event(each)
            phases = {"train": {} if steps else {"accuracy": 0.9}, "test": {}, "validation": {}}
            summary = {"state": "done", "steps": 8, "seconds": 1.0, "learning": learning, **phases}
            said.append(directory.finish(summary)["learning"]["sentences"])
    assert said == [["train accuracy 0.9000; always saying 'a' has 0.5000"]] * 2


def test_what_a_job_has_already_is_not_advised(url: str) -> None:
    base = {"accuracy": {"value": 0.5, "answer": "always saying 'a'", "records": 100, "classes": 2}}
    phases = {"train": {"accuracy": 0.5}, "test": {}, "validation": {}}
    store = "neuralnet: {layer: [{name: data, type: RecordInput, store_conf: {standardise: true}}]}"
    with RunDirectory(url, "", store) as directory:
        directory.on_event(STARTED)
        learning = {"baselines": {"train": base}, "broken": {}, "changes": {}}
        whole = directory.finish({"state": "done", "steps": 1000, "seconds": 1.0, "learning": learning, **phases})
    said = whole["learning"]["sentences"]
    assert "find-rate" in said[-1] and "standardise" not in said[-1]


def test_waits_for_cores_are_of_the_steps_since_a_run_was_resumed(url: str) -> None:
    waits = {"wait_ms": {"cores": 20.0}, "step_ms": {"median": 50.0}}
    learning = {"baselines": {}, "broken": {}, "changes": {}}
    said = []
    for steps in ({}, {0: 800}):
        with RunDirectory(url, "", "", goes_on=bool(steps), steps=steps, command=COMMAND) as directory:
            directory.on_event(STARTED)
            summary = {"state": "done", "steps": 1000, "seconds": 1.0, "learning": learning, **waits}
            whole = directory.finish({**summary, "train": {}, "test": {}, "validation": {}})
        said.append(any("had no core" in each for each in whole["learning"]["sentences"]))
    assert said == [True, False]


def test_a_run_that_is_replaced_leaves_nothing_and_other_files_stay(url: str) -> None:
    with RunDirectory(url, "", "", command=COMMAND) as directory:
        for each in (STARTED, METRICS, LOG):
            directory.on_event(each)
        directory.finish({"seconds": 1.0})
    fs.write_atomic(fs.join(url, "checkpoint", "step-4", "manifest.json"), b"{}")
    fs.write_atomic(fs.join(url, "notes.txt"), b"mine")
    replacing = RunDirectory(url, "new", "", replaces=True, command=COMMAND)
    assert fs.exists(fs.join(url, "checkpoint")), "nothing is deleted before the job starts"
    with replacing as directory:
        directory.on_event(STARTED)
    assert fs.ls(url) == ["commands.jsonl", "job.yaml", "notes.txt", "owner.json", "resolved.yaml"]
    assert read(url, "job.yaml") == "new"


@pytest.mark.parametrize(
    ("name", "replaces"),
    [
        ("job.yaml", False),
        ("summary.json", False),
        ("metrics.jsonl", True),
        ("log/a", True),
        ("checkpoint/a.bin", True),
    ],
)
def test_files_of_other_programs_are_neither_replaced_nor_deleted(url: str, name: str, replaces: bool) -> None:
    fs.write_atomic(fs.join(url, *name.split("/")), b"mine")
    said = f"not a run directory, but it contains {name.partition('/')[0]}, which a run would replace"
    with pytest.raises(ConfigError, match=said), RunDirectory(url, "", "", replaces=replaces) as directory:
        directory.on_event(STARTED)
    assert fs.read_bytes(fs.join(url, *name.split("/"))) == b"mine"


def test_a_run_that_goes_on_in_another_process_is_left_alone(tmp_path: Path) -> None:
    with RunDirectory(str(tmp_path), "", "", command=COMMAND) as directory:
        directory.on_event(STARTED)
        for how in ({"goes_on": True}, {"replaces": True}):
            with pytest.raises(ConfigError, match=f"a run is running there .*process {os.getpid()} on "):
                RunDirectory(str(tmp_path), "", "", **how)
    RunDirectory(str(tmp_path), "", "", goes_on=True)


@pytest.mark.parametrize("how", [{}, {"replaces": True}, {"goes_on": True}])
def test_of_two_runs_that_begin_at_the_same_moment_one_is_refused(tmp_path: Path, how: dict[str, bool]) -> None:
    url, command = str(tmp_path), {**COMMAND, "time": 1.0}
    if how:
        with RunDirectory(url, "old", "old", command={**COMMAND, "time": 0.0}) as before:
            before.on_event(STARTED)
    first, second = (RunDirectory(url, text, text, command=command, **how) for text in ("first", "second"))
    with first, second:
        first.on_event(STARTED)
        with pytest.raises(ConfigError, match=f"a run is running there .*process {os.getpid()} on "):
            second.on_event(STARTED)
        second.withdraw()
        assert read(url, "job.yaml") == "first"
    assert len(read(url, "commands.jsonl").splitlines()) == (2 if "goes_on" in how else 1)


def test_a_run_that_begins_after_a_short_one_is_refused(tmp_path: Path) -> None:
    first, second = (RunDirectory(str(tmp_path), text, text, command=COMMAND) for text in ("first", "second"))
    with first:
        first.on_event(STARTED)
    with second, pytest.raises(ConfigError, match="a run is already there"):
        second.on_event(STARTED)


def test_checkpoints_after_the_step_at_which_a_run_goes_on_are_deleted(url: str) -> None:
    for step in (2, 4, 6):
        fs.write_atomic(fs.join(url, "checkpoint", f"step-{step}", "manifest.json"), b"{}")
    fs.write_atomic(fs.join(url, "checkpoint", "notes", "a"), b"mine")
    with RunDirectory(url, "", "", goes_on=True, steps={0: 4}) as directory:
        directory.on_event(STARTED)
    assert fs.ls(fs.join(url, "checkpoint")) == ["notes", "step-2", "step-4"]


# -- a disk that is full ------------------------------------------------------------------------------------------


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the warnings of run directories."""
    said: list[str] = []
    monkeypatch.setattr(run_directory.logger, "warning", lambda text, *values: said.append(text % values))
    return said


def test_a_run_goes_on_with_one_warning_where_the_disk_is_full(tmp_path: Path, warnings: list[str]) -> None:
    with RunDirectory(str(tmp_path), "", "") as directory:
        directory.on_event(STARTED)
        directory.on_event(METRICS)
        (tmp_path / "log").mkdir()
        (tmp_path / "log" / "worker-0-1.log").symlink_to("/dev/full")
        for step in range(11, 15):
            directory.on_event(LOG)
            directory.on_event({**METRICS, "step": step})
    (warning,) = warnings
    assert re.search(r"worker-0-1\.log: .*No space left on device.* The job continues", warning)
    assert [event["step"] for event in metrics_of(str(tmp_path))] == list(range(10, 15))
    directory.finish({"state": "done"})


def test_a_line_is_written_whole_or_not_at_all(tmp_path: Path, warnings: list[str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RunDirectory(str(tmp_path), "", "") as directory:
        directory.on_event(STARTED)
        directory.on_event(METRICS)
        size = (tmp_path / "metrics.jsonl").stat().st_size
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, before[1]))
            directory.on_event({**METRICS, "step": 11})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        directory.on_event({**METRICS, "step": 12})
    assert [event["step"] for event in metrics_of(str(tmp_path))] == [10, 12]
    assert len(warnings) == 1
    assert "File too large" in warnings[0]


def test_a_start_or_a_summary_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "run").write_text("in the way")
    with pytest.raises(DataError, match="run"):
        RunDirectory(str(tmp_path / "run"), "", "").on_event(STARTED)
    directory = RunDirectory(str(tmp_path / "other"), "", "")
    directory.on_event(STARTED)
    (tmp_path / "other" / "summary.json").mkdir()
    with pytest.raises(DataError, match=r"summary\.json"):
        directory.finish({"state": "done"})


def test_files_elsewhere_are_not_written_again_for_each_event(monkeypatch: pytest.MonkeyPatch) -> None:
    url, n_writes, now = f"memory://{uuid.uuid4().hex}/run", 0, [100.0]
    real = fs.write_atomic

    def write(place: str, *args: Any, **kwargs: Any) -> None:
        nonlocal n_writes
        n_writes += place.endswith("metrics.jsonl")
        now[0] += 0.01
        real(place, *args, **kwargs)

    monkeypatch.setattr(fs, "write_atomic", write)
    monkeypatch.setattr(journal.time, "monotonic", lambda: now[0])
    with RunDirectory(url, "", "") as directory:
        directory.on_event(STARTED)
        for step in range(1000):
            now[0] += 0.005
            directory.on_event({**METRICS, "step": step})
        assert 4 <= n_writes <= 6
        assert 700 < len(metrics_of(url)) < 1000
    assert len(metrics_of(url)) == 1000


COMMAND = {"time": 1.0, "arguments": []}


def resumed(url: str, **command: Any) -> dict[str, Any]:
    """Go on with a run; return its summary."""
    with RunDirectory(url, "name: a\n", "name: a\n", goes_on=True, command={**COMMAND, **command}) as directory:
        directory.on_event(STARTED)
        directory.on_event(METRICS)
        return directory.finish({"state": "done", "seconds": 2.0, "train": {}, "test": {}, "validation": {}})


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-9], lambda text: "", lambda text: "{}\n[]\n", lambda text: None]
)
def test_a_run_whose_list_of_commands_is_damaged_goes_on(tmp_path: Path, damage: Any) -> None:
    url, file = str(tmp_path), tmp_path / "commands.jsonl"
    resumed(url)
    left = damage(file.read_text())
    file.unlink() if left is None else file.write_text(left)
    whole = resumed(url, time=5.0)
    assert (whole["resumes"], whole["seconds"]) == (0, 2.0)
    assert [each["time"] for each in journal.read_objects(str(file)) if "time" in each] == [5.0]


def test_a_run_directory_that_is_removed_is_told_and_written_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = str(tmp_path / "run")
    with RunDirectory(url, "name: a\n", "name: a\nseed: 0\n", command=COMMAND) as directory:
        directory.on_event(STARTED)
        directory.on_event(METRICS)
        shutil.rmtree(url)
        directory.on_event({**METRICS, "step": 11})
        assert "metrics.jsonl: the file was removed by another program" in caplog.text
        directory.on_event({**METRICS, "step": 12})
        assert caplog.text.count("removed") == 1
        whole = directory.finish({"state": "done", "seconds": 2.0, "train": {}, "test": {}, "validation": {}})
    assert "job.yaml: the file was removed" in caplog.text
    assert whole["seconds"] == 2.0
    assert [each["step"] for each in metrics_of(url)] == [11, 12]
    assert read(url, "resolved.yaml") == "name: a\nseed: 0\n"
    assert journal.read_objects(f"{url}/commands.jsonl") == [{**COMMAND, "seconds_before": 0.0}]


def test_a_line_that_was_left_incomplete_spoils_no_other(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text('{"a": 1}\n{"b":')
    kept = journal.Journal(str(file))
    kept.add('{"c": 3}')
    kept.close()
    assert journal.read_objects(str(file)) == [{"a": 1}, {"c": 3}]


def test_a_file_elsewhere_that_has_every_line_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"memory://{uuid.uuid4().hex}/metrics.jsonl"
    opened = journal.Journal(url)
    opened.add("{}")
    opened.save()
    fs.remove_tree(url)
    opened.close()
    assert not fs.exists(url)
