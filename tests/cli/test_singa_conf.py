"""SINGA's own job files by the command line: checked, run, and written as YAML that trains to the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from singa_dask.runtime.checkpoints.lookup import find, load_values
from tests.cli.conftest import ROOT, Call
from tests.selection import mostly_long

GOLD = ROOT / "tests" / "gold"
JOBS = ROOT / "tests" / "conf" / "files" / "singa"
BROKEN = sorted((JOBS / "broken").glob("*.conf"))


@pytest.fixture(autouse=True)
def _records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start where the records are that the jobs name."""
    (tmp_path / "data").symlink_to(GOLD / "data")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_a_broken_job_is_told_with_its_places(call: Call, path: Path) -> None:
    result = call("validate", path)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert all(line.startswith(f"{path}:") for line in result.stderr.splitlines())


@pytest.mark.parametrize(
    "name", mostly_long(["mlp", "convnet", "autoencoder", "deprecated", "char_rnn", "rbm1", "rbm"], 7)
)
def test_a_job_trains_as_its_yaml_does(call: Call, name: str) -> None:
    given: tuple[str, ...] = ()
    if name == "rbm":
        assert call("run", JOBS / "rbm1.conf", "--quiet", "--run-dir", "runs/rbm1").exit_code == 0
        given = ("--set", "checkpoint_path=[runs/rbm1]")
    result = call("validate", JOBS / f"{name}.conf", *given)
    assert result.exit_code == 0, result.output
    assert call("convert", "conf", JOBS / f"{name}.conf", "job.yaml").exit_code == 0
    found = []
    for run, job in enumerate((JOBS / f"{name}.conf", "job.yaml")):
        result = call("run", job, "--quiet", "--run-dir", f"runs/{run}", *given)
        assert result.exit_code == 0, result.output
        found.append(load_values(find(str(Path(f"runs/{run}").absolute()))))
    assert found[0].keys() == found[1].keys()
    for param, stored in found[0].items():
        np.testing.assert_array_equal(stored.values, found[1][param].values)


def test_what_convert_conf_cannot_write(call: Call) -> None:
    result = call("convert", "conf", BROKEN[0], "job.yaml")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{BROKEN[0]}:")
    result = call("convert", "conf", JOBS / "mlp.conf", JOBS / "convnet.conf", "job.yaml")
    assert result.exit_code == 2
    assert "expected one job file" in result.stderr
    assert not Path("job.yaml").exists()
