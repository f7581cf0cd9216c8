"""What a run does not load, where it is installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import job
from tests.runtime.processes import ROOT, program

__all__ = ["job"]

FAKE = "import sys; sys.stderr.write(f'{__name__} was imported\\n')\n"


@pytest.mark.cluster
def test_a_run_loads_neither_pandas_nor_bokeh(job: Path, tmp_path: Path) -> None:
    for name in ("pandas", "bokeh"):
        (tmp_path / "modules" / name).mkdir(parents=True)
        (tmp_path / "modules" / name / "__init__.py").write_text(FAKE)
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "modules")}
    command = program("run", str(job), "--quiet", "--run-dir", str(tmp_path / "run"))
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
