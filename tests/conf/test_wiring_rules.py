"""Wiring rules on names alone."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from singa_dask.conf import LayerConf, NetConf
from singa_dask.conf.wiring_rules import check_phases, check_wiring


def layer(name: str, *sources: str, kind: str = "ReLU", **words: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "srclayers": list(sources), **words}


def read_layers(layers: list[Any]) -> list[LayerConf]:
    """Return the layers of a net, repaired ones where something is wrong with it."""
    try:
        return NetConf.model_validate({"layer": layers}).layer
    except ValidationError as error:
        repaired = error.errors()[0]["input"]
        assert isinstance(repaired, NetConf)
        return repaired.layer


def findings(*layers: Any) -> list[tuple[tuple[str | int, ...], str]]:
    return list(check_wiring(read_layers([*layers])))


def test_a_good_net() -> None:
    data = [layer("data", include=["kTrain"]), layer("data", include="test")]
    assert findings(*data, layer("a", "data"), layer("b", "a"), layer("c", "a", "b")) == []


def test_order_of_the_list_is_free() -> None:
    assert findings(layer("c", "b"), layer("b", "a"), layer("a")) == []


def test_same_name_in_one_phase_is_told_once() -> None:
    assert findings(layer("a"), layer("b"), layer("a")) == [
        ((2, "name"), "duplicate name 'a', also of item 0 of the list.")
    ]


def test_rbm_layers_read_each_other() -> None:
    vis, hid = layer("vis", "data", "hid", kind="kRBMVis"), layer("hid", "vis", kind="RBMHid")
    assert findings(layer("data"), vis, hid) == []


def test_other_layers_may_not() -> None:
    assert findings(layer("x"), layer("a", "x", "b"), layer("b", "a")) == [
        ((1, "srclayers", 1), "these layers read each other: a <- b <- a.")
    ]


def test_each_cycle_is_told_once_and_layers_behind_it_are_not() -> None:
    found = findings(
        layer("a", "b"), layer("b", "c"), layer("c", "a"), layer("tail", "c"), layer("p", "q"), layer("q", "p")
    )
    assert found == [
        ((0, "srclayers", 0), "these layers read each other: a <- b <- c <- a."),
        ((4, "srclayers", 0), "these layers read each other: p <- q <- p."),
    ]


def test_self_source() -> None:
    assert findings(layer("a", "a")) == [((0, "srclayers", 0), "a layer cannot read itself.")]


def test_include_with_exclude() -> None:
    found = findings(layer("a", include="train"), layer("b", exclude="test"))
    assert found == [((1, "exclude"), "include and exclude are both used in this net. Use include only.")]
    assert findings(layer("a"), layer("b", exclude="test")) == []
    [(path, _)] = findings(layer("a", include="train", exclude="test"))
    assert path == (0, "exclude")


def test_a_layer_without_a_name_is_not_known() -> None:
    [(_, message)] = findings({"type": "ReLU"}, layer("a", "b"), layer("c"))
    assert message == "unknown layer 'b'. Known: c."


@pytest.mark.parametrize(
    "rubbish", [None, 3, "fc1", [], {"name": 3, "type": [], "srclayers": {"a": 1}, "include": [5]}]
)
def test_rubbish_is_for_others_to_tell(rubbish: Any) -> None:
    assert findings(rubbish, layer("a")) == []


def test_phases_that_cannot_be_read_hide_nothing_and_add_nothing() -> None:
    layers = [layer("data", include="tain"), layer("data", include="test"), layer("a", "data", "dta")]
    assert [path for path, _ in findings(*layers)] == [(2, "srclayers", 1)]
    assert list(check_phases(read_layers(layers), ["train", "val"])) == []
