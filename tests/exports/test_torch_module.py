"""Modules of PyTorch, as text. tests/oracles computes with them where PyTorch is installed."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

import singa_dask as sd
from singa_dask.errors import ConfigError
from singa_dask.exports.converters import ONNX_CONVERTERS, TORCH_CONVERTERS
from singa_dask.exports.encoding import encode_torch
from tests.exports.nets import ROOT, exported, read_job

ABOUT = {"job": "a net", "step": "7", "producer": "singa-dask"}


def written(name: str, **changes: Any) -> tuple[str, dict[str, np.ndarray]]:
    """Return the text of a module of a config, and its weights."""
    job = read_job(ROOT / "configs" / name)
    weights, text = encode_torch(exported(job), "model.py", ABOUT | changes).values()
    return text.decode(), load(weights)


def test_every_layer_of_onnx_is_a_layer_of_pytorch() -> None:
    assert set(TORCH_CONVERTERS.by_class) == set(ONNX_CONVERTERS.by_class)


def test_a_module_is_plain() -> None:
    text, weights = written("digits/mlp.yaml")
    ast.parse(text)
    assert "        self.fc1 = nn.Linear(784, 512)\n" in text
    assert "        fc1 = self.fc1(data_normalized_2.flatten(1))\n        relu1 = F.relu(fc1)\n" in text
    assert "        return loss\n" in text
    assert text.startswith('"""a net, step 7, by singa-dask.\n')
    assert {"fc1.weight", "fc1.bias"} <= weights.keys()
    assert weights["fc1.weight"].shape == (512, 784)


def test_names_that_mean_something_else_are_changed() -> None:
    job = read_job(ROOT / "configs/digits/mlp.yaml")
    layers = [
        layer.model_copy(update={"name": {"fc1": "0#train"}.get(layer.name, layer.name),
                                 "srclayers": [{"fc1": "0#train"}.get(name, name) for name in layer.srclayers]})
        for layer in job.neuralnet.layer
    ]  # fmt: skip
    job = job.model_copy(update={"neuralnet": job.neuralnet.model_copy(update={"layer": layers})})
    _, text = encode_torch(exported(job), "model.py", ABOUT).values()
    assert "self.x0_train = nn.Linear(" in text.decode()
    ast.parse(text.decode())


@pytest.mark.parametrize("name", ["1st.py", "my-model.py", "class.py"])
def test_a_module_has_a_name_that_can_be_imported(name: str) -> None:
    made = exported(read_job(ROOT / "configs/digits/mlp.yaml"))
    with pytest.raises(ConfigError, match="is not a valid name for a module"):
        encode_torch(made, name, ABOUT)


@pytest.mark.parametrize(
    ("path", "format", "message"),
    [
        ("folder", "torch", "expected the name of a Python module"),
    ],
)
def test_what_is_no_module(tmp_path: Path, path: str, format: str | None, message: str) -> None:
    job = sd.load(ROOT / "configs/digits/mlp.yaml")
    with pytest.raises(ConfigError, match=message):
        sd.export(str(tmp_path), path, format, job=job)
