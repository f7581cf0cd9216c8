"""Neuron layers: gradients, formulas, and what the job may ask of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError
from singa_dask.layers import Context, Feature
from singa_dask.testing.case import backward, forward, source, wire
from singa_dask.testing.layer_exam import check_gradients
from tests.layers.exam import check_layouts

TEST = Context(phase=Phase.TEST, dtype=np.dtype(np.float64))


@pytest.mark.parametrize("shape", [(3, 4), (2, 2, 3), (1, 1)])
@pytest.mark.parametrize("block", [{}, {"transpose": True}, {"bias_term": False}])
def test_inner_product(shape: tuple[int, ...], block: dict[str, Any]) -> None:
    x = source(shape)
    layer = wire("InnerProduct", [x], innerproduct_conf={"num_output": 5, **block})
    forward(layer)
    w = layer.params[0].data if block.get("transpose") else layer.params[0].data.T
    b = layer.params[1].data if block.get("bias_term", True) else 0
    np.testing.assert_allclose(layer.features[0].data, x.data.reshape(shape[0], -1) @ w + b)
    assert [p.name for p in layer.params] == ["layer.weight", "layer.bias"][: len(layer.params)]
    assert len(layer.params) == (2 if block.get("bias_term", True) else 1)
    check_gradients(layer)


def test_inner_product_takes_images_in_the_order_of_singas_weights() -> None:
    x = source((3, 2, 4, 5))
    layer = wire("InnerProduct", [x], innerproduct_conf={"num_output": 6})
    forward(layer)
    weight, bias = (param.data for param in layer.params)
    np.testing.assert_allclose(layer.features[0].data, x.data.reshape(3, -1) @ weight.T + bias)
    check_gradients(layer)
    check_layouts("InnerProduct", (3, 2, 4, 5), innerproduct_conf={"num_output": 6})


def test_inner_product_on_records_needs_no_gradient_of_them() -> None:
    layer = wire("InnerProduct", [source((3, 4), grad=False)], innerproduct_conf={"num_output": 2})
    check_gradients(layer)


def test_inner_product_adds_gradients_of_time_steps_when_told() -> None:
    layer = wire("InnerProduct", [source((3, 4))], innerproduct_conf={"num_output": 2})
    forward(layer)
    layer.features[0].grad[...] = 1
    backward(layer)
    once = [param.grad.copy() for param in layer.params]
    backward(layer, adds=True)
    for param, grad in zip(layer.params, once, strict=True):
        np.testing.assert_allclose(param.grad, 2 * grad)


@pytest.mark.parametrize(
    ("conf", "path", "words"),
    [
        ({}, ("innerproduct_conf",), "num_output"),
        (
            {"innerproduct_conf": {"num_output": 2, "bias_term": False}, "param": [{"name": "w"}, {"name": "b"}]},
            ("param", 1),
            "bias_term: false",
        ),
        (
            {"innerproduct_conf": {"num_output": 2}, "param": [{"name": "w"}, {"name": "b"}, {"name": "c"}]},
            ("param", 2),
            "Its params: weight, bias",
        ),
        ({"innerproduct_conf": {"num_output": 2}, "srclayers": []}, ("srclayers",), "takes 1 source layer, not 0"),
    ],
)
def test_inner_product_refuses(conf: dict[str, Any], path: tuple[Any, ...], words: str) -> None:
    sources = [source((3, 4))] if conf.get("srclayers") != [] else []
    with pytest.raises(ConfigError) as caught:
        wire("InnerProduct", sources, **conf)
    assert caught.value.problems[0].path == path
    assert words in caught.value.problems[0].message


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize(
    ("kind", "conf"),
    [
        ("ReLU", {}),
        ("ReLU", {"relu_conf": {"negative_slope": 0.1}}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("STanh", {}),
        ("Activation", {}),
        *(("Activation", {"activation_conf": {"type": t}}) for t in ("RELU", "SIGMOID", "TANH", "STANH")),
    ],
)
def test_activation(kind: str, conf: dict[str, Any], share: bool) -> None:
    check_gradients(wire(kind, [source((3, 2, 4), kink=0.01)], share_src_blobs=share, **conf))
    check_gradients(wire(kind, [source((2, 3, 2, 4), kink=0.01)], share_src_blobs=share, **conf))
    check_layouts(kind, (2, 3, 2, 4), share_src_blobs=share, **conf)


BELOW: list[Any] = [
    ("InnerProduct", (3, 4), {"innerproduct_conf": {"num_output": 5}}),
    ("Convolution", (2, 3, 4, 4), {"convolution_conf": {"num_filters": 5, "pad": 1}}),
    ("Pooling", (2, 3, 4, 4), {"pooling_conf": {"kernel": 2}}),
    ("Pooling", (2, 3, 4, 4), {"pooling_conf": {"kernel": 2, "pool": "AVG"}}),
    ("LRN", (2, 3, 4, 4), {"lrn_conf": {"local_size": 3}}),
    ("BatchNorm", (2, 3, 4, 4), {}),
]


@pytest.mark.parametrize(("of", "shape", "conf"), BELOW)
@pytest.mark.parametrize("kind", ["RELU", "SIGMOID", "TANH", "STANH"])
def test_shared_memory_gives_the_same_numbers(kind: str, of: str, shape: tuple[int, ...], conf: Any) -> None:
    results = []
    for share in (False, True):
        x = source(shape, seed=2)
        below = wire(of, [x], **conf)
        layer = wire("Activation", [below.features[0]], share_src_blobs=share, activation_conf={"type": kind})
        assert (layer.features[0].data is below.features[0].data) is share
        forward(below)
        forward(layer)
        layer.features[0].grad[...] = np.random.default_rng(4).normal(size=layer.features[0].shape)
        backward(layer)
        backward(below)
        results.append([layer.features[0].data, x.grad, *(p.grad for p in below.params)])
    for own, shared in zip(*results, strict=True):
        np.testing.assert_array_equal(own, shared)


def test_memory_that_the_source_still_needs_is_not_shared() -> None:
    below = wire("Sigmoid", [source((3, 4))])
    layer = wire("Activation", [below.features[0]], share_src_blobs=True)
    assert layer.features[0].data is not below.features[0].data


def test_negative_slope_has_a_bound() -> None:
    with pytest.raises(ConfigError, match=r"relu_conf.negative_slope: expected at most 1.0, got 2"):
        wire("ReLU", [source((1, 1))], relu_conf={"negative_slope": 2})


@pytest.mark.parametrize("shape", [(3, 4), (2, 2, 3), (2, 1)])
def test_softmax(shape: tuple[int, ...]) -> None:
    layer = wire("Softmax", [source(shape)])
    forward(layer)
    np.testing.assert_allclose(layer.features[0].data.sum(axis=1), 1)
    check_gradients(layer)


@pytest.mark.parametrize("shape", [(3, 6), (2, 3, 4)])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_softmax_of_equal_parts_of_a_row(shape: tuple[int, ...], n: int) -> None:
    x = source(shape)
    layer = wire("Softmax", [x], softmax_conf={"num_softmax_per_instance": n})
    forward(layer)
    parts = np.exp(x.data.reshape(shape[0], n, -1))
    wanted = parts / parts.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(layer.features[0].data, wanted.reshape(shape[0], -1))
    check_gradients(layer)


def test_softmax_over_the_channels_of_each_pixel() -> None:
    x, conf = source((2, 5, 3, 2)), {"softmax_conf": {"num_softmax_per_instance": 6}}
    layer = wire("CudnnSoftmax", [x], **conf)
    forward(layer)
    np.testing.assert_allclose(layer.features[0].data, np.exp(x.data) / np.exp(x.data).sum(axis=1, keepdims=True))
    assert layer.features[0].shape == (2, 5, 3, 2)
    check_gradients(layer)
    check_layouts("Softmax", (2, 5, 3, 2), **conf)
    check_layouts("Softmax", (2, 5, 3, 2))


@pytest.mark.parametrize(
    ("shape", "n", "words"),
    [((2, 4), 3, "expected a number that divides the 4 values"), ((2, 4, 3, 2), 4, "expected 1, or 6 for one over")],
)
def test_softmax_refuses(shape: tuple[int, ...], n: int, words: str) -> None:
    with pytest.raises(ConfigError, match=rf"softmax_conf.num_softmax_per_instance: {words}"):
        wire("Softmax", [source(shape)], softmax_conf={"num_softmax_per_instance": n})


@pytest.mark.parametrize("ratio", [0.0, 0.5, 0.9])
def test_dropout(ratio: float) -> None:
    layer = wire("Dropout", [source((6, 5))], dropout_conf={"dropout_ratio": ratio})
    check_gradients(layer)
    check_layouts("Dropout", (2, 3, 4, 5), dropout_conf={"dropout_ratio": ratio})
    kept = layer.features[0].data != 0
    np.testing.assert_allclose(layer.features[0].data, np.where(kept, layer.sources[0].data / (1 - ratio), 0))


def test_dropout_passes_all_in_a_test() -> None:
    layer = wire("Dropout", [source((3, 4), grad=False)], TEST)
    forward(layer)
    np.testing.assert_array_equal(layer.features[0].data, layer.sources[0].data)


def test_dropout_of_two_workers_is_that_of_one() -> None:
    def drop(worker: int, n_workers: int, step: int) -> Any:
        x = Feature((8 // n_workers, 3))
        x.data = np.ones(x.shape, np.float32)
        layer = wire("Dropout", [x], Context(worker=worker, n_workers=n_workers, step=step))
        forward(layer)
        return layer.features[0].data

    whole = drop(0, 1, 3)
    np.testing.assert_array_equal(np.concatenate([drop(0, 2, 3), drop(1, 2, 3)]), whole)
    np.testing.assert_array_equal(drop(0, 1, 3), whole)
    assert not np.array_equal(drop(0, 1, 4), whole)
