"""Verbs for jobs on a cluster: tables, descriptions, and each verb on real jobs of others."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest

from singa_dask.cli import job_verbs
from singa_dask.cli.clusters import describe_cluster
from singa_dask.cli.job_verbs import columns, describe, of_runs
from singa_dask.cli.printing import table
from singa_dask.observe.files import run_list
from singa_dask.runtime import connect
from tests.cli.conftest import TINY, Call
from tests.cli.test_stops import ALLREDUCE, PROGRAM
from tests.faults.parts import HELD
from tests.runtime.processes import cluster, wait_until

NOW = 1_800_000_000.0
ROW = {
    "id": "digits-20261102-120000-bbbb",
    "name": "digits",
    "owner": "anna@host",
    "state": "running",
    "standing": "running",
    "step": 1200,
    "train_steps": 2500,
    "loss": 0.23124,
    "samples_per_s": 3210.4,
    "began": NOW - 200,
    "ended": None,
    "reason": "",
    "run_url": "/runs/digits-20261102-120000-bbbb",
}
WIDE = """\
job                          name    owner      state         step    loss  samples/s  since
digits-20261102-120000-bbbb  digits  anna@host  running  1200/2500  0.2312       3210  3 min
mnist-1                      digits  anna@host  lost             0                       2 d
"""
NARROW = """\
job                          state         step    loss
digits-20261102-120000-bbbb  running  1200/2500  0.2312
mnist-1                      lost             0
"""


@pytest.mark.parametrize(("width", "text"), [(None, WIDE), (120, WIDE), (60, NARROW)])
def test_a_list_is_as_wide_as_the_terminal(width: int | None, text: str) -> None:
    other = {
        "id": "mnist-1",
        "state": "lost",
        "standing": "lost",
        "step": 0,
        "train_steps": 0,
        "loss": None,
        "samples_per_s": None,
    }
    rows = [ROW, {**ROW, **other, "ended": NOW - 180_000}]
    assert "".join(f"{line}\n" for line in table(columns(rows, NOW), width)) == text


@pytest.mark.parametrize(
    ("in_files", "shown"),
    [
        ({"id": "c", "ended": NOW - 10}, "second"),
        ({"id": "second", "ended": NOW + 1}, "second"),
        ({"id": "later", "ended": NOW + 1}, "later"),
        ({"id": "run", "ended": None}, "run"),
    ],
)
def test_a_directory_of_runs_shows_the_newest_job_of_each(
    in_files: dict[str, Any], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that the scheduler does not know, because the run was resumed without it."""
    jobs = [{**ROW, "id": "second", "ended": NOW}, {**ROW, "id": "first", "ended": NOW - 100}]
    monkeypatch.setattr(job_verbs, "of_cluster", lambda *where: jobs)
    monkeypatch.setattr(run_list, "list_runs", lambda url: [{**ROW, **in_files}])
    assert [row["id"] for row in of_runs("/runs", "tcp://x:1", None)] == [shown]


DESCRIBED = """\
digits-20261102-120000-bbbb: running for 3 min, by anna@host
step 1200 of 2500, 3210 samples/s
train: loss = 0.2312
run directory: /runs/digits-20261102-120000-bbbb

unit        step  process  start  host   Dask worker    waits for
worker-0-0  1200        0      1  node1  tcp://node1:1  data (12 s)
server-0-0              1      1  node2  tcp://node2:1

restarts: 1
  process 1 of the job: it is gone.

"""


def test_a_job_is_described() -> None:
    job = {
        **ROW,
        "metrics": {"train": {"loss": 0.23124}},
        "restarts": 1,
        "reasons": ["process 1 of the job: it is gone."],
        "processes": [
            {"units": ["worker-0-0"], "address": "tcp://node1:1", "host": "node1", "incarnation": 1,
             "steps": {"0": 1200}, "waits": {"worker-0-0": ["data", 12.3]}},
            {"units": ["server-0-0"], "address": "tcp://node2:1", "host": "node2", "incarnation": 1, "steps": {},
             "waits": {}},
        ],
        "events": [
            {"event": "placed", "unit": "driver", "time": NOW, "incarnation": 1, "processes": [0, 1]},
            {"event": "checkpoint", "unit": "worker-0-0", "time": NOW, "step": 100, "url": "/runs/x/step-100"},
            {"event": "log", "unit": "worker-0-0", "time": NOW, "message": "starts at step 0"},
        ],
    }  # fmt: skip
    lines = list(describe(job, None, NOW))
    assert "".join(f"{line}\n" for line in lines[:-3]) == DESCRIBED
    assert [line[10:] for line in lines[-3:]] == [
        "start 1: units placed in 2 processes",
        "worker-0-0: checkpoint of step 100: /runs/x/step-100",
        "worker-0-0: starts at step 0",
    ]
    # a job that waits after a restart of the scheduler may have made steps before
    assert "step - of 2500" in describe({**job, "step": -1, "samples_per_s": 0.0}, None, NOW)


