"""A run can be stopped at any time, and gone on with; what a cluster lacks is said soon."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.first_hour.conftest import Desk
from tests.ports import free_port
from tests.runtime.processes import wait_until
from tests.selection import mostly_soak

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

pytestmark = pytest.mark.cluster


def trains(desk: Desk, run_dir: str) -> bool:
    """Return whether a run has written metrics."""
    metrics = desk.directory / run_dir / "metrics.jsonl"
    return metrics.exists() and '"train"' in metrics.read_text()


def summary(desk: Desk, run_dir: str) -> dict[str, object]:
    return dict(json.loads((desk.directory / run_dir / "summary.json").read_text()))


@pytest.mark.long
@pytest.mark.parametrize(
    "module", mostly_soak(["numpy", "yaml", "psutil", "distributed", "pyarrow", "singa_dask.net"], 6)
)
def test_ctrl_c_at_the_start_is_one_line(desk: Desk, tmp_path: Path, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    environment = {"PYTHONPATH": str(tmp_path), "INTERRUPTED_AT": module}
    done = desk.end(desk.start("run", "job.yaml", *ENDLESS, "--run-dir", "run", environment=environment))
    assert done.code == 130, done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.soak
def test_a_run_that_died_before_its_first_checkpoint_starts_over(desk: Desk) -> None:
    process = desk.start("run", "job.yaml", *ENDLESS, "--run-dir", "run")
    wait_until(lambda: trains(desk, "run"), "it trains")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    for options in (["--resume"], ["--overwrite"]):
        done = desk.singa("run", "job.yaml", "--run-dir", "run", *options)
        assert done.code == 0, done.err
        assert summary(desk, "run")["steps"] == 6


@pytest.mark.long
def test_a_run_keeps_as_many_checkpoints_as_the_job_says(desk: Desk) -> None:
    options = ["--set", "checkpoint_freq=1", "--set", "keep_checkpoints=2"]
    assert desk.singa("run", "job.yaml", *options, "--run-dir", "run").code == 0
    assert sorted(path.name for path in (desk.directory / "run/checkpoint").iterdir()) == ["step-5", "step-6"]


@pytest.mark.long
def test_a_run_ends_where_it_no_longer_gets_better(desk: Desk) -> None:
    options = ["--set", "early_stopping={metric: test.loss, patience: 2}", "--set", "test_freq=5"]
    # at this rate it gets worse from the start
    options += ["--set", "train_steps=100000", "--set", "updater.learning_rate.base_lr=50"]
    done = desk.singa("run", "job.yaml", *options, "--run-dir", "run")
    assert done.code == 0, done.err
    steps = summary(desk, "run")["steps"]
    assert isinstance(steps, int) and steps < 1000


@pytest.mark.soak
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


@pytest.mark.long
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
