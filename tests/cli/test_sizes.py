"""Jobs that no machine could run: refused at once, by the memory that they need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from singa_dask.ops import NumpyOps
from singa_dask.runtime.job.checks import job as checks
from singa_dask.runtime.planning import machine
from tests.cli.conftest import Call

UNITS = "neuralnet.layer[fc].innerproduct_conf.num_output"
BATCH = "neuralnet.layer[data].store_conf.batchsize"


@pytest.mark.parametrize("verb", ["validate", "run"])
@pytest.mark.parametrize(
    ("change", "layer", "needed"),
    [
        (f"{UNITS}=100000000000", "fc", r"585\.\d TiB"),
        (f"{UNITS}={10**18}", "fc", r"[\d,.e+]+ PiB"),
        (f"{UNITS}={10**30}", "fc", r"[\d,.e+]+ PiB"),
        (f"{BATCH}=10000000000", "data", r"28\.\d\d TiB"),
    ],
)
def test_sizes_that_cannot_be(
    call: Call, job: Path, tmp_path: Path, verb: str, change: str, layer: str, needed: str
) -> None:
    result = call(verb, job, "--set", change)
    assert result.exit_code == 2, result.output
    assert re.fullmatch(
        rf"{job}:\d+:7: neuralnet.layer\[{layer}\]: layer '{layer}' needs {needed} of memory, the whole train net "
        r"[\d,.e+]+ [TP]iB, and this machine has [\d.]+ [GT]iB\. Lower its sizes, or batchsize\.\n",
        result.stderr,
    )


def test_what_another_machine_may_have_is_not_refused_here(
    call: Call, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "machine_memory", lambda: 1000)
    assert "and this machine has 1,000 bytes" in call("validate", job).stderr
    # for GPUs, and for the workers of a scheduler, the memory of this machine says nothing
    assert call("validate", job, "--set", "ops=cupy").exit_code == 0
    result = call("run", job, "--scheduler", "tcp://127.0.0.1:1", "--set", f"{UNITS}=100000000000000")
    assert result.exit_code == 2
    assert "and no machine has more than 64 TiB" in result.stderr


@pytest.mark.parametrize(("change", "key"), [("gpu=[0]", "gpu"), ("ops=cupy", "ops")])
def test_gpus_that_are_not_here(
    call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, key: str
) -> None:
    class NoGpus(NumpyOps):
        @staticmethod
        def count() -> int:
            return 0

    monkeypatch.setattr(checks.OPS, "find", lambda name: NoGpus)
    said = f"--set {change}: {key}: %sGPUs cannot be used here: this process sees no GPU. "
    said += "To compute on the CPU, pass --cpu"
    result = call("validate", job, "--set", change)
    assert result.exit_code == 0, result.output
    assert said % "warning: " in result.stderr
    result = call("run", job, "--set", change, "--run-dir", tmp_path / "run")
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(said % "")
    assert not (tmp_path / "run").exists()
