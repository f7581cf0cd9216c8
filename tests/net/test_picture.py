"""Pictures of nets: what stands in them, and that the bytes on bridges are those that go over."""

from __future__ import annotations

import re
from typing import Any

import pytest

from singa_dask.conf import Phase
from singa_dask.inputs import InputContext
from singa_dask.layers import LAYERS
from singa_dask.layers.bridge import BridgeSrc
from singa_dask.net import make_net
from singa_dask.net.picture import Picture
from singa_dask.ops import get_ops
from tests.net.group import Group
from tests.net.jobs import DATA, UNIFORM, dense, job, layer, mlp
from tests.net.recurrent import Columns, Decay, Sum

FEATURES, FIRST, SECOND = {"partition_dim": 1}, {"location": 0}, {"location": 1}
STEPS = {**DATA, "unroll_len": 1, "user_conf": {"shape": [4, 6], "classes": 3}}
COLUMNS = layer("in", "Columns", "data", user_conf={"width": 2})


@pytest.fixture(autouse=True)
def known_types(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Columns, Decay, Sum):
        monkeypatch.setitem(LAYERS._classes, kind.__name__, kind)


def picture(layers: list[dict[str, Any]], n_workers: int = 1, phase: Phase = Phase.TRAIN, **net: Any) -> Picture:
    conf = job([], neuralnet={"layer": layers, **net})
    return Picture.of(make_net(conf, InputContext(phase=phase, n_workers=n_workers), get_ops("numpy")), "a net")


def where(layers: list[dict[str, Any]], **placed: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**each, **placed.get(each["name"], {})} for each in layers]


def drawn(dot: str) -> dict[str, str]:
    """Return the attributes of each box, by the name of its layer."""
    found = re.findall(r'^ +n\d+ \[(.*tooltip="([^ ]+) .*)\]$', dot, re.MULTILINE)
    return {name: attributes for attributes, name in found}


def arrows(dot: str) -> set[tuple[str, str]]:
    """Return the edges, by the names of their layers."""
    names = dict(re.findall(r'^ +(n\d+) \[.*tooltip="([^ ]+) ', dot, re.MULTILINE))
    return {(names[a], names[b]) for a, b in re.findall(r"^ +(n\d+) -> (n\d+)", dot, re.MULTILINE)}


def rows(attributes: str) -> list[str]:
    """Return the text of a box, row by row."""
    return [re.sub("<[^>]*>", "", row) for row in re.findall("<td>(.*?)</td>", attributes)]


# -- one worker ------------------------------------------------------------------------------------


def test_layers_have_types_shapes_and_params() -> None:
    made = picture(mlp())
    assert made.title == ("a net", "53 values to learn")
    boxes = drawn(made.dot())
    assert list(boxes) == ["data", "fc1", "act1", "fc2", "loss"]
    assert rows(boxes["fc1"]) == ["fc1  InnerProduct", "8 x 5", "w_fc1: 5 x 6", "b_fc1: 5"]
    assert arrows(made.dot()) == {("data", "fc1"), ("fc1", "act1"), ("act1", "fc2"), ("fc2", "loss"), ("data", "loss")}
    assert "cluster" not in made.dot()


def test_a_shared_param_names_its_owner() -> None:
    tied = dense("back", "fc", 6)
    tied["param"][0] = {"name": "w_back", "share_from": "w_fc"}
    tied["innerproduct_conf"] = {"num_output": 6, "transpose": True}
    made = picture([DATA, dense("fc", "data", 5), tied, layer("loss", "EuclideanLoss", "back", "data")])
    assert "w_back: 5 x 6 (values of w_fc)" in rows(drawn(made.dot())["back"])


def test_layers_of_a_block_are_in_a_frame() -> None:
    names = ["b.1.fc", "b.1.act", "b.2.fc", "b.2.act", "out.fc"]
    layers = mlp()[:1]
    for name, source in zip(names, ["data", *names[:-1]], strict=True):
        layers.append(layer(name, "Sigmoid", source))
    dot = picture(layers).dot()
    frames = re.findall(r'subgraph "(\S+)" {|(?<=tooltip=")(\S+) |^ +(})$', dot, re.MULTILINE)
    assert [frame or box or end for frame, box, end in frames] == [
        "data",
        *("cluster_0_b", "cluster_0_b_1", *names[:2], "}", "cluster_0_b_2", *names[2:4], "}", "}"),
        "out.fc",
    ]


def test_names_are_escaped() -> None:
    made = picture([{**DATA, "name": 'a<b>&"c"\\'}, layer("t", "Tanh", 'a<b>&"c"\\')])
    assert '<b>a&lt;b&gt;&amp;"c"\\</b>' in made.dot()
    assert r'tooltip="a<b>&\"c\"\\ (Feed) 8 x 6"' in made.dot()


# -- unrolled nets ---------------------------------------------------------------------------------


def test_merged_layers_show_their_steps() -> None:
    decay = layer("h", "Decay", "in", param=[{"name": "a", "init": UNIFORM}])
    boxes = drawn(picture([STEPS, COLUMNS, decay, layer("loss", "SoftmaxLoss", "h", "in")], unroll_len=3).dot())
    assert rows(boxes["h"]) == ["h  Decay", "3 steps of 4 x 2", "a: 2"]
    assert rows(boxes["data"]) == ["data  Feed", "4 x 6"]


