"""Class names from pictures to predictions, by commands: converted, learned, matched with test data, shown."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.conftest import DIGITS, Call
from tests.data.stores.test_class_names import GREY, picture_folder

PATH = "neuralnet.layer[data].store_conf.path"


@pytest.fixture
def run(call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Train on pictures of three classes that were converted."""
    monkeypatch.chdir(tmp_path)
    picture_folder(Path("train"), GREY, 10)
    result = call("convert", "image-folder", "train", "train.arrow", "--channels", 1, "--shuffle", 1)
    assert result.exit_code == 0, result.output
    text = job.read_text().replace(str(DIGITS), "train.arrow").replace("shape: [28, 28]", "shape: [1, 4, 4]")
    job.write_text(text.replace("num_output: 10", "num_output: 3").replace("std_value: 255", "std_value: 30"))
    result = call("run", job, "--run-dir", "run", "--quiet", "--set", "train_steps=60")
    assert result.exit_code == 0, result.output
    return job


def accuracy(call: Call, job: Path, path: str, *options: str) -> float:
    result = call("test", job, "--init-from", "run", "--set", f"{PATH}={path}", "--json", "--quiet", *options)
    assert result.exit_code == 0, result.output
    return float(json.loads(result.stdout.splitlines()[-1])["test"]["accuracy"])


def test_test_data_are_matched_by_name(call: Call, run: Path) -> None:
    # here cat is class 1, in training it was 2
    picture_folder(Path("some"), {name: GREY[name] for name in ("ant", "cat")}, 10)
    options = ("--set", "neuralnet.layer[data].store_conf.channels=1")
    result = call("predict", run, "--init-from", "run", "--data", "some", *options)
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert {row["class"] for row in rows} <= set(GREY)
    assert all(sorted(GREY).index(row["class"]) == int(row["number"]) for row in rows)
    right = sum(Path(row["file"]).parent.name == row["class"] for row in rows) / len(rows)
    # without a match no picture of a cat would be right
    assert accuracy(call, run, "some", *options) == pytest.approx(right)
    assert right > 0.5


def test_unknown_classes_are_refused(call: Call, run: Path) -> None:
    picture_folder(Path("other"), {"ant": 10, "dog": 40})
    assert call("convert", "image-folder", "other", "other.npz", "--channels", 1).exit_code == 0
    result = call("test", run, "--init-from", "run", "--set", f"{PATH}=other.npz", "--quiet")
    assert result.exit_code != 0
    assert "unknown class names: dog. Its classes are ant, dog." in result.stderr
    assert "Expected some of the classes of training: ant, bee, cat." in result.stderr
