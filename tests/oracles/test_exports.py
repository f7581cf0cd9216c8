"""Modules of PyTorch that nets are exported to compute what the nets compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.exports.converters import TORCH_CONVERTERS
from singa_dask.exports.encoding import encode_torch
from singa_dask.exports.torch_source import TorchSource
from singa_dask.testing.case import Case
from tests.exports.nets import ROOT, compute, exported, layer_cases, read_job, wired
from tests.exports.test_onnx import CONFIG_PARAMS, OTHERS
from tests.exports.test_unrolled import unrolled
from tests.layers.cases import shown

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")

ABOUT = {"job": "a net", "step": "7", "producer": "singa-dask"}
FACTS: dict[str, Any] = {**ABOUT, "inputs": {}, "outputs": []}
TOLERANCE = 1e-5


def loaded(files: dict[str, bytes], tmp_path: Any) -> Any:
    """Write a module and its weights, and return the net."""
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    namespace: dict[str, Any] = {"__file__": str(tmp_path / "model.py"), "__name__": "model"}
    exec(compile(files["model.py"], "model.py", "exec"), namespace)
    return namespace["load"]()


@pytest.mark.parametrize("case", layer_cases(TORCH_CONVERTERS), ids=shown)
def test_a_layer(case: Case, tmp_path: Any) -> None:
    layer = wired(case)
    module = TorchSource()
    module.begin(layer)
    inputs = [np.array(each.data) for each in layer.sources]
    names = [module.input(f"x{k}") for k in range(len(inputs))]
    try:
        made = TORCH_CONVERTERS.find(layer)(module, layer, *names)
    except ConfigError as error:
        assert "SIGMOID" in str(error)
        return
    for k, value in enumerate(module.finish(made if isinstance(made, list) else [made])):
        layer.features[k].n_steps = 1
        module._outputs[f"y{k}"] = value
    net = loaded(module.encode("model.py", FACTS), tmp_path)
    with torch.no_grad():
        found = net(*map(torch.from_numpy, inputs))
    found = list(found.values()) if isinstance(found, dict) else [found]
    for values, feature in zip(found, layer.features, strict=True):
        np.testing.assert_allclose(values.numpy(), feature.data, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", [each for each in CONFIG_PARAMS if each.values[0] not in OTHERS])
def test_a_config(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    made = exported(read_job(ROOT / "configs" / name))
    net = loaded(encode_torch(made, "model.py", ABOUT), tmp_path)
    inputs, outputs = compute(made)
    with torch.no_grad():
        found = net(*(torch.from_numpy(x) for x in inputs.values()))
    ((_, values),) = outputs.items()
    np.testing.assert_allclose(found.numpy(), values, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("layer", ["loss", "twice"])
def test_an_unrolled_net(layer: str, tmp_path: Any) -> None:
    made = exported(unrolled("LSTM", dim_hidden=50), [layer])
    net = loaded(encode_torch(made, "model.py", ABOUT), tmp_path)
    inputs, outputs = compute(made)
    with torch.no_grad():
        found = net(*(torch.from_numpy(x) for x in inputs.values()))
    np.testing.assert_allclose(found.numpy(), outputs[layer], rtol=0, atol=TOLERANCE)
