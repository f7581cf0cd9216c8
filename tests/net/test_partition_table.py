"""What partitioning puts between two layers: SINGA's table, ours of layers that are not partitioned, and its limits."""

from __future__ import annotations

from typing import Any

import pytest

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError
from singa_dask.layers.connection import ConcateConf, SliceConf, SplitConf
from singa_dask.net import Node, plan
from singa_dask.net.partition import TABLE
from tests.net.group import Group
from tests.net.jobs import DATA, dense, job, layer
from tests.net.test_partition import compare
from tests.selection import mostly_long

Edge = tuple[int, int, bool]

# partition_dim of the source and of the reader, whether the reader needs all features of a record:
# along which axis a part is cut, and along which what comes is joined
SINGA: dict[Edge, tuple[int | None, int | None]] = {
    (0, 0, False): (None, None),
    (1, 1, False): (None, None),
    (0, 0, True): (None, None),
    (1, 0, False): (0, 1),
    (0, 1, False): (1, 0),
    (1, 0, True): (0, 1),
    (0, 1, True): (None, 0),
    (1, 1, True): (None, 1),
}
OURS: dict[Edge, tuple[int | None, int | None]] = {
    (-1, -1, False): (None, None),
    (-1, -1, True): (None, None),
    (-1, 0, False): (0, None),
    (-1, 0, True): (0, None),
    (-1, 1, False): (1, None),
    (-1, 1, True): (None, None),
    (0, -1, False): (None, 0),
    (0, -1, True): (None, 0),
    (1, -1, False): (None, 1),
    (1, -1, True): (None, 1),
}


def net(source: int, reader: int, to_all: bool) -> list[dict[str, Any]]:
    """Return a net with an edge from ``a`` to ``b``, which are partitioned so."""
    b = dense("b", "a", 8) if to_all else layer("b", "Tanh", "a")
    return [
        {**DATA, "user_conf": {"shape": [12, 6], "classes": 3}, "partition_dim": 0},
        {**dense("a", "data", 7), "partition_dim": source},
        {**b, "partition_dim": reader},
        layer("loss", "SoftmaxLoss", "b", "data", partition_dim=0),
    ]


def planned(layers: list[dict[str, Any]], n_workers: int) -> dict[str, Node]:
    return {node.name: node for node in plan(job(layers).neuralnet, Phase.TRAIN, n_workers)}


def read_by(node: Node) -> tuple[str, ...]:
    """Return the names of the sources; of a Split, whose outputs are alike, its own."""
    return tuple(source.node if source.node.startswith("split(") else str(source) for source in node.sources)


def put_in(layers: list[dict[str, Any]], n_workers: int, name: str) -> dict[str, tuple[Any, ...]]:
    """Return type, worker, sources, and axis, number or peer of what is put in behind a layer."""
    found: dict[str, tuple[Any, ...]] = {}
    for node in planned(layers, n_workers).values():
        conf, core = node.conf, node.name.replace("split(", "").partition("(")[2] or node.name[6:]
        if "(" not in node.name or core.split("@")[0].split("(")[-1].rstrip(")").split(",")[0] != name:
            continue
        if conf.type == "Split":
            place = conf.block(SplitConf).num_splits
        elif conf.type == "Slice":
            assert node.n_outputs == conf.block(SliceConf).num_slices == n_workers
            place = conf.block(SliceConf).slice_dim
        else:
            place = conf.block(ConcateConf).concate_dim if conf.type == "Concate" else node.peer
        found[node.name] = (conf.type, node.worker, read_by(node), place)
    return found


