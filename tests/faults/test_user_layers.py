"""Layers of users that end their process, and mistakes that no restart mends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.jobs import fatal, job
from tests.faults.machines import Machines, machines
from tests.faults.runs import Run, check_done, check_same
from tests.selection import mostly_soak

pytestmark = pytest.mark.cluster


@pytest.mark.long
@pytest.mark.parametrize("how", mostly_soak(["segfault", "_exit"], 2))
def test_a_layer_that_ends_its_process_once(bare: Machines, tmp_path: Path, calm: Any, how: str) -> None:
    made = job("allreduce", 100, neuralnet=fatal(how, tmp_path / "once", worker=1))
    run = Run(made, bare, tmp_path / "runs")
    check_same(run, calm(made))
    assert "worker-0-1" in run.named("restart")[0]["lost"]


@pytest.mark.soak
def test_a_layer_that_holds_the_gil_once(bare: Machines, tmp_path: Path, calm: Any) -> None:
    made = job("allreduce", 100, neuralnet=fatal("hold-gil", tmp_path / "once", worker=1))
    check_same(Run(made, bare, tmp_path / "runs"), calm(made))


@pytest.mark.soak
def test_a_layer_that_eats_the_memory_once(tmp_path: Path) -> None:
    """The nanny ends the process at 95 % of its limit."""
    (tmp_path / "cluster").mkdir()
    with machines(tmp_path / "cluster", "--memory-limit", "700MiB") as there:
        run = Run(job("allreduce", 100, neuralnet=fatal("eat-memory", tmp_path / "once")), there, tmp_path / "runs")
    check_done(run)


@pytest.mark.long
def test_sys_exit_is_a_mistake_of_the_user(bare: Machines, tmp_path: Path) -> None:
    made = job("allreduce", neuralnet=fatal("exit", tmp_path / "once", worker=1))
    result = Run(made, bare, tmp_path / "runs").result
    assert (result.state, result.exit_code, result.restarts) == ("failed", 1, 0)
    assert result.reason == "worker-0-1, step 40, layer fatal: SystemExit: 3"
