"""SINGA's own files and habits: its chain of RBMs, its checkpoints, its GPU jobs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT
from tests.first_hour.conftest import Desk

SINGA = ROOT / "tests/conf/singa"

pytestmark = pytest.mark.long


def test_the_chain_of_rbms_runs_by_its_own_paths(desk: Desk) -> None:
    mnist = desk.directory / "examples/mnist"
    mnist.mkdir(parents=True)
    for name in ("train", "test"):
        (mnist / f"{name}_data.bin").symlink_to(ROOT / f"tests/gold/data/small_mnist_{name}.bin")
    for name in ("rbm1", "rbm2", "rbm3", "rbm4", "autoencoder"):
        shutil.copy(SINGA / f"chain/{name}.conf", desk.directory)
        done = desk.singa("run", f"{name}.conf")
        assert done.code == 0, done.err


def test_init_from_wins_over_checkpoint_path(desk: Desk, trained: Path) -> None:
    desk.write("job.yaml", f"checkpoint_path: [runs/none]\n{desk.job}")
    done = desk.singa("validate", "job.yaml")
    assert done.code == 2
    assert re.match(r"job\.yaml:1:19: checkpoint_path\[0\]: .*runs/none", done.err), done.err
    done = desk.singa("run", "job.yaml", "--init-from", trained, "--run-dir", "second")
    assert done.code == 0, done.err
    assert f"initial values from {trained}" in done.err


def test_a_checkpoint_of_another_net_has_its_place(desk: Desk, trained: Path) -> None:
    text = desk.job.replace("num_output: 10", "num_output: 12")
    desk.write("other.yaml", f"checkpoint_path: [{trained}]\n{text}")
    done = desk.singa("run", "other.yaml")
    assert done.code == 2, done.err
    assert done.err.startswith("other.yaml:1:19: "), done.err
    assert not list((desk.directory / "runs").glob("tiny-*"))


def test_a_job_of_singa_trains_as_its_yaml(desk: Desk) -> None:
    conf = ROOT / "tests/gold/confs/mlp_sgd.conf"
    for name, target in (("data", "data"), ("ckpt", "start")):
        (desk.directory / name).unlink(missing_ok=True)
        (desk.directory / name).symlink_to(ROOT / "tests/gold" / target)
    assert desk.singa("convert", "conf", conf, "made.yaml").code == 0
    for job, run in ((conf, "one"), ("made.yaml", "two")):
        done = desk.singa("run", job, "--run-dir", run, "--set", "train_steps=5")
        assert done.code == 0, done.err
    parts = [sorted((desk.directory / run).glob("checkpoint/step-5/*.safetensors")) for run in ("one", "two")]
    assert [path.read_bytes() for path in parts[0]] == [path.read_bytes() for path in parts[1]] != []


def test_worker_batches_may_differ(desk: Desk) -> None:
    batches = ["--set", "neuralnet.layer[data].store_conf.batchsize=[12, 8]"]
    done = desk.singa("run", "job.yaml", *batches, "--set", "cluster={nworkers_per_group: 2}")
    assert done.code == 0, done.err


def test_a_job_for_cudnn_runs_on_a_cpu_by_a_flag(desk: Desk) -> None:
    desk.write("job.yaml", f"gpu: [0]\n{desk.job}")
    done = desk.singa("run", "job.yaml", "--cpu")
    assert done.code == 0, done.err
