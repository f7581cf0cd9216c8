"""How a run is stopped, by whatever signal and at any time, and what the person reads who wants to go on."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from singa_dask.cli.clusters import Signals
from tests.cli.conftest import ROOT, Call
from tests.runtime.processes import wait_until

PROGRAM = "from singa_dask.cli import main; main(prog_name='singa-dask')"
# Ctrl-C while the cluster starts
INTERRUPTED = f"""
import os, signal
from distributed import LocalCluster
start = LocalCluster.__init__
def interrupted(self, *args, **options):
    os.killpg(0, signal.SIGINT)
    start(self, *args, **options)
LocalCluster.__init__ = interrupted
{PROGRAM}
"""
ALLREDUCE = ["--cluster", str(ROOT / "configs/cluster/allreduce.yaml")]


@contextmanager
def started(*arguments: Any, code: str = PROGRAM, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start ``singa-dask`` in a session of its own; nothing of it may be left at the end."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    # under nohup the tests themselves ignore it, and a program keeps what it inherits
    options = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL), **options}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, **options) as process:
        yield process
    wait_until(lambda: not list(session(process.pid)), "all of its processes have ended")


def session(leader: int) -> Iterator[list[str]]:
    """Yield the command lines of the processes of a session."""
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader:
                yield process.cmdline()
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue


def stop_at(process: subprocess.Popen[str], line: str, number: signal.Signals) -> list[str]:
    """Send a signal to all processes when a line is said; return all lines."""
    assert process.stderr is not None
    said = []
    for each in process.stderr:
        said.append(each.rstrip("\n"))
        if said[-1].startswith(line) and not any(each.startswith("SIG") for each in said):
            os.killpg(process.pid, number)
    return said


@pytest.mark.soak
@pytest.mark.cluster
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGXCPU])
def test_a_signal_to_all_processes_stops_the_run_and_the_last_line_goes_on(
    call: Call, job: Path, tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    sets = ["--set", "train_steps=1000000", *ALLREDUCE]
    with started("run", job, *sets, "--run-dir", run) as process:
        said = stop_at(process, "Train @ step 2:", number)
    assert process.returncode == 128 + number
    assert any(line.startswith(f"{number.name}: stopping with a checkpoint") for line in said)
    step = json.loads((run / "summary.json").read_text())["steps"]
    command = f"singa-dask run {shlex.quote(str(job))} --set train_steps=1000000 --cluster"
    assert said[-1].startswith(f"to resume from step {step}: {command}")
    (again,) = [line.partition(": ")[2] for line in said[-1:]]
    result = call(*shlex.split(again)[1:], "--set", f"train_steps={step + 2}", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["steps"], summary["resumes"]) == (step + 2, 1)


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1], ids=["nohup", "trap"])
def test_an_ignored_signal_keeps_a_run_going(job: Path, tmp_path: Path, number: signal.Signals) -> None:
    def ignore() -> None:
        signal.signal(number, signal.SIG_IGN)

    with started("run", job, "--run-dir", tmp_path / "run", preexec_fn=ignore) as process:
        said = stop_at(process, "Train @ step 0:", number)
    assert process.returncode == 0, said


@pytest.mark.long
@pytest.mark.cluster
def test_ctrl_c_while_a_cluster_starts_leaves_nothing(job: Path, tmp_path: Path) -> None:
    with started("run", job, *ALLREDUCE, "--run-dir", tmp_path / "run", code=INTERRUPTED) as process:
        said = process.stderr.read() if process.stderr else ""
    lines = [line for line in said.splitlines() if "this machine 1 cores" not in line]
    assert (process.returncode, lines) == (130, ["SIGINT: stopped before the job had started."])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("how", ["as it is", "as another error"])
def test_ctrl_c_while_a_verb_is_imported(call: Call, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def interrupted(name: str) -> Any:
        if how == "as it is":
            raise KeyboardInterrupt
        raise ImportError("a module of C could not be loaded") from KeyboardInterrupt()

    monkeypatch.setattr("importlib.import_module", interrupted)
    result = call("run", "job.yaml")
    assert (result.exit_code, result.stderr) == (130, "SIGINT: stopped.\n")


@pytest.mark.parametrize("what", ["lost", "replaced"])
def test_a_signal_whose_error_a_module_in_c_loses_ends_the_program(what: str) -> None:
    """As pydantic replaces what is raised while it serialises."""

    def raised_in_c() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            if what == "replaced":
                raise ValueError("not serialised") from None

    with pytest.raises(SystemExit) as raised, Signals("stopped"):
        raised_in_c()
    assert raised.value.code == 128 + signal.SIGTERM


def test_a_signal_in_the_callback_of_a_weak_reference_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    class Thing:
        pass

    thing = Thing()
    reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as ended, Signals():
        del thing
        assert reference() is None
        threading.Event().wait(20)
    assert ended.value.code == 128 + signal.SIGTERM
    assert capfd.readouterr().err == "SIGTERM: stopped before the job had started.\n"