def test_copies_of_steps_are_boxes_of_their_own() -> None:
    layers = [STEPS, COLUMNS, layer("s", "Sum", "in"), dense("out", "s", 3), layer("loss", "SoftmaxLoss", "out", "in")]
    made = picture(layers, unroll_len=2)
    boxes = drawn(made.dot())
    assert {"0#s", "1#s"} < set(boxes)
    assert rows(boxes["slice(in)"]) == ["cut by steps"]
    assert rows(boxes["concate(s)"]) == ["joined by steps", "2 steps of 4 x 2"]


def test_params_of_copies_are_written_once() -> None:
    # what reads the step before is computed step by step
    before = layer("s", "Sum", "in", "fc", unroll_conn_type=["OneToOne", "OneToOne"], shift=[0, 1])
    layers = [STEPS, COLUMNS, before, dense("fc", "s", 2), layer("loss", "SoftmaxLoss", "fc", "in")]
    boxes = drawn(picture(layers, unroll_len=2).dot())
    assert rows(boxes["0#fc"])[2:] == ["w_fc: 2 x 2", "b_fc: 2"]
    assert rows(boxes["1#fc"])[2:] == []


# -- partitioned nets ------------------------------------------------------------------------------


def test_workers_that_have_all_layers_are_drawn_once() -> None:
    made = picture(mlp(), 4)
    assert list(drawn(made.dot())) == ["data", "fc1", "act1", "fc2", "loss"]
    assert made.frame == "on each of 4 workers\nwhich share the records of a batch: no bridges"
    assert "on each of 4 workers" in made.dot()
    assert rows(drawn(made.dot())["fc1"])[1] == "2 x 5"


def test_parts_are_in_the_frames_of_their_workers() -> None:
    made = picture(where(mlp(), fc1=FEATURES), 2)
    dot = made.dot()
    first, second = dot.split("subgraph")[1:]
    assert {name for name in drawn(first) if "(" not in name} == {f"{each}@0" for each in _names(mlp())}
    assert {name for name in drawn(second) if "(" not in name} == {f"{each}@1" for each in _names(mlp())}
    assert "worker 0" in first and "worker 1" in second
    assert rows(drawn(dot)["fc1@0"]) == ["fc1@0  InnerProduct", "8 x 2", "w_fc1: 2 x 6 of 5 x 6", "b_fc1: 2 of 5"]
    assert rows(drawn(dot)["slice(fc1@0,0)"]) == ["cut by records"]
    fills = {name: re.findall('fillcolor="(.*?)"', text) for name, text in drawn(dot).items()}
    assert fills["fc1@0"] == fills["loss@0"] != fills["fc1@1"]


def _names(layers: list[dict[str, Any]]) -> list[str]:
    return [each["name"] for each in layers]


def test_a_bridge_is_one_edge_with_its_bytes() -> None:
    made = picture(where(mlp(), fc1=FIRST, act1=FIRST, fc2=SECOND), 2)
    assert not any("bridge" in name for name in drawn(made.dot()))
    assert ("act1", "fc2") in arrows(made.dot())
    # 8 x 5 float32 forward, and as many back
    edge = next(edge for edge in made.edges if edge.forward and made.boxes[edge.source].name == "bridge_src(act1@0->1)")
    assert (edge.forward, edge.back) == (160, 160)
    assert ">320 B<" in made.dot()
    assert "worker 0 to 1: 160 bytes forward, 160 bytes back a step" in made.dot()
    assert made.boxes[edge.target].name == "bridge_dst(act1@0->1)"


def test_bytes_of_several_bridges_stand_where_they_arrive() -> None:
    made = picture(where(mlp(), fc1=FEATURES), 4)
    joined = rows(drawn(made.dot())["concate(data)@3"])
    assert joined == ["joined by records", "8 x 6", "48 B + 48 B + 48 B"]
    assert "label=<<font" not in made.dot()
    n_bytes = sum(edge.forward + edge.back for edge in made.edges)
    assert made.title[2] == (f"24 bridges between 4 workers: {n_bytes:,} bytes a step, data forward and gradients back")


def test_a_test_net_sends_no_gradients() -> None:
    made = picture(where(mlp(), fc1=FEATURES), 2, Phase.TEST)
    assert sum(edge.forward for edge in made.edges) > 0
    assert sum(edge.back for edge in made.edges) == 0


def test_labels_count_where_they_are_read() -> None:
    placed = {"data": FIRST, "fc1": SECOND, "act1": SECOND, "fc2": SECOND, "loss": SECOND}
    made = picture(where(mlp(), **placed), 2)
    assert [edge.forward for edge in made.edges if edge.forward] == [8 * 6 * 4 + 8 * 4]
    made = picture(where(mlp(), **{**placed, "fc1": FIRST}), 2)
    assert sorted(edge.forward for edge in made.edges if edge.forward) == [8 * 4, 8 * 5 * 4]


@pytest.mark.parametrize("n_workers", [2, 3])
@pytest.mark.parametrize("placed", [{"fc1": FEATURES}, {"fc2": FEATURES, "act1": SECOND}, {"fc1": SECOND}], ids=str)
def test_as_many_bytes_go_over_bridges(placed: dict[str, Any], n_workers: int) -> None:
    data = {**DATA, "user_conf": {"shape": [12, 6], "classes": 3}}
    group = Group(job([], neuralnet={"layer": where([data, *mlp()[1:]], **placed)}), n_workers)
    group.train(1)
    bridges = [each for each in group.nets[0].all_layers if isinstance(each, BridgeSrc)]
    labels = sum(4 * each.features[0].shape[0] for each in bridges if "labels" in each.features[0].consumed_as)
    assert group.post.n_values * 8 == sum(sum(each.bytes_per_step()) for each in bridges) - labels > 0
