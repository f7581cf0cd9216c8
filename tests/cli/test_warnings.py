"""Warnings on a job file: told once with their places, hidden by --quiet, errors with --strict; none on good jobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from singa_dask.api import REGISTRIES
from singa_dask.cli import job as job_files
from singa_dask.conf.warnings import find_warnings
from singa_dask.errors import Problem
from singa_dask.runtime.job.checks.job import net_warnings
from singa_dask.runtime.planning import machine
from singa_dask.runtime.planning.nets import build_nets
from tests.cli.conftest import ROOT, Call
from tests.net import jobs

CONFIGS = sorted(path for path in (ROOT / "configs").rglob("*.yaml") if path.parent.name != "cluster")
GOLD = sorted([*(ROOT / "tests" / "gold").glob("*.yaml"), *(ROOT / "tests" / "gold" / "confs").glob("*.conf")])
HERE = ROOT / "tests" / "conf" / "files" / "singa"
SINGA = sorted(path for path in HERE.glob("*.conf") if path.stem != "user_parts")


def told(call: Call, path: Path, *words: str) -> list[str]:
    """Return the warnings of ``validate``, without the name of the file."""
    result = call("validate", path, *words)
    assert result.exit_code == 0, result.output
    return [line.removeprefix(f"{path}:") for line in result.stderr.splitlines()]


@pytest.mark.parametrize("path", [*CONFIGS, *GOLD, *SINGA], ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_good_job_has_no_warnings(path: Path) -> None:
    read = job_files.read(str(path), (), None)
    nets = build_nets(read.job) if read.job.trains else {}
    assert read.in_order([*find_warnings(read.job, REGISTRIES), *net_warnings(nets)]) == []


def test_blocks_that_a_layer_does_not_read(call: Call, job: Path) -> None:
    text = job.read_text().replace("srclayers: [fc, data]", "srclayers: [fc, data]\n      store_conf: {batchsize: 3}")
    job.write_text(text.replace("type: InnerProduct", "type: InnerProduct\n      user_conf: {x: 1}\n"))
    assert told(call, job) == [
        "19:7: neuralnet.layer[fc].user_conf: warning: InnerProduct does not read this block. "
        "It reads innerproduct_conf.",
        "29:7: neuralnet.layer[loss].store_conf: warning: SoftmaxLoss does not read this block. "
        "It reads softmaxloss_conf.",
    ]


@pytest.mark.parametrize(
    ("reader", "shape", "n"),
    [
        ({"type": "Pooling", "pooling_conf": {"kernel": 2}}, [8, 8, 3], 1),
        ({"type": "Pooling", "pooling_conf": {"kernel": 2}}, [3, 8, 8], 0),
        ({"type": "ReLU"}, [8, 8, 3], 0),
    ],
)
def test_shapes_that_look_like_channels_last(reader: dict[str, Any], shape: list[int], n: int) -> None:
    store = {"path": "x.arrow", "batchsize": 4, "shape": shape}
    conf = jobs.job(
        [jobs.layer("data", "RecordInput", store_conf=store), {"name": "r", "srclayers": ["data"], **reader}]
    )
    message = (
        "[8, 8, 3] looks like height, width, channels, but is taken as channels, height, width. "
        "Set shape: [3, 8, 8], and layout: NHWC if the records are stored in that order."
    )
    found = find_warnings(conf, REGISTRIES)
    assert found == n * [Problem(("neuralnet", "layer", 0, "store_conf", "shape"), message)]


def test_a_job_without_steps(call: Call, job: Path) -> None:
    said = "--set train_steps=0: train_steps: warning: 0 steps: the net is not trained. Set train_steps or epochs."
    assert told(call, job, "--set", "train_steps=0") == [said]


@pytest.mark.parametrize(("steps", "n"), [(100, 0), (111, 0), (120, 1), (1000, 1)])
@pytest.mark.parametrize(
    "rate",
    [
        "{type: Cosine, base_lr: 0.1, cosine_conf: {change_freq: 100}}",
        "{type: Linear, base_lr: 0.1, linear_conf: {change_freq: 100, final_lr: 0, clamp: true}}",
    ],
)
def test_a_rate_that_ends_before_the_training(call: Call, job: Path, rate: str, steps: int, n: int) -> None:
    result = call("validate", job, "--set", f"updater.learning_rate={rate}", "--set", f"train_steps={steps}")
    assert result.exit_code == 0, result.output
    said = (
        f"warning: the learning rate is 0 from step 100 of {steps} on. To train longer, raise change_freq in its block"
    )
    assert result.output.count("the learning rate is 0") == result.output.count(said.removeprefix("warning: ")) == n


def test_keys_that_the_updater_does_not_read(call: Call, job: Path) -> None:
    job.write_text(job.read_text().replace("type: SGD", "type: Adam\n  rmsprop_conf: {rho: 0.9}\n  delta: 1.0e-7"))
    sets = ["updater.learning_rate.step_conf.change_freq=5", "train_one_batch.cd_conf.cd_k=3"]
    words = [word for each in sets for word in ("--set", each)]
    lines = told(call, job, *words)
    assert lines[:2] == [
        "10:3: updater.rmsprop_conf: warning: Adam does not read this key. "
        "In addition to the keys of all updaters, it reads adam_conf, delta.",
        "12:3: updater.momentum: warning: Adam does not read this key. "
        "In addition to the keys of all updaters, it reads adam_conf, delta.",
    ]
    assert sorted(line.partition(": warning: ")[2] for line in lines[2:]) == [
        "BP does not read this block. Only CD does.",
        "Fixed does not read this block. It reads only base_lr.",
    ]


def test_a_base_lr_beside_fixed_steps(call: Call, job: Path) -> None:
    job.write_text(
        job.read_text().replace(
            "{type: Fixed, base_lr: 0.05}", "{type: FixedStep, base_lr: 1, fixedstep_conf: {step: 0, step_lr: 0.1}}"
        )
    )
    [line] = told(call, job)
    assert line.startswith("11:36: updater.learning_rate.base_lr: warning: FixedStep does not read this key.")


def test_what_a_resolved_job_says_by_itself_is_no_mistake(call: Call, job: Path, tmp_path: Path) -> None:
    (tmp_path / "resolved.yaml").write_text(job_files.read(str(job), (), None).resolved())
    assert told(call, tmp_path / "resolved.yaml") == []


def test_layers_that_nobody_reads(call: Call, job: Path) -> None:
    job.write_text(
        job.read_text()
        + "    - {name: wide, type: Tanh, srclayers: fc}\n"
        + "    - {name: prob, type: Softmax, srclayers: fc, include: test}\n"
        + "    - {name: top, type: ArgSort, srclayers: fc}\n"
    )
    [line] = told(call, job)
    assert line.startswith("27:7: neuralnet.layer[wide]: warning: no layer of the train or test net reads this layer")


def test_a_layer_that_only_its_next_time_step_reads(call: Call) -> None:
    path = ROOT / "configs" / "char-rnn" / "gru.yaml"
    read = job_files.read(str(path), ("neuralnet.layer[ip1].srclayers=onehot",), None)
    [found] = read.in_order(net_warnings(build_nets(read.job)))
    assert found.shown_path == "neuralnet.layer[gru1]"


def test_partitioned_layers_that_nobody_reads(job: Path) -> None:
    job.write_text(job.read_text() + "    - {name: wide, type: Tanh, srclayers: fc, partition_dim: 1}\n")
    sets = ("neuralnet.partition_dim=1", "cluster.nworkers_per_group=2")
    read = job_files.read(str(job), sets, None)
    assert [found.shown_path for found in read.in_order(net_warnings(build_nets(read.job)))] == [
        "neuralnet.layer[wide]"
    ]


def test_a_softmax_before_a_softmax_loss(call: Call, job: Path) -> None:
    job.write_text(
        job.read_text().replace("[fc, data]", "[prob, data]") + "    - {name: prob, type: Softmax, srclayers: fc}\n"
    )
    [line] = told(call, job)
    assert line == (
        "26:19: neuralnet.layer[loss].srclayers[0]: warning: SoftmaxLoss includes the softmax, and 'prob' is a "
        "Softmax already, so the softmax would be applied twice. Read 'fc' instead."
    )


def test_a_sigmoid_before_the_loss_of_a_sigmoid(call: Call, job: Path) -> None:
    lines = "    - {name: prob, type: Sigmoid, srclayers: fc}\n"
    lines += "    - {name: more, type: SigmoidCrossEntropyLoss, srclayers: [prob, prob]}\n"
    job.write_text(job.read_text() + lines)
    [line] = told(call, job)
    assert line.endswith(
        "includes the sigmoid, and 'prob' is a Sigmoid already, so the sigmoid would be applied twice. "
        "Read 'fc' instead."
    )


def test_more_workers_than_cores(call: Call, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cpu_count", lambda: 3)
    sets = ["--set", "cluster.nworker_groups=4"]
    [line] = told(call, job, *sets)
    assert "cluster.nworker_groups: warning: the job has 4 workers, but this machine has 3 cores" in line
    assert told(call, job, "--set", "cluster.nworker_groups=3") == []
    assert told(call, job, *sets, "--set", "gpu=[0]", "--set", "cluster.nworkers_per_procs=2") == []


def test_run_tells_warnings_once_and_quiet_none(call: Call, job: Path, tmp_path: Path) -> None:
    job.write_text(job.read_text().replace("SGD", "AdaGrad"))
    result = call("run", job, "--run-dir", tmp_path / "one")
    assert result.exit_code == 0, result.output
    assert len(re.findall("warning: AdaGrad does not read this key", result.stderr)) == 1
    result = call("run", job, "--run-dir", tmp_path / "two", "--quiet")
    assert (result.exit_code, result.stderr) == (0, "")


def test_strict_makes_all_warnings_errors(call: Call, job: Path, tmp_path: Path) -> None:
    text = job.read_text().replace("SGD", "AdaGrad")
    job.write_text(text.replace("srclayers: [fc, data]", "srclayers: [fc, data]\n      store_conf: {batchsize: 3}"))
    for verb in ("validate", "run"):
        result = call(verb, job, "--strict")
        assert result.exit_code == 2
        assert [line.split(": ")[:2] for line in result.stderr.splitlines()] == [
            [f"{job}:10:3", "updater.momentum"],
            [f"{job}:27:7", "neuralnet.layer[loss].store_conf"],
        ]
    job.write_text(text.replace("AdaGrad", "SGD"))
    assert call("validate", job, "--strict").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [["test"], ["extract", "--predictions", "--out", "x.csv"], ["predict", "--data", "x.csv"], ["sample"]],
    ids=lambda words: words[0],
)
def test_verbs_that_use_a_net_are_strict_with_layers_alone(call: Call, job: Path, words: list[str]) -> None:
    job.write_text(
        job.read_text()
        .replace("SGD", "AdaGrad")
        .replace("srclayers: [fc, data]", "srclayers: [fc, data]\n      store_conf: {batchsize: 3}")
    )
    if words == ["sample"]:
        text = ROOT / "configs" / "char-rnn" / "sample.yaml"
        job.write_text(text.read_text().replace("  type: Sampling\n", "  type: Sampling\n      lrn_conf: {}\n"))
        words = ["sample", "--init-from", "nowhere"]
    result = call(words[0], job, "--strict", *words[1:])
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert re.search(r"does not read this block", line)


def test_the_last_line_of_training_is_of_the_last_step(call: Call, job: Path, tmp_path: Path) -> None:
    result = call("run", job, "--set", "train_steps=8", "--set", "disp_freq=5", "--run-dir", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.output
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert re.findall(r'"step": (\d+), "phase": "train"', lines) == ["0", "5", "7"]
