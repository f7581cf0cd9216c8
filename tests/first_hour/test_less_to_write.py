"""What a new user writes, and mistypes, on the command line and in job files."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import yaml

from tests.cli.conftest import ROOT
from tests.first_hour.conftest import STORE, Desk
from tests.runtime.processes import FRAMEWORKS

pytestmark = pytest.mark.long

BARE = """\
name: bare
train_steps: 6
train_one_batch: {alg: BP}
updater: {type: SGD, learning_rate: {type: Fixed, base_lr: 0.05}}
neuralnet:
  layer:
    - name: data
      type: RecordInput
      store_conf: {path: data/digits/test.arrow, shape: [28, 28], batchsize: 20, std_value: 255}
    - {name: fc, type: InnerProduct, srclayers: data, innerproduct_conf: {num_output: 10}}
    - {name: loss, type: SoftmaxLoss, srclayers: [fc, data]}
"""


def test_a_job_need_not_say_how_params_start(desk: Desk) -> None:
    desk.write("bare.yaml", BARE)
    done = desk.singa("run", "bare.yaml", "--run-dir", "run", "--strict")
    assert done.code == 0, done.err
    resolved = yaml.safe_load((desk.directory / "run/resolved.yaml").read_text())
    (dense,) = [layer for layer in resolved["neuralnet"]["layer"] if layer["name"] == "fc"]
    weight, bias = (param["init"] for param in dense["param"])
    assert (weight["type"], bias["type"], bias["value"]) == ("Uniform", "Constant", 0)
    assert weight["high"] == pytest.approx((6 / (28 * 28 + 10)) ** 0.5, rel=1e-3)  # Glorot's


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_cluster_has_a_name(desk: Desk, name: str) -> None:
    (desk.directory / "configs").unlink()
    done = desk.singa("validate", "job.yaml", "--cluster", name)
    assert done.code == 0, done.err
    assert ("process 1: " in done.out) == (name != "single")


@pytest.mark.parametrize(
    ("data", "options"),
    [("data/digits/train.arrow", []), ("photos", []), ("data/text/jargon.txt.gz", [])],
    ids=["store", "folder of pictures", "text"],
)
def test_init_writes_a_job_that_runs(desk: Desk, data: str, options: list[str]) -> None:
    assert desk.singa("init", data, "-o", "made.yaml", *options).code == 0
    text = (desk.directory / "made.yaml").read_text()
    assert text.count("# ") > 10
    done = desk.singa("run", "made.yaml", "--run-dir", "run", "--set", "train_steps=2", "--json", "--strict")
    assert done.code == 0, done.err
    assert json.loads(done.out)["steps"] == 2


def test_graph_and_validate_need_no_data_where_shapes_are_said(desk: Desk) -> None:
    nowhere = ["--set", f"{STORE}.path=not/here.arrow", "--set", f"{STORE}.backend=arrow"]
    done = desk.singa("graph", "job.yaml", *nowhere)
    assert done.code == 0, done.err
    assert "digraph" in done.out


@pytest.mark.parametrize(("path", "variable"), [("$DIGITS/test.arrow", "DIGITS"), ("~/digits/test.arrow", "HOME")])
def test_paths_take_variables_and_the_home_directory(desk: Desk, path: str, variable: str) -> None:
    place = {"DIGITS": ROOT / "data/digits", "HOME": ROOT / "data"}[variable]
    desk.write("job.yaml", re.sub(r"path: [^,]+", f"path: {path}", desk.job))
    done = desk.singa("run", "job.yaml", environment={variable: str(place)})
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ("type: InnerProduct", "type: Dense", "Did you mean 'InnerProduct'"),
        ("type: InnerProduct", "type: Conv2D", "Did you mean 'Convolution'"),
        ("type: UniformSqrtFanIn", "type: Xavier", "Leave init out.*type: UniformSqrtFanInOut"),
        ("  momentum: 0.9", "  lr: 0.9", "Did you mean 'learning_rate'"),
        ("type: RecordInput", "type: RecordImput", "Did you mean 'RecordInput'"),
    ],
)
def test_a_name_of_another_program_is_answered_with_ours(desk: Desk, old: str, new: str, answer: str) -> None:
    assert old in desk.job
    desk.write("job.yaml", desk.job.replace(old, new))
    done = desk.singa("validate", "job.yaml")
    assert done.code == 2
    assert re.search(rf"^job\.yaml:\d+:\d+: .*{answer}", done.err, re.MULTILINE), done.err


@pytest.mark.parametrize("verb", ["train", "rnu"])
def test_a_mistyped_command_is_answered(desk: Desk, verb: str) -> None:
    done = desk.singa(verb, "job.yaml")
    assert done.code == 2
    assert "Did you mean 'run'?" in done.err


def test_a_job_is_read_from_standard_input(desk: Desk) -> None:
    done = desk.singa("validate", "-", stdin=desk.job)
    assert done.code == 0, done.err
    done = desk.singa("validate", "-", stdin=desk.job.replace("num_output:", "num_outputs:"))
    assert done.code == 2
    assert re.search(r"^<stdin>:20:\d+: .*num_output", done.err, re.MULTILINE), done.err


def test_the_package_runs_as_a_module(desk: Desk) -> None:
    command = [sys.executable, "-m", "singa_dask", "--version"]
    done = subprocess.run(command, cwd=desk.directory, env=desk.environ(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("singa-dask, version ")


def test_help_says_how_a_shell_completes(desk: Desk) -> None:
    done = desk.singa("--help")
    assert "_SINGA_DASK_COMPLETE=bash_source" in done.out
    done = desk.singa(environment={"_SINGA_DASK_COMPLETE": "bash_source"})
    assert "_SINGA_DASK_COMPLETE" in done.out
