"""The names in docs/parts-reference.md are all that classes have for authors of layers, and that our layers use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from singa_dask.conf import LayerConf, ParamConf
from singa_dask.layers import Context, Feature, Layer, Param, Speed, Traits

ROOT = Path(__file__).parents[2]
CLASSES = {
    "Layer": Layer(LayerConf(name="layer", type="Layer"), Context()),
    "Feature": Feature((2, 3)),
    "Param": Param("weight", (2, 3), ParamConf()),
    "Traits": Traits(),
    "Speed": Speed(),
}
# What only nets, workers and servers use.
OF_NETS = {
    "Layer": {"buffers", "conf_name", "learns", "send_ready", "take_metrics"},
    "Feature": {"allocate", "own_data", "own_grad"},
    "Traits": {"consumed"},
}
THE_CONTRACT = ("__init__", "base", "buffer", "context", "feature", "fused", "metrics", "param", "site", "traits")
LAYERS = [path for path in sorted((ROOT / "singa_dask/layers").glob("*.py")) if path.stem not in THE_CONTRACT]


def listed() -> dict[str, set[str]]:
    """Return the names that the page lists, by class."""
    names: dict[str, set[str]] = {}
    section = (ROOT / "docs/parts-reference.md").read_text().split("## All names")[1].split("\n## ")[0]
    for cls, row in re.findall(r"^\| `(\w+)`[^|]*\|(.*)\|$", section, re.MULTILINE):
        names.setdefault(cls, set()).update(re.findall(r"`(\w+)`", row))
    return names


def used(path: Path) -> Iterator[str]:
    """Yield the attributes that a file of layers uses of anything."""
    yield from (node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute))


@pytest.mark.parametrize("cls", CLASSES)
def test_the_page_lists_all_names_of_authors(cls: str) -> None:
    public = {name for name in dir(CLASSES[cls]) if not name.startswith("_")}
    names = listed()[cls]
    if cls == "Param":  # most of it is for those who keep and send it
        assert names <= public
    else:
        # a net sets them before `setup`
        later = {"ops", "metrics"} if cls == "Layer" else set()
        assert names | OF_NETS.get(cls, set()) | later == public | later


@pytest.mark.parametrize("path", LAYERS, ids=lambda path: path.stem)
def test_layers_use_no_names_of_nets(path: Path) -> None:
    hidden = {name for each in CLASSES.values() for name in dir(each) if name[0] == "_" and name[1] != "_"}
    assert not (set().union(*OF_NETS.values()) | hidden) & set(used(path))
