"""What Dask prints stays off stderr, in real programs too; versions that differ are said in one line."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, versions

from singa_dask.runtime import Patience, connect
from tests.cli.conftest import job
from tests.runtime.processes import ROOT, cluster, program, wait_until

__all__ = ["job"]

pytestmark = pytest.mark.cluster

SEPARATE = "cluster.server_worker_separate=true"


def run(job: Path, tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    command = program("run", str(job), "--run-dir", str(tmp_path / "run"), *options)
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.long
def test_a_quiet_run_of_several_processes_prints_nothing(job: Path, tmp_path: Path) -> None:
    assert run(job, tmp_path, "--quiet", "--set", SEPARATE).communicate() == ("", "")
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.long
def test_versions_that_differ_are_said_in_one_line(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    known = versions.get_package_info

    def other(names: Any) -> dict[str, str | None]:
        return {**known(names), "numpy": "1.0.0"}

    address = client.scheduler_info()["address"]
    said: list[str] = []
    with connect(address, patience=Patience(say=said.append)):
        pass
    assert said == []
    monkeypatch.setattr(versions, "get_package_info", other)
    with pytest.warns(UserWarning, match="of somebody else"), connect(address, patience=Patience(say=said.append)):
        warnings.warn("of somebody else", stacklevel=1)
    (line,) = said
    assert line.startswith(f"{address}: package versions differ: numpy {known(['numpy'])['numpy']} there,")
    assert line.endswith("1.0.0 here. Install the same versions on both sides.")


@pytest.mark.long
def test_a_lost_scheduler_is_said_in_one_line(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster", names=("a",)) as (made, _):
        monkeypatch.setenv("DASK_DISTRIBUTED__SINGA_DASK__CLIENT", "3s")
        options = ("--quiet", "--scheduler-file", made.file, "--set", "train_steps=1000000", "--set", "disp_freq=1")
        running = run(job, tmp_path, *options)
        metrics = tmp_path / "run" / "metrics.jsonl"
        wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0, "metrics")
        made.processes[0].kill()
        out, said = running.communicate()
    assert out == ""
    (line,) = said.splitlines()
    assert line.startswith(
        "the scheduler could not be reached again; units that it had started stop with a checkpoint. Last step: "
    )
