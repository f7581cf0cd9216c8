"""Layers of all kinds, test nets, records and figures in partitioned nets."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.conf import Phase
from singa_dask.errors import CheckpointError, ConfigError
from singa_dask.inputs import InputContext
from singa_dask.net import NeuralNet, make_net
from singa_dask.ops import BFLOAT16, get_ops
from singa_dask.training import BP, initial_values
from tests.net.group import Group, Post, alone, merged, run_all, same
from tests.net.jobs import DATA, UNIFORM, dense, job, layer
from tests.net.test_partition import placed
from tests.selection import few_examples

WHOLE = {"partition_dim": -1}


def draws(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "init": UNIFORM} for name in names]


def images() -> list[dict[str, Any]]:
    """Return a net of layers that look at neighbours: with stride, padding, overlap, channels side by side."""
    conv = {"num_filters": 5, "kernel": 3, "stride": 2, "pad": 1}
    return [
        {**DATA, "user_conf": {"shape": [12, 4, 9, 9], "classes": 4}},
        layer("crop", "ImagePreprocess", "data", rgbimage_conf={"cropsize": 8, "mirror": True}),
        layer("conv", "Convolution", "crop", convolution_conf=conv, param=draws("w_conv", "b_conv")),
        layer("norm", "BatchNorm", "conv", param=draws("scale", "shift")),
        layer("relu", "ReLU", "norm"),
        layer("pool", "Pooling", "relu", pooling_conf={"kernel": 3, "stride": 1}),
        layer("lrn", "LRN", "pool", lrn_conf={"local_size": 3, "alpha": 0.5}),
        dense("ip", "lrn", 6, innerproduct_conf={"num_output": 6, "transpose": True}),
        dense("ip2", "pool", 6),
        layer("soft", "Softmax", "ip"),
        layer("near", "EuclideanLoss", "soft", "ip2"),
        layer("right", "Accuracy", "soft", "crop"),
        layer("loss", "SoftmaxLoss", "ip2", "crop"),
    ]


@few_examples(4)
@given(data=st.data(), n_workers=st.integers(2, 4))
@pytest.mark.long
def test_layers_that_look_at_neighbours(data: st.DataObject, n_workers: int) -> None:
    layers = placed(images(), data, n_workers)
    norm = next(each for each in layers if each["name"] == "norm")
    if norm.get("partition_dim") == 0:
        norm["partition_dim"] = 1  # the workers would have statistics of their own
    (one, losses), group = alone(images(), 2), Group(job(layers), n_workers)
    np.testing.assert_allclose(group.train(2), losses, rtol=1e-10)
    same(group, one)
    tested, wanted = group.test(job(layers)), one.test(job(images()))
    assert tested.keys() == wanted.keys() == {"near.loss", "loss.loss", "loss.accuracy", "right.accuracy"}
    for name, figure in wanted.items():
        np.testing.assert_allclose(tested[name], figure, rtol=1e-10)


def test_statistics_of_parts_of_the_batch_have_a_mean() -> None:
    by_records = Group(job(images()), 2)
    layers = images()
    layers[7]["partition_dim"] = 1
    group = Group(job(layers), 2)
    np.testing.assert_allclose(group.train(3), by_records.train(3), rtol=1e-10)
    same(group, by_records)


def two_losses() -> list[dict[str, Any]]:
    return [
        {**DATA, "user_conf": {"shape": [12, 6], "classes": 3}, "location": 1},
        dense("a", "data", 5),
        layer("left", "SoftmaxLoss", "a", "data", location=0),
        layer("right", "EuclideanLoss", "c", "b", location=1),
        dense("b", "a", 4, partition_dim=1),
        dense("c", "data", 4, partition_dim=0),
    ]


@pytest.mark.parametrize("partition_dim", [0, 1, -1])
def test_a_loss_of_several_labels(partition_dim: int) -> None:
    def layers(**more: Any) -> list[dict[str, Any]]:
        return [
            {**DATA, "user_conf": {"shape": [12, 6], "classes": 3}},
            dense("a", "data", 4),
            layer("soft", "Softmax", "a"),
            dense("b", "data", 4, **more),
            layer("loss", "SigmoidCrossEntropyLoss", "b", "soft", **more),
        ]

    one, group = Group(job(layers()), 1), Group(job(layers(partition_dim=partition_dim)), 2)
    np.testing.assert_allclose(group.train(2), one.train(2), rtol=1e-10)
    same(group, one)
    assert one.figures.keys() == {"loss", "binary_accuracy"}


def test_figures_are_called_alike_by_workers_that_have_other_layers() -> None:
    group = Group(job(two_losses()), 2)
    group.train(2)
    assert group.figures.keys() == {"left.loss", "right.loss", "accuracy"}
    plain = [{key: each[key] for key in each if key not in ("location", "partition_dim")} for each in two_losses()]
    one = Group(job(plain), 1)
    one.train(2)
    same(group, one)


@pytest.mark.parametrize("phase", [Phase.TEST, Phase.VALIDATION])
def test_a_net_of_another_phase_with_other_layers(phase: Phase) -> None:
    def layers(**places: dict[str, Any]) -> list[dict[str, Any]]:
        tied = {**dense("dec", "enc", 6), "innerproduct_conf": {"num_output": 6, "transpose": True}}
        tied["param"][0] = {"name": "w_dec", "share_from": "w_enc"}
        made = [
            {**DATA, "user_conf": {"shape": [12, 6], "classes": 3}},
            dense("enc", "data", 5),
            {**tied, "include": ["train"]},
            layer("back", "EuclideanLoss", "dec", "data", include=["train"]),
            dense("out", "enc", 3),
            layer("loss", "SoftmaxLoss", "out", "data"),
        ]
        return [{**each, **places.get(each["name"], {})} for each in made]

    parted = job(layers(enc={"partition_dim": 1}, dec={"location": 1}, out={"partition_dim": 1}, data=WHOLE))
    one, group = Group(job(layers()), 1), Group(parted, 2)
    group.train(3)
    one.train(3)
    same(group, one)
    tested, wanted = group.test(parted, phase=phase), one.test(job(layers()), phase=phase)
    assert tested == pytest.approx(wanted, rel=1e-10)


def test_a_layer_by_features_with_a_split_before_it_keeps_parts_of_its_params() -> None:
    layers = [
        {**DATA, "user_conf": {"shape": [12, 6], "classes": 3}},
        dense("a", "data", 5, partition_dim=1),
        layer("norm", "BatchNorm", "a", partition_dim=1),
        layer("drop", "Dropout", "a", partition_dim=1),
        layer("near", "EuclideanLoss", "norm", "drop", partition_dim=-1),
        layer("loss", "SoftmaxLoss", "norm", "data"),
    ]
    group = Group(job([*layers[:2], {**layers[2], "param": draws("scale", "shift")}, *layers[3:]]), 2)
    assert {owner.name: owner.shape for owner in group.nets[1].owners}["norm.mean"] == (3,)
    plain = [{key: each[key] for key in each if key != "partition_dim"} for each in layers]
    one = Group(job([*plain[:2], {**plain[2], "param": draws("scale", "shift")}, *plain[3:]]), 1)
    np.testing.assert_allclose(group.train(3), one.train(3), rtol=1e-10)
    same(group, one)


def cut_by_the_job() -> list[dict[str, Any]]:
    """Return a net with a Slice and a Split of the job's own, which give each reader its piece."""
    return [
        {**DATA, "user_conf": {"shape": [24, 6], "classes": 3}},
        dense("a", "data", 8),
        layer("cut", "Slice", "a", slice_conf={"slice_dim": 1, "num_slices": 2}),
        layer("t", "Tanh", "cut"),
        dense("b", "cut", 5),
        layer("twice", "Split", "t", split_conf={"num_splits": 2}),
        layer("join", "Concate", "twice", "b", concate_conf={"concate_dim": 1}),
        dense("c", "join", 4),
        dense("d", "b", 4),
        layer("far", "EuclideanLoss", "d", "twice"),
        layer("loss", "SoftmaxLoss", "c", "data"),
    ]


