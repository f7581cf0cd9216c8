"""A run whose stderr is gone, as after ``ssh host singa-dask run`` over a line that broke, trains to its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLOSED = ["sh", "-c", 'exec "$@" 2>&-', "sh"]


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.parametrize("how", ["reader", "closed", "full"])
def test_a_run_without_a_stderr_is_a_run(job: Path, tmp_path: Path, how: str) -> None:
    run, command = tmp_path / "run", [sys.executable, "-m", "singa_dask", "run", str(job), "--run-dir"]
    if how == "reader":
        reader, stderr = os.pipe()
        os.close(reader)
    else:
        stderr = os.open("/dev/full", os.O_WRONLY)
    with os.fdopen(stderr, "w") as file:
        shell = CLOSED if how == "closed" else []
        ended = subprocess.run([*shell, *command, str(run)], stderr=file, stdout=subprocess.PIPE)
    assert (ended.returncode, ended.stdout) == (0, b"")
    assert (run / "checkpoint" / "step-6" / "manifest.json").exists()
    assert (run / "summary.json").exists()
    lines = (run / "log" / "driver.log").read_text().splitlines()
    (line,) = [line for line in lines if "stderr" in line]
    assert "WARNING stderr cannot be written: " in line


def test_no_file_of_ours_becomes_the_stderr_of_libraries() -> None:
    code = "import os; from singa_dask.cli import main; main(['schema'], standalone_mode=False); os.write(2, b'x')"
    ended = subprocess.run(
        [*CLOSED, sys.executable, "-c", f"{code}; print(os.readlink('/proc/self/fd/2'))"], stdout=subprocess.PIPE
    )
    assert ended.stdout.endswith(b"}\n/dev/null\n")
