"""Partitioned nets compute what the whole net does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.layers import LAYERS
from tests.net.group import Group, alone, same
from tests.net.jobs import DATA, UNIFORM, dense, job, layer
from tests.net.recurrent import Columns, Decay, Sum
from tests.selection import few_examples

DIMS = [{"partition_dim": 0}, {"partition_dim": 1}, {"partition_dim": -1}, {"location": 1}]


def mlp(*placed: dict[str, Any]) -> list[dict[str, Any]]:
    data = {**DATA, "user_conf": {"shape": [12, 6], "classes": 3}}
    layers = [
        data,
        dense("fc1", "data", 5),
        layer("act1", "STanh", "fc1"),
        dense("fc2", "act1", 4),
        layer("loss", "SoftmaxLoss", "fc2", "data"),
    ]
    return [{**each, **where} for each, where in zip(layers, [*placed, *({},) * 5], strict=False)]


@pytest.fixture(autouse=True)
def known_types(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Columns, Decay, Sum):
        monkeypatch.setitem(LAYERS._classes, kind.__name__, kind)


def compare(
    layers: list[dict[str, Any]], whole: list[dict[str, Any]], n_workers: int, unroll_len: int = 1, n_steps: int = 2
) -> Group:
    one, losses = alone(whole, n_steps, unroll_len)
    group = Group(job([], neuralnet={"layer": layers, "unroll_len": unroll_len}), n_workers)
    np.testing.assert_allclose(group.train(n_steps), losses, rtol=1e-10)
    same(group, one)
    return group


@pytest.mark.parametrize("n_workers", [2, 3, 4])
@pytest.mark.parametrize("where", DIMS, ids=str)
def test_all_layers_alike(where: dict[str, Any], n_workers: int) -> None:
    compare(mlp(*[where] * 5), mlp(), n_workers)


@pytest.mark.pairs
@pytest.mark.parametrize("n_workers", [2, 3])
@pytest.mark.parametrize("where", DIMS[1:], ids=str)
@pytest.mark.parametrize("k", range(5))
def test_one_layer_otherwise(where: dict[str, Any], k: int, n_workers: int) -> None:
    placed: list[dict[str, Any]] = [{}] * 5
    placed[k] = where
    compare(mlp(*placed), mlp(), n_workers)


def places(n_workers: int) -> st.SearchStrategy[dict[str, Any]]:
    dims = st.sampled_from([0, 1, -1]).map(lambda dim: {"partition_dim": dim})
    return dims | st.integers(0, n_workers - 1).map(lambda worker: {"location": worker})


def placed(layers: list[dict[str, Any]], data: st.DataObject, n_workers: int) -> list[dict[str, Any]]:
    return [{**each, **data.draw(places(n_workers), label=each["name"])} for each in layers]


def convnet() -> list[dict[str, Any]]:
    def conv(name: str, source: str, n: int) -> dict[str, Any]:
        block = {"num_filters": n, "kernel": 3, "pad": 1}
        return {**dense(name, source, 1), "type": "Convolution", "innerproduct_conf": None, "convolution_conf": block}

    return [
        {**DATA, "user_conf": {"shape": [12, 2, 6, 6], "classes": 3}},
        conv("conv1", "data", 5),
        layer("pool1", "Pooling", "conv1", pooling_conf={"kernel": 2}),
        layer("relu1", "ReLU", "pool1"),
        layer("norm1", "LRN", "relu1", lrn_conf={"local_size": 3, "alpha": 0.5}),
        conv("conv2", "norm1", 4),
        layer("relu2", "ReLU", "conv2"),
        layer("pool2", "Pooling", "relu2", pooling_conf={"kernel": 3, "stride": 1, "pool": "AVG"}),
        layer("drop", "Dropout", "pool2"),
        dense("ip", "drop", 4),
        layer("loss", "SoftmaxLoss", "ip", "data"),
    ]


def autoencoder() -> list[dict[str, Any]]:
    def tied(name: str, source: str, n: int, owner: str) -> dict[str, Any]:
        made = dense(name, source, n)
        made["param"][0] = {"name": f"w_{name}", "share_from": owner}
        return {**made, "innerproduct_conf": {"num_output": n, "transpose": True}}

    return [
        {**DATA, "user_conf": {"shape": [12, 7], "classes": 3}},
        dense("enc1", "data", 6),
        layer("s1", "Sigmoid", "enc1"),
        dense("enc2", "s1", 5),
        tied("dec2", "enc2", 6, "w_enc2"),
        layer("s2", "Sigmoid", "dec2"),
        tied("dec1", "s2", 7, "w_enc1"),
        layer("loss", "EuclideanLoss", "dec1", "data"),
    ]


def forked() -> list[dict[str, Any]]:
    return [
        {**DATA, "user_conf": {"shape": [12, 6], "classes": 3}},
        dense("a", "data", 8),
        layer("t", "Tanh", "a"),
        dense("b", "t", 5),
        dense("c", "t", 7),
        layer("s", "Sigmoid", "t"),
        layer("join", "Concate", "b", "c", "s", concate_conf={"concate_dim": 1}),
        dense("out", "join", 4),
        layer("loss", "SoftmaxLoss", "out", "data"),
    ]


@pytest.mark.parametrize("make", [mlp, convnet, autoencoder, forked])
@few_examples(3)
@given(data=st.data(), n_workers=st.integers(2, 4))
def test_any_mixture(make: Any, data: st.DataObject, n_workers: int) -> None:
    compare(placed(make(), data, n_workers), make(), n_workers)


def recurrent() -> list[dict[str, Any]]:
    def decay(name: str, source: str) -> dict[str, Any]:
        return layer(name, "Decay", source, param=[{"name": f"a_{name}", "init": UNIFORM}])

    return [
        {**DATA, "user_conf": {"shape": [12, 9], "classes": 3}},
        layer("in", "Columns", "data", user_conf={"width": 3}),
        dense("x", "in", 5),
        decay("h1", "x"),
        decay("h2", "h1"),
        dense("out", "h2", 4),
        layer("loss", "SoftmaxLoss", "out", "in"),
    ]


def looped() -> list[dict[str, Any]]:
    back = {"shift": [0, 1], "unroll_conn_type": ["OneToOne", "OneToOne"]}
    return [
        *recurrent()[:3],
        layer("sum", "Sum", "x", "back", **back),
        layer("y", "Tanh", "sum"),
        dense("back", "y", 5),
        dense("out", "y", 4),
        layer("loss", "SoftmaxLoss", "out", "in"),
    ]


@pytest.mark.parametrize("make", [recurrent, looped])
@few_examples(3)
@given(data=st.data(), n_workers=st.integers(2, 4))
def test_any_mixture_over_time(make: Any, data: st.DataObject, n_workers: int) -> None:
    compare(placed(make(), data, n_workers), make(), n_workers, unroll_len=3)
