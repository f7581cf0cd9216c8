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
from tests.runtime.processes import cluster

pytestmark = [pytest.mark.cluster, pytest.mark.long]

# so that a job which waits for a minute leaves the processors to others
SLOW = """
from singa_dask import Layer
from singa_dask.cancellation import pause

class Slow(Layer):
    def setup(self):
        self.y = self.add_output(self.sources[0].shape)

    def forward(self, phase):
        pause(0.05)
        self.y.data[...] = self.sources[0].data

    def backward(self, phase):
        pass
"""
LAYER = "    - {name: slow, type: slow.Slow, srclayers: data}\n"


def until(process: subprocess.Popen[str], text: str) -> None:
    """Read what a command says up to a line with a text."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if text in line:
            return
    raise AssertionError(f"{text!r} was not said: {said}")


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_scheduler_that_does_not_answer(tmp_path: Path, comes_back: bool) -> None:
    with cluster(tmp_path, "--no-nanny", names="ab") as (made, _):
        file = tmp_path / "job.yaml"
        (tmp_path / "slow.py").write_text(SLOW)
        slow = TINY.replace("test_freq: 3", "test_freq: 0").replace("srclayers: data", "srclayers: slow")
        slow = slow.replace("    - name: fc\n", f"{LAYER}    - name: fc\n")
        file.write_text(f"modules: [{tmp_path}/slow.py]\n{slow}")
        sets = ["--set", "train_steps=1000000", "--set", "checkpoint_freq=20", *ALLREDUCE]
        run = start("run", file, *sets, "--scheduler-file", made.file, "--run-dir", tmp_path / "run")
        until(run, "Train @ step")
        os.kill(made.scheduler.pid, signal.SIGSTOP)
        try:
            until(run, "the scheduler does not answer. Units that run train on meanwhile; waiting 60 s for it.")
            if comes_back:
                os.kill(made.scheduler.pid, signal.SIGCONT)
                until(run, "the scheduler answers again.")
                until(run, "Train @ step")
                run.send_signal(signal.SIGINT)
            _, said = run.communicate()
        finally:
            os.kill(made.scheduler.pid, signal.SIGCONT)
        assert "Traceback" not in said
        assert "to go on from step" in said
        if comes_back:
            assert (run.returncode, "stopped by SIGINT" in said) == (130, True), said
        else:
            assert (run.returncode, "the scheduler has not answered for 60 s" in said) == (3, True), said
