"""A scheduler that is stopped while its connections stay: ``run`` says so, goes on if it comes back, and else ends."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import TINY
from tests.cli.test_job_verbs import start
from tests.cli.test_stops import ALLREDUCE
from tests.faults.parts import HELD
from tests.runtime.processes import cluster
from tests.selection import mostly_soak

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def until(process: subprocess.Popen[str], text: str) -> None:
    """Read what a command says up to a line with a text."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if text in line:
            return
    raise AssertionError(f"{text!r} was not said: {said}")


@pytest.mark.parametrize("comes_back", mostly_soak([False, True], 2))
def test_a_scheduler_that_does_not_answer(tmp_path: Path, comes_back: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_s = 60 if comes_back else 3
    monkeypatch.setenv("DASK_DISTRIBUTED__SINGA_DASK__SCHEDULER", f"{limit_s}s")
    monkeypatch.setenv("DASK_DISTRIBUTED__SINGA_DASK__ANSWER", "9s")  # so a question has the 3 s
    with cluster(tmp_path, "--no-nanny", "--preload", "tests.faults.parts", names="ab") as (made, _):
        file = tmp_path / "job.yaml"
        file.write_text(TINY.replace("test_freq: 3", "test_freq: 0"))
        # a job that waits leaves the processors to others
        held = tmp_path / "run" / HELD
        held.parent.mkdir()
        held.write_text("3")
        sets = ["--set", "train_steps=1000000", "--set", "checkpoint_freq=20", *ALLREDUCE]
        run = start("run", file, *sets, "--scheduler-file", made.file, "--run-dir", tmp_path / "run")
        until(run, "Train @ step")
        os.kill(made.scheduler.pid, signal.SIGSTOP)
        try:
            until(run, f"the scheduler does not answer. Running units continue to train. Waiting up to {limit_s} s for")
            if comes_back:
                os.kill(made.scheduler.pid, signal.SIGCONT)
                until(run, "the scheduler answers again.")
                until(run, "Train @ step")
                run.send_signal(signal.SIGINT)
            _, said = run.communicate()
        finally:
            os.kill(made.scheduler.pid, signal.SIGCONT)
        assert "Traceback" not in said
        assert f"to resume from {'step' if comes_back else 'the last checkpoint of its units'}" in said
        if comes_back:
            assert (run.returncode, "stopped by SIGINT" in said) == (130, True), said
        else:
            assert (run.returncode, f"the scheduler has not answered for {limit_s} s" in said) == (3, True), said
