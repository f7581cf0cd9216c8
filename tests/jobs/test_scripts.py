"""Where processes of a cluster cannot be started, one message says what to write; nothing else is printed."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import singa_dask as sd
from singa_dask.errors import ClusterError
from singa_dask.jobs import train
from singa_dask.runtime.job.client.cluster import check_processes, local_cluster
from tests.runtime.harness import ALLREDUCE

SCRIPT = """
import singa_dask as sd
run = sd.train(sd.load("job.yaml"), run_dir="run", progress=False)
print(run.state)
"""


def run_script(folder: Path, job: sd.Job, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    job.replace({"cluster": ALLREDUCE}).save(folder / "job.yaml")
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, **options)


@pytest.mark.cluster
@pytest.mark.long
def test_a_script_without_a_guard_is_told_what_to_write(job: sd.Job, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = run_script(tmp_path, job, "script.py")
    assert ended.returncode == 1
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert sum(line.startswith("Traceback") for line in lines) == 1
    assert "the cluster has not started" in lines[-1]
    assert f'{tmp_path}/script.py. Put the calls there below if __name__ == "__main__":' in lines[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.cluster
@pytest.mark.long
def test_a_script_that_is_no_file_trains(job: sd.Job, tmp_path: Path) -> None:
    ended = run_script(tmp_path, job, "-", input=SCRIPT)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


def test_a_process_of_a_pool_is_told_what_to_do(job: sd.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True))
    monkeypatch.setattr(train, "prepare_run", None)  # nothing is written before
    with pytest.raises(ClusterError, match=r"client=distributed.get_client.*ProcessPoolExecutor"):
        sd.train(job.replace({"cluster": ALLREDUCE}), run_dir=str(tmp_path / "run"), progress=False)
    with pytest.raises(ClusterError, match="cannot start the processes"), local_cluster(1):
        pass


def test_a_process_that_imports_the_script_again_ends_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True, _inheriting=True))
    with pytest.raises(SystemExit) as ended:
        check_processes()
    assert ended.value.code == 1
