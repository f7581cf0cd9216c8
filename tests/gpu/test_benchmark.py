"""The benchmark of GPUs runs to its end, on a simulated one too; what it finds there means nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_it_runs(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--small", "--what", "gru", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert {line["part"] for line in found} == {"agree", "steps", "profile"}
    assert not [line for line in found if "failed" in line]
    agreed = {line["name"]: line for line in found if line["part"] == "agree"}
    assert agreed["float64"]["apart"] <= 1e-6
    assert all(line["same_bits"] for line in agreed.values())
