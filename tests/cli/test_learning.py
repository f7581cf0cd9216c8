"""Nets that cannot learn are refused, with the layer that is likely to be missing; ``debug`` writes what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Call

LOSS = "    - name: loss\n      type: SoftmaxLoss\n      srclayers: [fc, data]\n"
LOSSES = "a SoftmaxLoss, or a EuclideanLoss for regression,"


def refused(call: Call, path: Path, verb: str = "validate", *words: str) -> str:
    result = call(verb, path, *words)
    assert result.exit_code == 2, result.output
    [line] = result.stderr.splitlines()
    return line.removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("instead", "hint"),
    [
        ("", f"Add {LOSSES} that reads 'fc' and 'data'."),
        (
            "    - {name: prob, type: Softmax, srclayers: fc}\n",
            "Replace the Softmax 'prob' by a SoftmaxLoss that reads 'fc' and 'data'.",
        ),
        ("    - {name: right, type: Accuracy, srclayers: [fc, data]}\n", f"Add {LOSSES} that reads 'fc' and 'data'."),
        (LOSS + "      include: test\n", f"Add {LOSSES} that reads 'fc' and 'data'."),
        (
            "    - {name: fc2, type: InnerProduct, srclayers: fc, partition_dim: 1, innerproduct_conf: {num_output: 3}}"
            "\n",
            f"Add {LOSSES} that reads 'fc2' and 'data'.",
        ),
    ],
)
def test_a_net_without_a_loss(call: Call, job: Path, instead: str, hint: str) -> None:
    job.write_text(job.read_text().replace(LOSS, instead))
    for verb in ("validate", "run"):
        line = refused(call, job, verb, "--set", "cluster.nworkers_per_group=2")
        assert re.fullmatch(
            rf"\d+:\d+: neuralnet.layer: the train net has no loss layer, so nothing is learnt. {re.escape(hint)}",
            line,
        )


def test_a_loss_that_reads_nothing_that_learns(call: Call, job: Path) -> None:
    loss = "    - {name: loss, type: EuclideanLoss, srclayers: [data, data]}\n"
    job.write_text(job.read_text().replace(LOSS, loss))
    line = refused(call, job)
    assert "no layer with params is below the loss 'loss', so nothing is learnt." in line
    assert line.endswith("Connect the loss to the output of 'fc'.")


def test_a_net_without_params(call: Call, job: Path) -> None:
    text = job.read_text()
    head, tail = text.index("    - name: fc\n"), text.index("    - name: loss\n")
    job.write_text(text[:head] + text[tail:].replace("[fc, data]", "[data, data]"))
    assert "no layer of the training net has params to train." in refused(call, job)


def test_an_unrolled_net_without_a_loss(call: Call, tmp_path: Path) -> None:
    text = (ROOT / "configs" / "char-rnn" / "gru.yaml").read_text()
    path = tmp_path / "gru.yaml"
    path.write_text(text[: text.index("    - name: loss\n")])
    assert refused(call, path).endswith(f"Add {LOSSES} that reads 'ip1' and 'label'.")


def test_contrastive_divergence_needs_an_rbm(call: Call, job: Path) -> None:
    assert "CD trains RBMVis and RBMHid, and the net has none." in refused(
        call, job, "validate", "--set", "train_one_batch.alg=CD"
    )


def test_a_job_for_tests_alone_needs_no_loss(call: Call, job: Path) -> None:
    text = re.sub(r"(?m)^(train_.*|updater:\n(  .*\n)+)", "", job.read_text().replace(LOSS, ""))
    job.write_text(text)
    assert call("validate", job).exit_code == 0


@pytest.mark.parametrize("partition", ["", "neuralnet.partition_dim=1"])
def test_debug_logs_each_layer_at_the_steps_of_disp_freq(call: Call, job: Path, tmp_path: Path, partition: str) -> None:
    sets = ["debug=true", "cluster.nworkers_per_group=2", "cluster.nworkers_per_procs=2"]
    words = [word for each in [*sets, partition] if each for word in ("--set", each)]
    result = call("run", job, "--run-dir", tmp_path / "run", *words)
    assert result.exit_code == 0, result.output
    for worker in range(2):
        log = (tmp_path / "run" / "log" / f"worker-0-{worker}.log").read_text()
        number = r"\d\.?\d*(?:e-\d+)?"
        rows, columns = (20, 5) if partition else (10, 10)
        fc = rf"step (\d), \S*fc\S* \({rows}, {columns}\): data {number}, grad {number}; "
        weight = (
            rf"w \({columns}, 784\): value {number}, grad {number}; b \({columns},\): value {number}, grad {number}"
        )
        assert re.findall(fc + weight, log) == ["0", "2", "4", "5"], log


def test_debug_without_disp_freq_is_warned_of(call: Call, job: Path) -> None:
    result = call("validate", job, "--set", "debug=true", "--set", "disp_freq=0")
    assert result.stderr == (
        "--set debug=true: debug: warning: no debug lines are written. "
        "Set disp_freq, the number of steps between two lines.\n"
    )
