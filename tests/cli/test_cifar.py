"""CIFAR-10 from the files in which it is handed out to a trained net, by the command line alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import ROOT, Call
from tests.selection import mostly_long

N_TRAIN, N_TEST, BATCH = 60, 20, 10


def write_batch(path: Path, seed: int, n: int) -> np.ndarray:
    """Write ``n`` records in CIFAR-10's binary form: a byte of class, then red, green and blue; return the pictures."""
    random = np.random.default_rng(seed)
    records = random.integers(0, 256, (n, 1 + 3 * 32 * 32), dtype=np.uint8)
    records[:, 0] = random.integers(0, 10, n)
    path.write_bytes(records.tobytes())
    return records[:, 1:]


@pytest.fixture
def stores(tmp_path: Path, call: Call) -> list[str]:
    """Convert two files for training and one for tests; return what says to a job where the records are."""
    for i in (1, 2):
        write_batch(tmp_path / f"data_batch_{i}.bin", i, N_TRAIN // 2)
    write_batch(tmp_path / "test_batch.bin", 3, N_TEST)
    mean = f"{tmp_path}/image_mean.bin"
    done = call("convert", "cifar", f"{tmp_path}/data_batch_[1-5].bin", tmp_path / "train.arrow", "--mean", mean)
    assert done.exit_code == 0, done.output
    done = call("convert", "cifar", tmp_path / "test_batch.bin", tmp_path / "test.arrow")
    assert done.exit_code == 0, done.output
    places = {0: "train", 1: "test"}
    sets = [f"neuralnet.layer[{i}].store_conf.path={tmp_path}/{name}.arrow" for i, name in places.items()]
    return [*sets, *(f"neuralnet.layer[{i}].store_conf.mean_file={mean}" for i in places)]


@pytest.mark.parametrize(("config", "within"), mostly_long([("convnet", 1e-3), ("convnet_bn", 0.05)], 2))
def test_a_net_trains_on_converted_batches(
    tmp_path: Path, call: Call, stores: list[str], config: str, within: float
) -> None:
    sets = [*stores, "train_steps=4", "disp_freq=1", "test_freq=2", f"test_steps={N_TEST // BATCH}"]
    sets += [f"neuralnet.layer[{i}].store_conf.batchsize={BATCH}" for i in (0, 1)]
    options = [word for one in sets for word in ("--set", one)]
    job = ROOT / f"configs/cifar10/{config}.yaml"
    done = call("run", job, *options, "--run-dir", tmp_path / "run", "--quiet", "--json")
    assert done.exit_code == 0, done.output

    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["state"], summary["steps"]) == ("done", 4)
    given = ("--data", tmp_path / "test.arrow", "--init-from", tmp_path / "run", "--topk", 10, "--quiet")
    chosen = call("predict", job, *options, *given)
    assert chosen.exit_code == 0, chosen.output
    labels = np.fromfile(tmp_path / "test_batch.bin", np.uint8).reshape(N_TEST, -1)[:, 0]
    rows = [line.split(",")[1:] for line in chosen.stdout.splitlines()[1:]]
    # of each record the classes, the likeliest first, and their probabilities
    classes, chances = (np.array([row[k::3] for row in rows], float) for k in (1, 2))
    assert summary["test"]["accuracy"] == pytest.approx((classes[:, 0] == labels).mean())
    assert summary["test"]["loss"] == pytest.approx(-np.log(chances[classes == labels[:, None]]).mean(), rel=1e-5)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line.get("phase") == "train"]
    # first weights are so small that ten classes look alike, and four steps hardly change that
    assert losses == pytest.approx([np.log(10)] * 4, abs=within)
    assert (tmp_path / "run/checkpoint/step-4").is_dir()
