"""The shipped jobs of residual nets, ResNet-20 and the transformer: they learn, and what they have learnt is used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import ROOT, Call
from tests.converting import convert

N_STEPS = 12


def losses(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line.get("phase") == "train"]


def colours(path: Path, seed: int, n: int) -> None:
    """Write noisy images that show their class by their colour."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, n)
    shades = np.random.default_rng(0).integers(40, 216, (10, 3))
    images = shades[labels][:, :, None, None] + random.integers(-40, 40, (n, 3, 32, 32))
    np.savez(path.with_suffix(".npz"), images=images.astype(np.uint8), labels=labels.astype(np.uint8))
    convert("npz", [str(path.with_suffix(".npz"))], str(path))


@pytest.mark.soak
def test_resnet20_learns_colours(tmp_path: Path, call: Call) -> None:
    for seed, name in enumerate(("train", "test")):
        colours(tmp_path / f"{name}.arrow", seed, 160)
    sets = [f"neuralnet.layer[{i}].store_conf.path={tmp_path}/{name}.arrow" for i, name in enumerate(("train", "test"))]
    for i in range(2):
        block = f"neuralnet.layer[{i}].store_conf"
        sets += [f"{block}.batchsize=16", f"{block}.mean_file=''", f"{block}.mean_value=127.5"]
    sets += [f"train_steps={N_STEPS}", "disp_freq=1", f"test_freq={N_STEPS}", "test_steps=10"]
    # few images, small batches
    sets += ["updater.learning_rate.fixedstep_conf.step_lr=[0.01, 0.01, 0.001]"]
    options = [word for one in sets for word in ("--set", one)]
    job = ROOT / "configs/cifar10/resnet20.yaml"
    done = call("run", job, *options, "--run-dir", tmp_path / "run", "--quiet", "--json")
    assert done.exit_code == 0, done.output
    found = losses(tmp_path / "run")
    assert found[0] == pytest.approx(np.log(10), abs=1.5)
    assert np.mean(found[-3:]) < 0.8 * np.mean(found[:3])
    assert "test" in json.loads(done.stdout)


@pytest.mark.long
def test_the_transformer_learns_and_writes(tmp_path: Path, call: Call) -> None:
    sets = [f"train_steps={N_STEPS}", "disp_freq=1", "neuralnet.unroll_len=32"]
    sets += ["neuralnet.layer[data].char_rnn_conf.unroll_len=32", "neuralnet.layer[data].char_rnn_conf.batchsize=8"]
    sets += [
        f"neuralnet.layer[data].char_rnn_conf.{key}={ROOT}/data/text/{name}"
        for key, name in (("path", "jargon.txt.gz"), ("vocab_path", "vocab.txt"))
    ]
    options = [word for one in sets for word in ("--set", one)]
    job = ROOT / "configs/char-rnn/transformer.yaml"
    done = call("run", job, *options, "--run-dir", tmp_path / "run", "--quiet")
    assert done.exit_code == 0, done.output
    found = losses(tmp_path / "run")
    # with its first values the net does not know which of 153 characters comes
    assert found[0] == pytest.approx(np.log(153), abs=1)
    assert np.mean(found[-3:]) < found[0] - 0.3
    written = call("sample", job, *options, "--init-from", tmp_path / "run", "--length", 200, "--seed-text", "hacker")
    assert written.exit_code == 0, written.output
    assert len(written.stdout) == 200
