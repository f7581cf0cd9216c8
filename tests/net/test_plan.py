"""The plan of a net: phases, Splits, order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError
from singa_dask.layers.connection import SplitConf
from singa_dask.net import Node, NodeOutput, plan
from singa_dask.net.order import topological_order
from singa_dask.net.plan import add_splits, layers_in_phase
from tests.net.jobs import DATA, dense, job, layer, mlp


def names(nodes: list[Node]) -> list[str]:
    return [node.name for node in nodes]


def nodes_of(layers: list[dict[str, Any]], phase: Phase = Phase.TRAIN) -> list[Node]:
    return plan(job(layers).neuralnet, phase)


def test_phases_choose_layers() -> None:
    layers = [
        {**DATA, "include": ["train"]},
        {**DATA, "include": ["test", "val"], "user_conf": {"shape": [4, 6]}},
        dense("fc", "data", 3),
        layer("loss", "SoftmaxLoss", "fc", "data", include=["train", "val"]),
        layer("right", "Accuracy", "fc", "data", include=["test"]),
    ]
    chosen = job(layers).neuralnet.layer
    assert [node.index for node in layers_in_phase(chosen, Phase.TRAIN)] == [0, 2, 3]
    assert [node.index for node in layers_in_phase(chosen, Phase.VALIDATION)] == [1, 2, 3]
    assert [node.index for node in layers_in_phase(chosen, Phase.TEST)] == [1, 2, 4]


def test_a_phase_without_layers_is_refused() -> None:
    net = job([{**each, "include": ["train"]} for each in mlp()]).neuralnet
    with pytest.raises(ConfigError, match="no layer is left in the test net"):
        plan(net, Phase.TEST)


def test_unknown_types_are_all_named() -> None:
    layers = [DATA, layer("a", "InnerProdct", "data"), layer("b", "Sigmod", "a")]
    with pytest.raises(ConfigError) as caught:
        nodes_of(layers)
    assert [problem.path for problem in caught.value.problems] == [
        ("neuralnet", "layer", 1, "type"),
        ("neuralnet", "layer", 2, "type"),
    ]
    assert "Did you mean 'InnerProduct'?" in caught.value.problems[0].message


def test_split_after_a_layer_with_several_readers() -> None:
    layers = [DATA, dense("fc", "data", 3), layer("a", "Sigmoid", "fc"), layer("b", "Tanh", "fc")]
    planned = nodes_of(layers)
    assert names(planned) == ["data", "fc", "split(fc)", "a", "b"]
    split = planned[2]
    assert (split.index, split.source_names) == (1, ("fc",))
    assert split.conf.block(SplitConf).num_splits == 2
    assert [node.source_names for node in planned[3:]] == [("split(fc)->0",), ("split(fc)->1",)]


def test_a_layer_read_twice_by_one_is_split_too() -> None:
    planned = nodes_of([DATA, dense("fc", "data", 3), layer("loss", "EuclideanLoss", "fc", "fc")])
    assert planned[-1].source_names == ("split(fc)->0", "split(fc)->1")


def test_input_layers_and_splits_of_the_user_get_none() -> None:
    own = layer("s", "Split", "fc", split_conf={"num_splits": 2})
    layers = [DATA, dense("fc", "data", 3), own, layer("a", "Sigmoid", "s"), layer("b", "EuclideanLoss", "s", "data")]
    assert names(nodes_of(layers)) == ["data", "fc", "s", "a", "b"]


def test_a_split_with_more_readers_than_outputs_is_refused() -> None:
    own = layer("s", "Split", "fc", split_conf={"num_splits": 2})
    readers = [layer(name, "Sigmoid", "s") for name in "abc"]
    with pytest.raises(ConfigError, match=r"split_conf.num_splits: the layer has 2 outputs, but more layers read it"):
        nodes_of([DATA, dense("fc", "data", 3), own, *readers, layer("loss", "EuclideanLoss", "a", "b")])


def test_order_is_that_of_the_list_where_sources_allow() -> None:
    layers = mlp()
    assert names(nodes_of(layers[::-1])) == [each["name"] for each in layers]
    two = [DATA, dense("b", "data", 3), dense("a", "data", 3), layer("loss", "EuclideanLoss", "a", "b")]
    assert names(nodes_of(two)) == ["data", "b", "a", "loss"]


def test_layers_that_wait_for_each_other_are_named() -> None:
    confs = job([DATA, dense("a", "data", 2), dense("b", "a", 2)]).neuralnet.layer
    nodes = [Node(confs[0], 0, ()), Node(confs[1], 1, (NodeOutput("b"),)), Node(confs[2], 2, (NodeOutput("a"),))]
    with pytest.raises(ConfigError, match=r"layer\[1\].srclayers: these layers wait for each other: a, b"):
        topological_order(nodes)


@given(st.integers(2, 12).flatmap(lambda n: st.tuples(st.permutations(range(n)), st.lists(st.booleans(), min_size=n))))
@pytest.mark.long
def test_any_graph_is_put_in_order(given_graph: tuple[list[int], list[bool]]) -> None:
    listed, chain = given_graph
    confs = {i: job([DATA | {"name": f"l{i}"}]).neuralnet.layer[0] for i in listed}
    sources = {i: tuple(NodeOutput(f"l{j}") for j in range(i) if chain[j] or j == i - 1) for i in listed}
    ordered = topological_order([Node(confs[i], k, sources[i]) for k, i in enumerate(listed)])
    seen: set[str] = set()
    for node in ordered:
        assert seen.issuperset(node.source_names)
        seen.add(node.name)
    assert len(ordered) == len(listed)
    assert topological_order(ordered) == ordered


def test_add_splits_is_a_step_of_its_own() -> None:
    nodes = layers_in_phase(job(mlp()).neuralnet.layer, Phase.TRAIN)
    assert add_splits(nodes) == nodes
