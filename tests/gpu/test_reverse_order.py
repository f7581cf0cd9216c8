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


def test_kernels_do_not_depend_on_the_order_of_threads(tmp_path: Path) -> None:
    backend("cuda:0")  # or skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long"]
    command += [f"--basetemp={tmp_path / 'tests'}", "-k", "cuda or cupy or gpu", *ROOMS]
    environment = {**os.environ, "SIMULATED_ORDER": "reverse"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0 and " passed" in done.stdout, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
