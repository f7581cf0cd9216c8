"""Reading of run directories: of runs that are done, that go on, and that were killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from singa_dask.errors import ConfigError
from singa_dask.observe.files.job_values import flatten
from singa_dask.observe.files.run_directory import RunDirectory
from singa_dask.observe.files.stored_run import StoredRun, short_names
from tests.observe.runs import BEGAN, JOB, metrics, training, write_run


def test_a_run_is_read(tmp_path: Path) -> None:
    run = StoredRun(write_run(tmp_path / "a", training(), {}))
    assert (run.name, run.state, run.job["name"]) == ("a", "done", "digits")
    assert len(run.metrics) == 15
    assert run.commands[0]["host"] == "here"


def test_a_run_in_memory_is_read() -> None:
    url = "memory://stored/run"
    with RunDirectory(url, "name: a", "name: a") as directory:
        directory.on_event({"event": "started", "time": BEGAN})
        directory.on_event(metrics(0, loss=1.0))
    run = StoredRun(url)
    assert (run.name, run.state, [event["loss"] for event in run.metrics]) == ("run", "lost", [1.0])


def test_a_running_run_is_read_without_its_half_written_line(tmp_path: Path) -> None:
    command = {"time": 0.0, "arguments": []}
    with RunDirectory(str(tmp_path), JOB, "name: a", command=command) as directory:
        directory.on_event({"event": "started", "time": BEGAN})
        directory.on_event(metrics(0, loss=1.0))
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.write('{"event": "metrics", "st')
        run = StoredRun(str(tmp_path))
        assert (run.state, len(run.metrics)) == ("running", 1)
    assert StoredRun(str(tmp_path)).state == "lost"


def test_the_summary_of_an_earlier_incarnation_is_not_that_of_a_resumed_run(tmp_path: Path) -> None:
    url = write_run(tmp_path, training(), {})
    with RunDirectory(url, "name: a", "name: a", goes_on=True, command={"time": 0.0, "arguments": []}) as directory:
        directory.on_event({"event": "started", "time": BEGAN})
        assert StoredRun(url).state == "running"


def test_a_directory_without_a_run_names_those_in_it(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [])
    with pytest.raises(ConfigError, match=r"no run is here\. Expected .*resolved\.yaml\. Runs in it: a\."):
        StoredRun(str(tmp_path))


def test_runs_are_named_by_what_tells_them_apart(tmp_path: Path) -> None:
    runs = [StoredRun(write_run(tmp_path / name, [])) for name in ("x/run", "y/run", "y/other")]
    assert short_names(runs[1:]) == ["run", "other"]
    assert short_names(runs) == ["x/run", "y/run", "y/other"]


def test_keys_of_a_job_are_named_as_set_takes_them(tmp_path: Path) -> None:
    found = flatten(StoredRun(write_run(tmp_path, [])).job)
    assert found["cluster.nworker_groups"] == 1
    assert found["neuralnet.layer[fc].innerproduct_conf.num_output"] == 10
    assert found["neuralnet.layer[data#2].type"] == "RecordInput"
