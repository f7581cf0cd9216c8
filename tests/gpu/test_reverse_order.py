"""Kernels of a GPU once more with the order of their threads and queues turned round, which finds races."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends import backend
from tests.conftest import is_simulated
from tests.snippets import ROOT

TIMEOUT_S = 580
ROOMS = ["tests/contracts", "tests/gpu/test_layers.py", "tests/ops/cupy"]

pytestmark = [pytest.mark.long, pytest.mark.skipif(not is_simulated(), reason="a real GPU has an order of its own")]


@pytest.mark.soak
# in float64 they are the same kernels with another type
@pytest.mark.parametrize("which", ["not float64", pytest.param("float64", marks=pytest.mark.soak)])
def test_kernels_do_not_depend_on_the_order_of_threads(tmp_path: Path, which: str) -> None:
    backend("cuda:0")  # or skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long"]
    command += [f"--basetemp={tmp_path / 'tests'}", "-k", f"(cuda or cupy or gpu) and {which}", *ROOMS]
    environment = {**os.environ, "SIMULATED_ORDER": "reverse"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0 and " passed" in done.stdout, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
