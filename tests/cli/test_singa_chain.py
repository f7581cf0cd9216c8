"""SINGA's stack of RBMs and its auto-encoder, in SINGA's format: each job finds the one before by SINGA's paths."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from singa_dask.data.codecs.singa_blobs import StoredParam
from singa_dask.runtime.checkpoints.lookup import find, load_values
from tests.blobprotos import write_blobprotos
from tests.cli.conftest import ROOT, Call

CHAIN = ROOT / "tests" / "conf" / "files" / "singa" / "chain"
RECORDS = ROOT / "tests" / "gold" / "data"


@pytest.fixture(autouse=True)
def _at_singas_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start in a directory that has jobs and records where SINGA's examples have them."""
    mnist = tmp_path / "examples" / "mnist"
    mnist.mkdir(parents=True)
    for name in ("train", "test"):
        (mnist / f"{name}_data.bin").symlink_to(RECORDS / f"small_mnist_{name}.bin")
    for path in CHAIN.glob("*.conf"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)


def newest(name: str) -> str:
    runs = Path("examples/rbm", name).glob(f"{name}-*")
    return find(str(max(runs, key=lambda run: (run / "summary.json").stat().st_mtime_ns)))


def as_singa_writes(name: str) -> None:
    """Put a file of SINGA's in the place of a run."""
    params = {f"0#{key}": StoredParam(each.values, each.version) for key, each in load_values(newest(name)).items()}
    workspace = Path("examples/rbm", name)
    shutil.rmtree(workspace)
    (workspace / "checkpoint").mkdir(parents=True)
    (workspace / "checkpoint" / "step20-worker0").write_bytes(write_blobprotos(params))


@pytest.mark.long
def test_the_chain_runs_by_its_own_paths(call: Call) -> None:
    for name in ("rbm1", "rbm2", "rbm3", "rbm4", "autoencoder"):
        assert call("validate", f"{name}.conf").exit_code == 0
        result = call("run", f"{name}.conf")
        assert result.exit_code == 0, result.output
    for name, params in (("rbm2", ["w1", "b12"]), ("rbm4", ["w1", "w2", "w3", "b12", "b22", "b32"])):
        before, after = (load_values(newest(run)) for run in (f"rbm{int(name[3]) - 1}", name))
        for param in params:  # of the RBMs below, which learn no more
            np.testing.assert_array_equal(before[param].values, after[param].values)
    for name in ("rbm1", "rbm2", "rbm3", "rbm4"):
        assert f"initial values from {newest(name)}\n" in result.stderr


def test_runs_and_files_of_singa_mix(call: Call) -> None:
    assert call("run", "rbm1.conf", "--quiet").exit_code == 0
    ours = load_values(newest("rbm1"))
    as_singa_writes("rbm1")
    result = call("run", "rbm2.conf")
    assert result.exit_code == 0, result.output
    assert "initial values from examples/rbm/rbm1/checkpoint/step20-worker0\n" in result.stderr
    np.testing.assert_array_equal(load_values(newest("rbm2"))["w1"].values, ours["w1"].values)


@pytest.mark.long
def test_the_newest_run_that_has_the_step_counts(call: Call) -> None:
    for seed in (1, 2):
        assert call("run", "rbm1.conf", "--quiet", "--set", f"seed={seed}").exit_code == 0
        wanted = newest("rbm1")
    assert call("run", "rbm1.conf", "--quiet", "--set", "train_steps=5").exit_code == 0
    result = call("run", "rbm2.conf")
    assert result.exit_code == 0, result.output
    assert f"initial values from {wanted}\n" in result.stderr


def test_what_is_not_there_is_told_with_its_place(call: Call) -> None:
    for verb in ("validate", "run", "test"):
        result = call(verb, "rbm2.conf")
        assert result.exit_code == 2, result.output
        assert result.stderr == (
            "rbm2.conf:7:18: checkpoint_path[0]: examples/rbm/rbm1/checkpoint/step20-worker0: not found. Expected this "
            "file, as SINGA writes it, or a checkpoint of step 20 by a run in the workspace examples/rbm/rbm1: there "
            "is no checkpoint. Run the job of that workspace first.\n"
        ).replace("examples/", f"{Path.cwd()}/examples/" if verb == "test" else "examples/")
    assert call("run", "rbm1.conf", "--quiet", "--set", "train_steps=5").exit_code == 0
    result = call("validate", "rbm2.conf")
    assert result.exit_code == 2
    assert "steps 5 are there. Name one of them, or train for 20 steps first." in result.stderr


@pytest.mark.long
def test_init_from_replaces_checkpoint_path(call: Call) -> None:
    assert call("run", "rbm1.conf", "--run-dir", "mine", "--quiet").exit_code == 0
    result = call("run", "rbm2.conf", "--init-from", "mine")  # checkpoint_path is not there
    assert result.exit_code == 0, result.output
    result = call("run", "rbm2.conf", "--init-from", "nowhere")
    assert (result.exit_code, result.stderr) == (2, "--init-from: nowhere: no such file or directory.\n")


def test_a_checkpoint_of_another_net(call: Call) -> None:
    assert call("run", "rbm1.conf", "--quiet").exit_code == 0
    text = Path("rbm2.conf").read_text()
    Path("wide.conf").write_text(text.replace("num_output: 60", "num_output: 61"))
    result = call("validate", "wide.conf")
    assert result.exit_code == 2
    at = "wide.conf:7:18: checkpoint_path[0]: param"
    url = "examples/rbm/rbm1/checkpoint/step20-worker0"
    assert result.stderr == (
        f"{at} 'w1': {url} has shape (60, 784), but the net needs (61, 784).\n"
        f"{at} 'b12': {url} has shape (60,), but the net needs (61,).\n"
    )
    Path("other.conf").write_text(Path("rbm1.conf").read_text().replace('"w1', '"v1').replace('"b1', '"c1'))
    result = call("run", "other.conf", "--init-from", "examples/rbm/rbm1")
    assert result.exit_code == 2
    assert result.stderr == "--init-from: examples/rbm/rbm1: none of its params is in the net. Known: b11, b12, w1.\n"


def test_the_runs_of_several_jobs_are_no_workspace(call: Call) -> None:
    for name in ("rbm1", "autoencoder"):
        given = ("--init-from", "runs") if name == "autoencoder" else ()
        result = call("run", f"{name}.conf", "--set", "cluster.workspace=runs", "--set", f"name={name}x", *given)
    assert result.exit_code == 2  # one RBM is too little for the auto-encoder
    assert "has no init, and no checkpoint gives its values" in result.stderr
    assert call("run", "rbm1.conf", "--quiet", "--set", "cluster.workspace=runs").exit_code == 0
    result = call("run", "rbm2.conf", "--init-from", "runs")
    assert result.exit_code == 2
    assert result.stderr == "--init-from: runs: it has runs of several jobs (rbm1, rbm1x). Name a run: runs/<run>.\n"
