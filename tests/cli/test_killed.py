"""``kill -9`` of a whole run, at any moment, and ``--resume``: the bits of a run that nobody disturbed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ROOT, Call
from tests.cli.test_stops import started
from tests.selection import mostly_soak

pytestmark = pytest.mark.cluster

STEPS = 30
SETS = [f"train_steps={STEPS}", "checkpoint_freq=10", "disp_freq=1", "test_freq=1", "test_steps=1"]
KILLED = [("allreduce", 17), ("allreduce", 3), ("single", 3), ("single", 17), ("sandblaster", 3), ("sandblaster", 17)]
# in every process of a run: kills all of them at the moment that a test names, or waits there to be killed
HOOK = """
import os, signal, sys, threading
def kill(event, args):
    wanted = os.environ["KILL_EVENT"]
    if event == wanted and os.environ["KILL_PATH"] in str(args[wanted == "os.rename"]):
        if "KILL_LATER" in os.environ:
            threading.Event().wait()
        os.killpg(0, signal.SIGKILL)
sys.addaudithook(kill)
"""


def command(job: Path, framework: str, run: Path, *more: str) -> list[str]:
    sets = [part for each in SETS for part in ("--set", each)]
    cluster = str(ROOT / "configs/cluster" / f"{framework}.yaml")
    return ["run", str(job), *sets, "--cluster", cluster, "--run-dir", str(run), *more]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Keep the runs that others are compared with, by framework."""
    return {}


def whole(call: Call, job: Path, framework: str, kept: dict[str, Path], tmp_path_factory: Any) -> Path:
    """Return the directory of a run that nobody disturbed."""
    if framework not in kept:
        kept[framework] = tmp_path_factory.mktemp(framework) / "run"
        result = call(*command(job, framework, kept[framework], "--quiet"))
        assert result.exit_code == 0, result.output
    return kept[framework]


def parts(run: Path) -> dict[str, bytes]:
    """Return the files of the last checkpoint, but for the manifest, which has the time in it."""
    files = (run / "checkpoint" / f"step-{STEPS}").glob("*.safetensors")
    return {path.name: path.read_bytes() for path in files}


def measured(run: Path) -> list[tuple[Any, ...]]:
    """Return what a run has measured, without times, in order of steps."""
    events = [json.loads(line) for line in complete_lines(run / "metrics.jsonl")]
    keys = ("step", "phase", "group", "loss", "accuracy")
    return sorted(tuple(event[key] for key in keys) for event in events if event["event"] == "metrics")


def complete_lines(path: Path) -> list[str]:
    """Return the lines of a file, but for one that a kill cut short."""
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")] if path.exists() else []


def check_alike(run: Path, other: Path, before: list[tuple[Any, ...]]) -> None:
    """Compare a resumed run with another; ``before`` is what it had measured when it was killed.

    Workers may be ahead of what the killed process has written: metrics between its last line and the checkpoint that
    the run goes on from are of steps that are not done again.
    """
    assert parts(run)
    assert parts(run) == parts(other)
    found, wanted = measured(run), measured(other)
    checkpoint = json.loads(complete_lines(run / "commands.jsonl")[-1])["resume"]
    resumed_from = int(checkpoint.rpartition("step-")[2]) if checkpoint else 0
    last = before[-1][0] if before else 0
    lost = [each for each in wanted if last <= each[0] <= resumed_from and each not in before]
    assert found == [each for each in wanted if each in found or each not in lost]


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Give the environment of processes that look for the moment to be killed."""
    folder = tmp_path / "hook"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HOOK)
    yield {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.long
@pytest.mark.parametrize(("framework", "step"), mostly_soak(KILLED, len(KILLED)))
def test_killed_in_mid_run(
    call: Call,
    job: Path,
    tmp_path: Path,
    hook: dict[str, str],
    undisturbed: Any,
    tmp_path_factory: Any,
    framework: str,
    step: int,
) -> None:
    """The run does not end before it is killed: its last checkpoint waits for that."""
    run = tmp_path / "run"
    environment = {**hook, "KILL_LATER": "", "KILL_EVENT": "os.rename", "KILL_PATH": f"step-{STEPS}/part-0"}
    with started(*command(job, framework, run), env=environment) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(f"Train @ step {step}:"):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    before = measured(run)
    result = call(*command(job, framework, run, "--resume", "--json"))
    assert result.exit_code == 0, result.output
    check_alike(run, whole(call, job, framework, undisturbed, tmp_path_factory), before)


@pytest.mark.long
@pytest.mark.parametrize("framework", mostly_soak(["single", "allreduce"], 2))
@pytest.mark.parametrize(
    ("event", "path"),
    [
        pytest.param("os.rename", "step-10/part-0", marks=pytest.mark.soak),
        pytest.param("os.rename", "step-20/part-0", marks=pytest.mark.soak),
        ("os.rename", "step-20/manifest.json"),
        # of what need not stay the manifest goes first
        ("os.remove", "step-10"),
        # the run is complete: its resume makes no step, and deletes what the first run did not
        ("shutil.rmtree", "step-10"),
    ],
)
def test_killed_while_a_checkpoint_is_written_or_deleted(
    call: Call,
    job: Path,
    tmp_path: Path,
    hook: dict[str, str],
    undisturbed: Any,
    tmp_path_factory: Any,
    framework: str,
    event: str,
    path: str,
) -> None:
    run = tmp_path / "run"
    keep = ["--set", "keep_checkpoints=1"]
    environment = {**hook, "KILL_EVENT": event, "KILL_PATH": path}
    killed = [sys.executable, "-c", "from singa_dask.cli import main; main()", *command(job, framework, run, *keep)]
    done = subprocess.run(
        killed, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    before = measured(run)
    result = call(*command(job, framework, run, *keep, "--resume", "--json"))
    assert result.exit_code == 0, result.output
    assert [each.name for each in (run / "checkpoint").iterdir()] == [f"step-{STEPS}"]
    check_alike(run, whole(call, job, framework, undisturbed, tmp_path_factory), before)