@pytest.mark.parametrize("verb", ["attach", "checkpoint", "kill", "logs", "stack", "stop", "view"])
def test_a_verb_needs_a_cluster(call: Call, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    result = call(verb, "digits")
    assert result.exit_code == 2
    assert "which cluster? Pass --scheduler ADDRESS or --scheduler-file FILE" in result.stderr


def test_a_driver_on_a_silent_dask_worker_is_not_waited_for_without_end() -> None:
    jobs: Any = SimpleNamespace(view=lambda job_id: {"driver": "tcp://here:1", "detached": True, "run_url": "/run"})
    said: list[str] = []
    with dask.config.set({"distributed.singa-dask.answer": "0s"}):
        job_verbs.tell_learning(jobs, "job", lambda event: said.append(event["message"]))
    assert said == [
        "job: its driver on the Dask worker at tcp://here:1 has not written the summary within 0 s. "
        "singa-dask show /run reads it later."
    ]


def test_an_empty_list_is_said(call: Call, tmp_path: Path) -> None:
    result = call("list", "--runs", tmp_path)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no jobs.\n")


# -- on a cluster -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a cluster of three processes, without a dashboard; give its scheduler file."""
    with cluster(tmp_path_factory.mktemp("cluster"), *SLOW_JOBS, names="ab") as (made, _):
        yield made.file


SLOW_JOBS = ("--no-nanny", "--preload", "tests.faults.parts")
"""Options of Dask workers on which jobs can be `slow`."""


def slow(run: Path) -> Path:
    """Let steps of a run take a second each from the third on: the processors are left to those who look at it."""
    run.mkdir()
    (run / HELD).write_text("3")
    return run


class Others:
    """A job that somebody else runs: ``singa-dask run`` in a process of its own."""

    def __init__(self, scheduler: str, folder: Path, name: str) -> None:
        file = folder / f"{name}.yaml"
        file.write_text(TINY.replace("name: tiny", f"name: {name}").replace("test_freq: 3", "test_freq: 0"))
        self.run = slow(folder / name)
        command = ["run", file, "--set", "train_steps=1000000", *ALLREDUCE, "--scheduler-file", scheduler]
        self.process = start(*command, "--run-dir", self.run)
        self.said = [self.until("Train @ step 2:")]

    def until(self, text: str) -> str:
        """Read what is printed up to a line that begins with a text; return it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith(text):
                return line.rstrip()
        raise AssertionError(f"{text!r} was not printed")

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit code, and what was printed."""
        _, said = self.process.communicate()
        return self.process.returncode, said


def start(*arguments: Any) -> subprocess.Popen[str]:
    """Start ``singa-dask`` in a process of its own."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.long
@pytest.mark.cluster
def test_another_user_looks_at_a_job_and_stops_it(
    scheduler: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = ("--scheduler-file", scheduler)
    assert (call("list", *on).stdout, call("list", *on).exit_code) == ("", 0)
    job = Others(scheduler, tmp_path, "anna")
    (row,) = json.loads(call("list", *on, "--json").stdout)
    assert (row["name"], row["state"], row["train_steps"], row["ended"]) == ("anna", "running", 1_000_000, None)
    piece = row["id"][-4:]
    with connect(None, scheduler) as client:
        assert describe_cluster(client) == f"Dask scheduler: {client.scheduler.address}, 1 other job running"

    view = json.loads(call("view", piece, *on, "--json").stdout)
    assert [each["units"] for each in view["processes"]] == [["worker-0-0", "server-0-0"], ["worker-0-1", "server-0-1"]]
    assert f"{row['id']}: running for" in call("view", "anna", *on).stdout

    stack = call("stack", piece, *on, "--unit", "worker-0-1")
    assert stack.exit_code == 0, stack.output
    assert stack.stdout.startswith("worker-0-1 on tcp://127.0.0.1:") and "worker.run()" in stack.stdout
    assert "server-0-0" not in stack.stdout
    wrong = call("stack", piece, *on, "--unit", "worker-9-9")
    assert (wrong.exit_code, "Known: worker-0-0, " in wrong.stderr) == (2, True)

    written = call("checkpoint", piece, *on)
    assert written.exit_code == 0, written.output
    assert Path(written.stdout.strip(), "manifest.json").is_file()
    assert "server-0-1: holds " in call("logs", piece, *on).stdout
    assert "INFO holds " in call("logs", piece, *on, "--unit", "server-0-1").stdout

    assert [each["id"] for each in json.loads(call("list", "--mine", *on, "--json").stdout)] == [row["id"]]
    with monkeypatch.context() as patch:
        patch.setenv("LOGNAME", "eve")
        assert json.loads(call("list", "--mine", *on, "--json").stdout) == []
        for verb in ("stop", "kill"):  # nobody answers
            asked = call(verb, "anna", *on)
            assert (asked.exit_code, asked.stdout) == (2, "")
            assert f"{row['id']} is a job of {row['owner']}. End it? [y/N]:" in asked.stderr
            assert f"{row['id']}: it is a job of {row['owner']}, and continues. Pass --yes to end it." in asked.stderr
        stopped = call("stop", "anna", "--yes", *on)
    assert stopped.exit_code == 0, stopped.output
    assert "stopped by " in stopped.stderr
    code, said = job.end()
    assert code == 143, said
    assert ": stopping with a checkpoint." in said
    assert (job.run / "summary.json").exists(), said
    summary = json.loads((job.run / "summary.json").read_text())
    assert (summary["state"], summary["reason"].startswith("stopped by ")) == ("stopped", True)
    assert "@" in summary["reason"]
    again = call("stop", "anna", *on)
    assert (again.exit_code, "has ended already" in again.stderr) == (0, True)
    listed = call("list", "--runs", tmp_path)
    assert (listed.exit_code, "stopped" in listed.stdout) == (0, True)


@pytest.mark.cluster
@pytest.mark.long
def test_ctrl_c_detaches_and_a_killed_job_tells_those_who_watch(scheduler: str, tmp_path: Path, call: Call) -> None:
    on = ("--scheduler-file", scheduler)
    job = Others(scheduler, tmp_path, "bert")
    watchers = [start("attach", "bert", *on) for _ in range(2)]
    for watcher in watchers:
        assert watcher.stderr is not None
        assert any(line.startswith("Train @ step") for line in watcher.stderr)
    os.kill(watchers[0].pid, signal.SIGINT)
    _, said = watchers[0].communicate()
    assert watchers[0].returncode == 0
    assert "detached; the job continues: singa-dask attach bert-" in said
    killed = call("kill", "bert", *on)
    assert killed.exit_code == 0, killed.output
    assert re.search(r"^killed: \d+ steps?; see ", killed.stderr, re.MULTILINE), killed.output
    _, said = watchers[1].communicate()
    assert watchers[1].returncode == 137
    assert "killed by " in said
    code, said = job.end()
    assert (code, "killed by " in said) == (137, True)
    assert call("attach", "bert", *on).exit_code == 137


@pytest.mark.cluster
@pytest.mark.long
def test_a_detached_job_outlives_those_who_watch_it(scheduler: str, tmp_path: Path, call: Call) -> None:
    on = ("--scheduler-file", scheduler)
    file, run = tmp_path / "carl.yaml", slow(tmp_path / "carl")
    file.write_text(TINY.replace("name: tiny", "name: carl").replace("test_freq: 3", "test_freq: 0"))
    begun = call("run", file, "--set", "train_steps=1000000", *ALLREDUCE, *on, "--run-dir", run, "--detach")
    assert begun.exit_code == 0, begun.output
    watcher = start("attach", "carl", *on)
    assert watcher.stderr is not None
    assert any(line.startswith("Train @ step") for line in watcher.stderr)
    watcher.kill()
    watcher.communicate()
    written = call("checkpoint", "carl", *on)
    assert written.exit_code == 0, written.output
    assert Path(written.stdout.strip()).parent == run / "checkpoint"
    assert "worker.run()" in call("stack", "carl", *on).stdout
    assert call("stop", "carl", *on).exit_code == 0
    wait_until((run / "summary.json").exists, "the driver has written the summary")
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["state"], summary["reason"].startswith("stopped by ")) == ("stopped", True)