@few_examples(4)
@given(data=st.data(), n_workers=st.integers(2, 4))
def test_pieces_that_the_job_cuts_itself(data: st.DataObject, n_workers: int) -> None:
    whole = cut_by_the_job()
    (one, losses), group = alone(whole, 2), Group(job(placed(whole, data, n_workers)), n_workers)
    np.testing.assert_allclose(group.train(2), losses, rtol=1e-10)
    same(group, one)


def test_more_readers_than_pieces() -> None:
    layers = [*cut_by_the_job()[:5], dense("e", "cut", 3, location=1), layer("loss", "SoftmaxLoss", "e", "data")]
    with pytest.raises(ConfigError, match=r"slice_conf.num_slices: the layer has 2 outputs, but more layers read it"):
        Group(job(layers), 2)


# -- records -----------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> str:
    random, path = np.random.default_rng(7), tmp_path / "rows.csv"
    rows = [",".join([str(random.integers(3)), *(f"{x:.3f}" for x in random.normal(size=6))]) for _ in range(40)]
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def reader(url: str, **places: Any) -> list[dict[str, Any]]:
    store = {"path": url, "batchsize": 12, "shape": 6, "random_skip": 9, "shuffle": "block"}
    return [
        layer("data", "CSVInput", store_conf=store, **places),
        dense("fc", "data", 5, partition_dim=1),
        layer("loss", "SoftmaxLoss", "fc", "data"),
    ]


