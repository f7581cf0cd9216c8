"""Links that are cut for some time, in a network of namespaces: the same bits, and no hang."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from singa_dask.conf import JobConf
from tests.faults.jobs import job
from tests.faults.links import Network, has_namespaces, network
from tests.faults.runs import LIMIT_S, check_params
from tests.runtime.processes import ROOT, program

pytestmark = [pytest.mark.cluster, pytest.mark.long]

STEPS = 2000
Cut = Callable[[Network], None]


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Network]:
    if not has_namespaces():
        pytest.skip("no network namespaces here, or no veth")
    (tmp_path / "net").mkdir()
    with network(tmp_path / "net", 3) as made:
        yield made


def run_on(net: Network, made: JobConf, directory: Path, cut: Cut, seconds: float) -> dict[str, Any]:
    """Run a job, and do harm to the network at a step, for some seconds; return its summary."""
    (directory / "job.yaml").write_text(made.model_dump_json(exclude_unset=True))
    options = ["--scheduler-file", str(net.file), "--run-dir", str(directory / "run"), "--wait", "60"]
    command = [*net.inside(0), *program("run", str(directory / "job.yaml"), *options)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    said, healed = [], threading.Timer(seconds, net.mend, [1, 2])
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        ends = threading.Timer(LIMIT_S, run.kill)
        ends.start()
        for line in run.stderr:
            said.append(line)
            if line.startswith("Train @ step 40:"):
                cut(net)
                healed.start()
        ends.cancel()
        healed.cancel()
    assert run.returncode == 0, said[-20:]
    return json.loads((directory / "run" / "summary.json").read_text())


@pytest.mark.parametrize(("seconds", "restarts"), [(3, (0, 1)), (10, (1, 2)), (60, (1, 1))])
def test_a_process_that_nobody_reaches(
    net: Network, tmp_path: Path, calm: Any, seconds: float, restarts: tuple[int, int]
) -> None:
    made = job("allreduce", STEPS)
    summary = run_on(net, made, tmp_path, lambda net: net.cut(1), seconds)
    assert restarts[0] <= summary["restarts"] <= restarts[1]
    check_params(str(tmp_path / "run"), calm(made))


@pytest.mark.parametrize("seconds", [3, 10])
def test_two_processes_that_do_not_reach_each_other(net: Network, tmp_path: Path, calm: Any, seconds: float) -> None:
    """The scheduler reaches both."""
    made = job("allreduce", STEPS)
    run_on(net, made, tmp_path, lambda net: net.part(1, 2), seconds)
    check_params(str(tmp_path / "run"), calm(made))