def wanted(edge: Edge, cut: int | None, joined: int | None, n_workers: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what belongs between ``a`` and ``b``, and what each part of ``b`` reads."""
    source, reader, _ = edge
    from_workers = [0] if source == -1 else list(range(n_workers))
    to_workers = [0] if reader == -1 else list(range(n_workers))
    parts = {w: "a" if source == -1 else f"a@{w}" for w in from_workers}
    made: dict[str, Any] = {}
    reads: dict[int, list[str]] = {w: [] for w in to_workers}
    for at, part in parts.items():
        if cut is not None:
            made[f"slice({part},{cut})"] = ("Slice", at, (part,), cut)
        pairs = [to for to in to_workers if joined is not None or cut is not None or source == -1 or to == at]
        next_output = part
        if cut is None and len(pairs) > 1:
            next_output = f"split({part})"
            made[next_output] = ("Split", at, (part,), len(pairs))
        for to in pairs:
            piece, read = (part, next_output) if cut is None else (f"slice({part},{cut})->{to}",) * 2
            if to != at:
                pair = f"({piece}@{at}->{to})"
                made[f"bridge_src{pair}"] = ("BridgeSrc", at, (read,), to)
                made[f"bridge_dst{pair}"] = ("BridgeDst", to, (f"bridge_src{pair}",), at)
                read = f"bridge_dst{pair}"
            reads[to].append(read)
    for to in to_workers if joined is not None else ():
        what = "a" if cut is None else f"slice(a,{cut})->{to}"
        made[f"concate({what})@{to}"] = ("Concate", to, tuple(reads[to]), joined)
        reads[to] = [f"concate({what})@{to}"]
    return made, {"b" if reader == -1 else f"b@{to}": read[0] for to, read in reads.items()}


def test_the_table_has_these_rows_and_no_other() -> None:
    rows = {
        (source, reader, connection.name == "ONE_TO_ALL"): tuple(way)
        for (source, reader, connection), way in TABLE.items()
    }
    assert rows == {**SINGA, **OURS}


@pytest.mark.parametrize("n_workers", mostly_long([3, 2], 2))
@pytest.mark.parametrize("edge", {**SINGA, **OURS}, ids=str)
def test_a_row_of_the_table(edge: Edge, n_workers: int) -> None:
    if edge[:2] == (0, 0):
        layers = [*net(*edge), dense("far", "data", 4, partition_dim=-1)]  # else there is nothing to partition
    else:
        layers = net(*edge)
    made, reads = wanted(edge, *{**SINGA, **OURS}[edge], n_workers)
    assert put_in(layers, n_workers, "a") == made
    nodes = planned(layers, n_workers)
    assert {name: read_by(nodes[name]) for name in reads} == {name: (read,) for name, read in reads.items()}
    assert [(nodes[name].partition_dim, nodes[name].part) for name in reads] == [
        (edge[1], part) for part in range(len(reads))
    ]
    compare(layers, [{**each, "partition_dim": None} for each in layers], n_workers)


def test_slice_concate_over_two_workers_word_for_word() -> None:
    made = put_in(net(1, 0, True), 2, "a")
    assert made == {
        "slice(a@0,0)": ("Slice", 0, ("a@0",), 0),
        "slice(a@1,0)": ("Slice", 1, ("a@1",), 0),
        "bridge_src(slice(a@0,0)->1@0->1)": ("BridgeSrc", 0, ("slice(a@0,0)->1",), 1),
        "bridge_dst(slice(a@0,0)->1@0->1)": ("BridgeDst", 1, ("bridge_src(slice(a@0,0)->1@0->1)",), 0),
        "bridge_src(slice(a@1,0)->0@1->0)": ("BridgeSrc", 1, ("slice(a@1,0)->0",), 0),
        "bridge_dst(slice(a@1,0)->0@1->0)": ("BridgeDst", 0, ("bridge_src(slice(a@1,0)->0@1->0)",), 1),
        "concate(slice(a,0)->0)@0": ("Concate", 0, ("slice(a@0,0)->0", "bridge_dst(slice(a@1,0)->0@1->0)"), 1),
        "concate(slice(a,0)->1)@1": ("Concate", 1, ("bridge_dst(slice(a@0,0)->1@0->1)", "slice(a@1,0)->1"), 1),
    }


def test_a_chain_of_all_of_them() -> None:
    dims = [0, 1, 1, 0, -1, 1, -1, 0, 1, 0]
    layers: list[dict[str, Any]] = [{**DATA, "user_conf": {"shape": [12, 6], "classes": 3}, "partition_dim": 0}]
    for k, dim in enumerate(dims):
        before = str(layers[-1]["name"])
        made = dense(f"l{k}", before, 5 + k % 3) if k % 3 < 2 else layer(f"l{k}", "STanh", before)
        layers.append({**made, "partition_dim": dim})
    layers.append(layer("loss", "SoftmaxLoss", "l9", "data", partition_dim=1))
    for n_workers in (2, 3, 4):
        compare(layers, [{**each, "partition_dim": None} for each in layers], n_workers)
    kinds = [kind for k in range(10) for kind, *_ in put_in(layers, 2, f"l{k}").values()]
    assert {"Slice", "Concate", "Split", "BridgeSrc", "BridgeDst"} == set(kinds)


def test_a_piece_that_several_readers_on_a_worker_need_is_sent_once() -> None:
    layers = net(0, 1, True)
    layers[3:3] = [dense("c", "a", 5, partition_dim=1), layer("d", "EuclideanLoss", "c", "c2", partition_dim=1)]
    layers.insert(4, dense("c2", "a", 5, partition_dim=-1))
    made = put_in(layers, 3, "a")
    assert [kind for kind, *_ in made.values()].count("BridgeSrc") == 6  # from each worker to the two others
    assert [kind for kind, *_ in made.values()].count("Concate") == 3
    assert made["split(concate(a)@0)"] == ("Split", 0, ("concate(a)@0",), 3)
    assert made["split(concate(a)@1)"] == ("Split", 1, ("concate(a)@1",), 2)
    compare(layers, [{**each, "partition_dim": None} for each in layers], 3)


def test_a_location_is_one_part_on_that_worker() -> None:
    layers = net(0, 0, False)
    layers[2] = layer("b", "Tanh", "a", location=2)
    nodes = planned(layers, 3)
    assert (nodes["b"].worker, nodes["b"].partition_dim, nodes["b"].n_parts) == (2, -1, 1)
    assert nodes["b"].source_names == ("concate(a)@2",)
    assert nodes["concate(a)@2"].source_names == (
        "bridge_dst(a@0@0->2)",
        "bridge_dst(a@1@1->2)",
        "a@2",
    )


def test_nets_by_records_alone_stay_as_they_are() -> None:
    layers = net(0, 0, True)
    assert [node.worker for node in planned(layers, 3).values()] == [None] * 4
    layers = [{**each, "partition_dim": 1} for each in net(0, 0, True)]
    assert [node.worker for node in planned(layers, 1).values()] == [None] * 4


@pytest.mark.parametrize(("n_units", "n_workers", "parts"), [(10, 4, [2, 3, 2, 3]), (5, 3, [1, 2, 2]), (4, 4, [1] * 4)])
def test_uneven_parts(n_units: int, n_workers: int, parts: list[int]) -> None:
    layers = net(0, 1, True)
    layers[2] = dense("b", "a", n_units, partition_dim=1)
    group = compare(layers, [{**each, "partition_dim": None} for each in layers], n_workers)
    assert [net.param("w_b").shape for net in group.nets] == [(parts[0], 7)] * n_workers
    assert [owner.shape for net in group.nets for owner in net.owners if owner.name == "w_b"] == [
        (part, 7) for part in parts
    ]


def test_uneven_channels() -> None:
    images = {"shape": [12, 2, 4, 4], "classes": 3}
    params = [{"name": f"{name}", "init": {"type": "Uniform", "low": -0.5, "high": 0.5}} for name in ("w", "b")]
    layers = [
        {**DATA, "user_conf": images},
        layer("conv", "Convolution", "data", convolution_conf={"num_filters": 5}, param=params, partition_dim=1),
        layer("pool", "Pooling", "conv", pooling_conf={"kernel": 2, "stride": 1}, partition_dim=1),
        dense("ip", "pool", 3),
        layer("loss", "SoftmaxLoss", "ip", "data"),
    ]
    group = compare(layers, [{**each, "partition_dim": None} for each in layers], 3)
    assert [owner.shape[0] for net in group.nets for owner in net.owners if owner.name == "w"] == [1, 2, 2]


# -- limits ------------------------------------------------------------------------------------------


def refused(layers: list[dict[str, Any]], n_workers: int) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        Group(job(layers), n_workers)
    return [str(problem) for problem in caught.value.problems]


def test_too_few_features() -> None:
    layers = net(0, 1, True)
    layers[2] = dense("b", "a", 3, partition_dim=1)
    assert refused(layers, 4) == [
        "neuralnet.layer[2].partition_dim: 3 features cannot be shared by 4 workers. Use 0 or -1."
    ]


def test_too_few_features_of_a_source() -> None:
    layers = net(0, 1, False)
    layers[1] = dense("a", "data", 3, partition_dim=0)
    assert refused(layers, 4) == [
        "neuralnet.layer[2].partition_dim: its sources cannot be partitioned among the workers: "
        "expected at most 3, the length of axis 1 of (3, 3), got 4. Set another partition_dim."
    ]


@pytest.mark.parametrize(
    ("n_rows", "words"), [(10, "a batch that 4 workers can share equally, got 10."), (3, "at most 3,")]
)
def test_a_batch_that_workers_cannot_share(n_rows: int, words: str) -> None:
    layers = net(-1, 0, True)
    layers[0] = {**DATA, "user_conf": {"shape": [n_rows, 6], "classes": 3}, "partition_dim": -1}
    problems = refused(layers, 4)
    assert [problem.partition(":")[0] for problem in problems] == [
        "neuralnet.layer[2].partition_dim",
        "neuralnet.layer[3].partition_dim",
    ]
    assert words in problems[0]


@pytest.mark.parametrize("n_workers", [2, 3])
def test_a_location_out_of_range(n_workers: int) -> None:
    layers = [{**each, "location": n_workers - 1 + k % 2} for k, each in enumerate(net(0, 0, True))]
    expected = f"expected a worker of the group, 0 to {n_workers - 1}, got {n_workers}."
    assert refused(layers, n_workers) == [f"neuralnet.layer[{k}].location: {expected}" for k in (1, 3)]
