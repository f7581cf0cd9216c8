"""``logs --follow`` on a real job: what comes is printed until the job ends, or until Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import TINY, Call
from tests.cli.test_job_verbs import SLOW_JOBS, slow, start
from tests.cli.test_stops import ALLREDUCE
from tests.runtime.processes import cluster


def until(process: subprocess.Popen[str], text: str) -> str:
    """Read what is printed up to a line with a text; return that line."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(f"{text!r} was not printed")


@pytest.mark.cluster
@pytest.mark.long
def test_a_log_is_followed_until_the_job_ends_or_until_ctrl_c(tmp_path: Path, call: Call) -> None:
    with cluster(tmp_path, *SLOW_JOBS, names="ab") as (made, _):
        on = ("--scheduler-file", made.file)
        file = tmp_path / "dora.yaml"
        file.write_text(TINY.replace("name: tiny", "name: dora").replace("test_freq: 3", "test_freq: 0"))
        sets = ["--set", "train_steps=1000000", *ALLREDUCE]
        begun = call("run", file, *sets, *on, "--run-dir", slow(tmp_path / "dora"), "--detach")
        assert begun.exit_code == 0, begun.output
        whole, left, one = (
            start("logs", "dora", *on, "--follow", *unit) for unit in ((), (), ("--unit", "worker-0-1"))
        )
        for follower in (whole, left):
            assert "server-0-0: " in until(follower, "server-0-0: holds ")
        until(one, "INFO ")

        left.send_signal(signal.SIGINT)
        _, said = left.communicate()
        assert (left.returncode, said) == (0, "")
        (row,) = json.loads(call("list", *on, "--json").stdout)
        assert (row["name"], row["ended"]) == ("dora", None)

        stopped = call("stop", "dora", *on)
        assert stopped.exit_code == 0, stopped.output
        printed, said = whole.communicate()
        assert (whole.returncode, said) == (0, "")
        assert "stopping with" in printed
        printed, said = one.communicate()
        assert (one.returncode, said) == (0, "")
        assert "server" not in printed
        nonsense = call("logs", "dora", *on, "--unit", "nonsense")
        assert nonsense.exit_code == 2, nonsense.output
        assert "has no such unit. Known: server-0-0, server-0-1, worker-0-0, worker-0-1." in nonsense.stderr
        again = call("logs", "dora", *on, "--follow")
        assert again.exit_code == 0, again.output
        assert "stopping with" in again.stdout
