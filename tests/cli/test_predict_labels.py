"""Nets of records with several labels: ``run``, ``predict``, ``export`` and predictions from Python."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

import singa_dask as sd
from singa_dask.errors import DataError
from tests.cli.conftest import Call

JOB = """\
name: several
train_steps: 60
disp_freq: 0
test_freq: 60
test_steps: 1
threads: 1
train_one_batch: {alg: BP}
updater: {type: Adam, learning_rate: {type: Fixed, base_lr: 0.1}}
neuralnet:
  layer:
    - name: data
      type: RecordInput
      store_conf: &records {path: things.csv, features: [a, b], target: [red, round], shape: [2], batchsize: 40}
    - {name: labels, type: TargetInput, store_conf: *records}
    - {name: scores, type: InnerProduct, srclayers: data, innerproduct_conf: {num_output: 2}}
    - {name: loss, type: SigmoidCrossEntropyLoss, srclayers: [scores, labels]}
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a job on a table of 40 records, in the working directory."""
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(size=(40, 2)).round(3)
    rows = [f"{a},{b},{int(a > 0)},{int(a + b > 0)}" for a, b in values]
    Path("things.csv").write_text("\n".join(["a,b,red,round", *rows, ""]))
    path = Path("several.yaml")
    path.write_text(JOB)
    return path


def test_probabilities_of_labels(call: Call, job: Path) -> None:
    result = call("run", job, "--run-dir", "run")
    assert result.exit_code == 0, result.output
    assert sd.open_run("run").metrics["test"]["binary_accuracy"] > 0.9
    result = call("predict", job, "--init-from", "run", "--data", "things.csv")
    assert result.exit_code == 0, result.output
    header, *rows = csv.reader(io.StringIO(result.stdout))
    assert header == ["record", "red", "round"]
    found = sd.predict("run", "things.csv")
    assert found.shape == (40, 2)
    np.testing.assert_allclose(np.array([row[1:] for row in rows], float), found, rtol=1e-5)
    records = np.genfromtxt("things.csv", delimiter=",", skip_header=1)
    assert ((found > 0.5) == records[:, 2:]).mean() > 0.9
    values = records[:, :2].astype(np.float32)
    np.testing.assert_allclose(sd.load_model("run").predict(values), found, rtol=1e-5)
    result = call("predict", job, "--init-from", "run", "--data", "things.csv", "--topk", 2)
    assert result.exit_code != 0
    assert "--topk 2, but layer 'loss' has labels" in result.stderr
    result = call("predict", job, "--init-from", "run", "--data", "things.csv", "--layer", "loss", "--layer", "scores")
    assert "'loss' predicts labels or values. Predict them separately." in result.stderr
    onnxruntime = pytest.importorskip("onnxruntime")
    assert call("export", "run", "--out", "model.onnx").exit_code == 0
    [exported] = onnxruntime.InferenceSession("model.onnx").run(None, {"data": values})
    np.testing.assert_allclose(exported, found, rtol=1e-4, atol=1e-6)


def test_values_of_targets(call: Call, job: Path) -> None:
    job.write_text(JOB.replace("SigmoidCrossEntropyLoss", "EuclideanLoss"))
    result = call("run", job, "--run-dir", "run")
    assert result.exit_code == 0, result.output
    found = sd.predict("run", "things.csv")
    for layer in ([], ["--layer", "scores"]):
        result = call("predict", job, "--init-from", "run", "--data", "things.csv", *layer)
        assert result.exit_code == 0, result.output
        header, *rows = csv.reader(io.StringIO(result.stdout))
        assert header == ["record", "red", "round"]
        np.testing.assert_allclose(np.array([row[1:] for row in rows], float), found, rtol=1e-5)
    result = call("predict", job, "--init-from", "run", "--data", "things.csv", "--topk", 2)
    assert "--topk 2, but layer 'scores' has labels or values" in result.stderr


def test_a_target_that_is_no_label(call: Call, job: Path) -> None:
    text = Path("things.csv").read_text()
    Path("things.csv").write_text(text + "1,1,3,0\n" * 40)
    result = call("run", job, "--run-dir", "run")
    assert result.exit_code != 0
    assert "layer loss: target 3 from 'labels' is out of range. Expected a value from 0 to 1." in result.stderr
    assert DataError.__name__ not in result.output
