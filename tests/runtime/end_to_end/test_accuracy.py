"""The main example learns in every topology, on a cluster of real processes, as well as by itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.processes import FRAMEWORKS, ROOT, cluster, program
from tests.selection import mostly_soak

ACCURACY = 0.95
N_STEPS = 1000
TIMEOUT_S = 400

pytestmark = [pytest.mark.cluster, pytest.mark.long]


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start two workers of two threads, and return their scheduler's file."""
    with cluster(tmp_path_factory.mktemp("cluster")) as (made, _):
        yield made.file


def test_every_topology_of_the_configs_is_tested() -> None:
    assert {path.stem for path in (ROOT / "configs/cluster").glob("*.yaml")} == set(FRAMEWORKS)


@pytest.mark.soak
# sandblaster computes the bits of allreduce: test_job.py; single is README's command: test_wheel.py
@pytest.mark.parametrize("framework", mostly_soak(["hybrid", "allreduce", "downpour", "hogwild"], 4))
def test_digits_are_told_apart(scheduler: str, tmp_path: Path, framework: str) -> None:
    options = ["--cluster", f"configs/cluster/{framework}.yaml", "--scheduler-file", scheduler]
    options += ["--run-dir", str(tmp_path / "run"), "--quiet", "--json"]
    command = program("run", "configs/digits/mlp.yaml", "--set", f"train_steps={N_STEPS}", *options)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["state"], summary["steps"]) == ("done", N_STEPS)
    assert summary["test"]["accuracy"] >= ACCURACY, summary
