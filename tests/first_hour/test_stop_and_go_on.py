"""A run can be stopped at any time, and gone on with; what a cluster lacks is said soon."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.first_hour.conftest import Desk
from tests.ports import free_port
from tests.runtime.processes import wait_until

ENDLESS = ["--set", "train_steps=100000000", "--set", "disp_freq=1"]
# an answer about a scheduler comes after 10 s, on a busy machine too
SOON_S = 40
# in a program: Ctrl-C when it imports a module
INTERRUPTS = """
import os, signal, sys
def interrupt(event, args):
    if event == "import" and args[0] == os.environ["INTERRUPTED_AT"]:
        os.killpg(0, signal.SIGINT)
sys.addaudithook(interrupt)
"""

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def trains(desk: Desk, run_dir: str) -> bool:
    """Return whether a run has written metrics."""
    metrics = desk.directory / run_dir / "metrics.jsonl"
    return metrics.exists() and '"train"' in metrics.read_text()


def summary(desk: Desk, run_dir: str) -> dict[str, object]:
    return dict(json.loads((desk.directory / run_dir / "summary.json").read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_stops_a_run_whose_last_line_goes_on(desk: Desk, number: signal.Signals) -> None:
    process = desk.start("run", "job.yaml", *ENDLESS, "--run-dir", "run")
    wait_until(lambda: trains(desk, "run") or process.poll() is not None, "it trains")
    os.killpg(process.pid, number)
    done = desk.end(process)
    assert done.code == 128 + number, done.err
    last = done.err.splitlines()[-1]
    step = summary(desk, "run")["steps"]
    assert isinstance(step, int)
    assert last.startswith(f"to go on from step {step}: singa-dask run job.yaml")
    again = shlex.split(last.partition(": ")[2])[1:]
    done = desk.singa(*again, "--set", f"train_steps={step + 5}", "--set", "disp_freq=5")
    assert done.code == 0, done.err
    assert summary(desk, "run")["steps"] == step + 5
    assert summary(desk, "run")["resumes"] == 1
    events = [json.loads(line) for line in (desk.directory / "run/metrics.jsonl").read_text().splitlines()]
    steps = [event["step"] for event in events if event.get("phase") == "train"]
    assert steps == sorted(set(steps))
    commands = [json.loads(line) for line in (desk.directory / "run/commands.jsonl").read_text().splitlines()]
    assert [command["arguments"][1:3] for command in commands] == [["run", "job.yaml"]] * 2


@pytest.mark.parametrize("module", ["yaml", "numpy", "psutil", "distributed", "pyarrow", "singa_dask.net"])
def test_ctrl_c_at_the_start_is_one_line(desk: Desk, tmp_path: Path, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    environment = {"PYTHONPATH": str(tmp_path), "INTERRUPTED_AT": module}
    done = desk.end(desk.start("run", "job.yaml", *ENDLESS, "--run-dir", "run", environment=environment))
    assert done.code == 130, done.err
    assert len(done.err.splitlines()) == 1


def test_a_run_that_died_before_its_first_checkpoint_starts_over(desk: Desk) -> None:
    process = desk.start("run", "job.yaml", *ENDLESS, "--run-dir", "run")
    wait_until(lambda: trains(desk, "run"), "it trains")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    for options in (["--resume"], ["--overwrite"]):
        done = desk.singa("run", "job.yaml", "--run-dir", "run", *options)
        assert done.code == 0, done.err
        assert summary(desk, "run")["steps"] == 6


def test_a_run_keeps_as_many_checkpoints_as_the_job_says(desk: Desk) -> None:
    options = ["--set", "checkpoint_freq=1", "--set", "keep_checkpoints=2"]
    assert desk.singa("run", "job.yaml", *options, "--run-dir", "run").code == 0
    assert sorted(path.name for path in (desk.directory / "run/checkpoint").iterdir()) == ["step-5", "step-6"]


def test_a_run_ends_where_it_no_longer_gets_better(desk: Desk) -> None:
    options = ["--set", "early_stopping={metric: test.loss, patience: 2}", "--set", "test_freq=5"]
    # at this rate it gets worse from the start
    options += ["--set", "train_steps=100000", "--set", "updater.learning_rate.base_lr=50"]
    done = desk.singa("run", "job.yaml", *options, "--run-dir", "run")
    assert done.code == 0, done.err
    steps = summary(desk, "run")["steps"]
    assert isinstance(steps, int) and steps < 1000


def test_a_run_is_replaced_only_where_that_is_said(desk: Desk, trained: Path) -> None:
    before = (trained / "metrics.jsonl").read_text()
    done = desk.singa("run", "job.yaml", "--run-dir", trained)
    assert done.code == 2
    assert "--overwrite" in done.err
    assert (trained / "metrics.jsonl").read_text() == before
    assert desk.singa("run", "job.yaml", "--run-dir", trained, "--overwrite").code == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--scheduler-file", "missing.json"],
        ["--scheduler-file", "stale.json"],
        ["--scheduler", "tcp://nowhere.invalid:8786"],
        ["--scheduler", "tcp://127.0.0.1:9"],
    ],
    ids=["no file", "a stale file", "an unknown host", "nobody there"],
)
def test_a_scheduler_that_is_not_there_is_said_soon(desk: Desk, options: list[str]) -> None:
    desk.write("stale.json", json.dumps({"type": "Scheduler", "id": "x", "address": "tcp://127.0.0.1:9"}))
    process = desk.start("run", "job.yaml", *options)
    process.wait(SOON_S)
    done = desk.end(process)
    assert done.code == 3, done.err
    assert options[1] in done.err
    assert len(done.err.splitlines()) <= 3


def test_a_job_waits_for_scheduler_and_workers(desk: Desk) -> None:
    port = free_port()
    waiting = desk.start("run", "job.yaml", "--scheduler", f"tcp://127.0.0.1:{port}", "--wait", 60)
    assert waiting.stderr is not None
    # it has waited for some of the 60 s when it says so for the first time
    assert re.match(r"waiting, \d\d s at most: tcp://", waiting.stderr.readline())
    address = f"tcp://127.0.0.1:{port}"
    commands = [["dask-scheduler", "--host", "127.0.0.1", "--port", str(port)], ["dask-worker", address]]
    environment = desk.environ()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    cluster = [
        subprocess.Popen([*command, "--no-dashboard"], cwd=desk.directory, env=environment, **quiet)
        for command in [commands[0], [*commands[1], "--nthreads", "2", "--local-directory", str(desk.directory)]]
    ]
    try:
        done = desk.end(waiting)
    finally:
        for process in reversed(cluster):
            process.terminate()
            process.wait(60)
    assert done.code == 0, done.err
