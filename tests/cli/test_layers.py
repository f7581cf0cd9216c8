"""``layers``: every part that a job can name is listed, and described with its keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from singa_dask.api import REGISTRIES
from tests.cli.conftest import Call

OWN = """\
from singa_dask import Conf, Layer, register


class GateConf(Conf):
    threshold: float = 0.5
    \"\"\"Smaller values are set to 0.\"\"\"


@register
class Gate(Layer):
    \"\"\"y = x where x >= threshold, else 0.\"\"\"

    options_class = GateConf
"""


def printed(call: Call, *words: str) -> Any:
    result = call("layers", *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def ours(kind: str) -> set[str]:
    registry = REGISTRIES[kind]
    # other tests may have registered parts of their own
    return {name for name in registry.names() if registry.find(name).__module__.startswith("singa_dask.")}


@pytest.mark.parametrize("kind", sorted(REGISTRIES))
def test_every_part_is_listed(call: Call, kind: str) -> None:
    listed = printed(call, *(() if kind == "layer" else ("--kind", kind)))
    assert ours(kind) <= {name for part in listed for name in (part["name"], *part["also"])}
    for part in listed:
        assert part["summary"] and part["kind"] == kind


def test_a_line_for_each_layer(call: Call) -> None:
    lines = call("layers").stdout.splitlines()
    [line] = [line for line in lines if line.startswith("InnerProduct ")]
    assert line.split()[:2] == ["InnerProduct", "neuron"] and "y = x W^T + b" in line


def test_the_page_of_a_layer(call: Call) -> None:
    text = call("layers", "kInnerProduct").stdout
    assert text.startswith("InnerProduct: layer type (neuron)\n\n  y = x W^T + b")
    for line in (
        "  Sources:       1",
        "  Params:        weight, bias",
        "  partition_dim: 0, 1, -1",
        "innerproduct_conf:",
        "  num_output  (integer >= 1; required)",
        "  bias_term  (boolean; default true)",
    ):
        assert f"\n{line}\n" in text


def test_a_layer_in_json(call: Call) -> None:
    page = printed(call, "CudnnSoftmaxLoss")
    assert (page["name"], page["also"], page["family"]) == ("SoftmaxLoss", ["CudnnSoftmaxLoss"], "loss")
    assert page["sources"] == {"min": 2, "max": 3}
    assert page["metrics"] == ["loss", "accuracy"]
    assert page["block"]["keys"][0] == {
        "name": "topk",
        "type": "integer >= 1",
        "default": "1",
        "meaning": "A record counts as correct if its label is among the ``topk`` highest scores.",
    }


def test_parts_of_other_kinds(call: Call) -> None:
    text = call("layers", "Adam").stdout
    assert (
        "Kingma and Ba" in text
        and "  Also reads: delta\n" in text
        and "  beta1  (number >= 0, < 1; default 0.9)" in text
    )
    assert "(1 + cos(pi t / f)) / 2" in call("layers", "Cosine").stdout
    assert "schedule  (block; required)" in call("layers", "WarmUp").stdout
    assert call("layers", "--kind", "store", "csv").stdout.startswith("csv: ")


def test_an_unknown_name(call: Call) -> None:
    result = call("layers", "InnerProdct")
    assert result.exit_code == 2
    assert result.stderr.startswith("unknown part 'InnerProdct'. Did you mean 'InnerProduct'?")
    result = call("layers", "--kind", "layer", "Dense")
    assert result.stderr.startswith("unknown layer type 'Dense'. Did you mean 'InnerProduct'?")
    result = call("layers", "--kind", "updater", "InnerProduct")
    assert result.exit_code == 2 and "unknown updater 'InnerProduct'. Known: " in result.stderr


def test_parts_of_a_module(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gates.py").write_text(OWN)
    for name in ("Gate", "gates.Gate"):
        text = call("layers", "--module", "gates.py", name).stdout
        assert text.startswith(f"{name}: layer type (neuron)\n\n  y = x where x >= threshold, else 0.\n")
        assert text.endswith("gate_conf:\n  threshold  (number; default 0.5)\n    Smaller values are set to 0.\n")