@pytest.mark.parametrize("places", [{"partition_dim": 0}, {"partition_dim": 1}, WHOLE, {"location": 1}], ids=str)
def test_records_are_the_same_whoever_reads_them(table: str, places: dict[str, Any]) -> None:
    whole = reader(table)
    whole[1] = dense("fc", "data", 5)
    one, group = Group(job(whole), 1), Group(job(reader(table, **places)), 2)
    np.testing.assert_allclose(group.train(5), one.train(5), rtol=1e-10)
    cursor = one.nets[0].cursors()["data"]
    readers = [net for net in group.nets if net.cursors()]
    assert len(readers) == 1 + ("partition_dim" in places and places != WHOLE)
    assert all(net.cursors() == {"data": cursor} for net in readers)
    # all workers are told of all input layers
    again = Group(job(reader(table, **places)), 2)
    for net in again.nets:
        net.seek({"data": cursor})
        with pytest.raises(
            CheckpointError, match=r"this net has no input layer 'dat' to continue. Did you mean 'data'"
        ):
            net.seek({"dat": cursor})
    for mine, theirs in ((again, group), (group, one)):
        for net in mine.nets:
            for owner in net.owners:
                values = theirs.values()[owner.name]
                owner.data[...] = owner.shard.of(values) if owner.shard else values
    losses = one.train(2)
    np.testing.assert_allclose(again.train(2), losses, rtol=1e-10)
    for net in [*one.nets, *group.nets, *again.nets]:
        net.close()


def test_sources_of_all_workers_are_checked_once_each(table: str) -> None:
    def net(worker: int, **places: Any) -> NeuralNet:
        context = InputContext(worker=worker, n_workers=2)
        return make_net(job(reader(f"{table}.gone", **places)), context, get_ops("numpy"))

    for worker, places in ((0, {"location": 1}), (1, {"location": 0}), (0, {"partition_dim": 0}), (1, WHOLE)):
        with pytest.raises(ConfigError) as caught:
            net(worker, **places).check_sources()
        assert [problem.path for problem in caught.value.problems] == [("neuralnet", "layer", 0, "store_conf", "path")]


# -- what people see, what is sent ---------------------------------------------------------------------


def test_describe_tells_all_layers_of_all_workers() -> None:
    net = Group(job(two_losses()), 2).nets[1]
    lines = net.describe().splitlines()
    assert len(lines) == 2 + len(net.all_layers)
    assert lines[0].split() == ["worker", "layer", "type", "reads", "shape", "params"]
    (of_b,) = [line for line in lines if line.split()[1] == "b@1"]
    assert of_b.split(maxsplit=3)[:3] == ["1", "b@1", "InnerProduct"]
    assert "w_b 2 x 5" in of_b
    assert lines[-1] == f"{6 * 5 + 5 + 5 * 4 + 4 + 6 * 4 + 4:,} values to learn"


def test_bf16_goes_over_bridges_as_it_is() -> None:
    try:
        get_ops("onednn", "bf16")
    except ConfigError as error:
        pytest.skip(str(error))
    post = Post()
    placed_images = images()
    for each, location in zip(placed_images, itertools.cycle([0, 1])):
        each["location"] = location
    placed_images[3] = layer("norm", "LRN", "conv", location=1)
    losses = {}
    for n_workers in (1, 2):
        layers = [{**each, "location": each["location"] * (n_workers - 1)} for each in placed_images]
        nets = []
        for worker in range(n_workers):
            context = InputContext(
                dtype=np.dtype(BFLOAT16), seed=3, worker=worker, n_workers=n_workers, exchange=post.of(worker)
            )
            net = make_net(job(layers), context, get_ops("onednn", "bf16"))
            net.allocate()
            net.allocate_params()
            for owner in net.owners:
                owner.data[...] = initial_values(owner.conf.init, owner.name, owner.whole_shape, 3, owner.dtype)
            nets.append(net)
        run_all([partial(BP(net).train_one_batch, 0) for net in nets])
        grads = {param.name: param.grad.copy() for net in nets for param in net.params}
        losses[n_workers] = merged(net.take_metrics() for net in nets), grads
    assert post.sent["1 data conv@0->1", "data"] == 12 * 5 * 4 * 4
    assert losses[1][0] == losses[2][0]
    for name, grad in losses[1][1].items():
        np.testing.assert_array_equal(losses[2][1][name], grad, err_msg=name)


@pytest.mark.parametrize(("partition_dim", "everywhere"), [(0, False), (0, True), (1, False)])
@pytest.mark.parametrize("kind", ["SoftmaxLoss", "EuclideanLoss"])
def test_weights_of_records_in_a_group(kind: str, partition_dim: int, everywhere: bool) -> None:
    def trained(n_workers: int, **more: Any) -> Group:
        shape = {"data": [12, 3], "weight": [12, 1]}
        rest = more if everywhere else {}
        feeds = [layer(name, "Feed", user_conf={"shape": each, "classes": 3}, **rest) for name, each in shape.items()]
        net = [*feeds, dense("out", "data", 3, **more), layer("loss", kind, "out", "data", "weight", **rest)]
        group = Group(job(net), n_workers)
        assert np.isfinite(group.train(2)).all()
        return group

    same(trained(2, partition_dim=partition_dim), trained(1))
