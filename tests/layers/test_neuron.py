"""Neuron layers: gradients, formulas, and what the job may ask of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError
from singa_dask.layers import Context, Feature
from tests.layers.exam import backward, check_gradients, forward, source, wire

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


def test_inner_product_on_records_needs_no_gradient_of_them() -> None:
    layer = wire("InnerProduct", [source((3, 4), grad=False)], innerproduct_conf={"num_output": 2})
    check_gradients(layer)


def test_inner_product_adds_gradients_of_time_steps_when_told() -> None:
    layer = wire("InnerProduct", [source((3, 4))], innerproduct_conf={"num_output": 2})
    forward(layer)
    layer.features[0].grad[...] = 1
    backward(layer)
    once = [param.grad.copy() for param in layer.params]
    layer.compute_gradient(Phase.TRAIN | Phase.BACKWARD | Phase.AGGREGATE_GRADIENT)
    for param, grad in zip(layer.params, once, strict=True):
        np.testing.assert_allclose(param.grad, 2 * grad)


@pytest.mark.parametrize(
    ("conf", "path", "words"),
    [
        ({}, ("innerproduct_conf",), "num_output"),
        (
            {"innerproduct_conf": {"num_output": 2, "bias_term": False}, "param": [{"name": "w"}, {"name": "b"}]},
            ("param", 1),
            "bias_term is false",
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


@pytest.mark.parametrize("kind", ["RELU", "SIGMOID", "TANH", "STANH"])
def test_shared_memory_gives_the_same_numbers(kind: str) -> None:
    results = []
    for share in (False, True):
        x = source((3, 4), seed=2)
        below = wire("InnerProduct", [x], innerproduct_conf={"num_output": 5})
        layer = wire("Activation", [below.features[0]], share_src_blobs=share, activation_conf={"type": kind})
        assert (layer.features[0].data is below.features[0].data) is share
        forward(below)
        forward(layer)
        layer.features[0].grad[...] = np.arange(15).reshape(3, 5)
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
    with pytest.raises(ConfigError, match=r"relu_conf.negative_slope: expected at most 1, got 2"):
        wire("ReLU", [source((1, 1))], relu_conf={"negative_slope": 2})


@pytest.mark.parametrize("shape", [(3, 4), (2, 2, 3), (2, 1)])
def test_softmax(shape: tuple[int, ...]) -> None:
    layer = wire("Softmax", [source(shape)])
    forward(layer)
    np.testing.assert_allclose(layer.features[0].data.sum(axis=1), 1)
    check_gradients(layer)


def test_softmax_is_one_a_record() -> None:
    with pytest.raises(ConfigError, match="num_softmax_per_instance: expected 1"):
        wire("Softmax", [source((2, 4))], softmax_conf={"num_softmax_per_instance": 2})


@pytest.mark.parametrize("ratio", [0.0, 0.5, 0.9])
def test_dropout(ratio: float) -> None:
    layer = wire("Dropout", [source((6, 5))], dropout_conf={"dropout_ratio": ratio})
    check_gradients(layer)
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
