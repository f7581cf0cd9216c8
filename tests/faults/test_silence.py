"""Clusters that do not answer for some time, though nobody has died: slow starts, silent networks, cut links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.jobs import job
from tests.faults.machines import BARE, Machines, machines
from tests.faults.runs import Run, at, at_step, check_same, killed, stopped_for
from tests.faults.slow_loading import HOLD

pytestmark = pytest.mark.cluster


@pytest.mark.long
def test_a_loss_while_the_others_load_the_package(tmp_path: Path, calm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    held = tmp_path / "held"
    held.touch()
    monkeypatch.setenv(HOLD, str(held))
    (tmp_path / "cluster").mkdir()
    made = job("allreduce")
    with machines(tmp_path / "cluster", *BARE, "--preload", "tests.faults.slow_loading") as there:
        script = [(at("placed"), killed("worker-0-1")), (at("restart"), lambda run: held.unlink())]
        run = Run(made, there, tmp_path / "runs", *script, held_at=0)
    check_same(run, calm(made))
    said = [event.get("message", "") for _, event in run.events]
    assert not [each for each in said if "hold threads" in each], said


@pytest.mark.soak
def test_all_processes_are_silent_for_45_s(bare: Machines, tmp_path: Path, calm: Any) -> None:
    made = job("allreduce")
    run = Run(made, bare, tmp_path / "runs", (at_step(40), stopped_for(45, "worker-0-0", "worker-0-1")))
    check_same(run, calm(made), run.result.restarts)
    if not run.result.restarts:  # heartbeats were so late before, on a starved machine, that nobody was given up
        return
    said = [event.get("message", "") for _, event in run.events]
    assert any("the job waits for Dask workers, 10 minutes at most" in each for each in said), said
