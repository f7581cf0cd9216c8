"""Split and Dummy: SINGA's own numbers of size, sums of gradients, shares of workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.layers import Context
from tests.layers.exam import backward, check_gradients, check_layouts, forward, source, wire


@pytest.mark.parametrize("n", [2, 5])
def test_split(n: int) -> None:
    check_gradients(wire("Split", [source((10, 20))], split_conf={"num_splits": n}))


def test_split_of_images_lays_gradients_out_like_them() -> None:
    layer = wire("Split", [source((2, 3, 4, 5))], split_conf={"num_splits": 3})
    check_gradients(layer)
    for feature in layer.features:
        assert feature.grad.transpose(0, 2, 3, 1).flags.c_contiguous


def test_split_gives_each_consumer_its_own_feature_of_the_same_data() -> None:
    x = source((2, 3), labels=[4, 5])
    x.ids, x.epochs = np.array([7, 8]), np.array([0, 1])
    layer = wire("Split", [x], split_conf={"num_splits": 3})
    taken = [layer.outlet() for _ in range(3)]
    assert len(set(taken)) == 3
    forward(layer)
    for feature in taken:
        assert feature.data is x.data
        assert feature.labels is x.labels
        assert feature.ids is x.ids
        assert feature.epochs is x.epochs
    with pytest.raises(ConfigError, match=r"split_conf.num_splits: is 3, but the layer has more consumers"):
        layer.outlet()


def test_split_with_one_consumer_that_learns_adds_nothing_up() -> None:
    x = source((2, 3))
    layer = wire("Split", [x], split_conf={"num_splits": 2})
    for feature in layer.features:
        feature.grad = None
    layer.features[1].wants_grad = False
    layer.allocate()
    forward(layer)
    layer.features[0].grad[...] = 7
    backward(layer)
    assert (x.grad == 7).all()
    assert layer.features[1].grad is None


def test_dummy_between_layers_copies() -> None:
    check_layouts("Dummy", (2, 3, 4, 5))
    check_gradients(wire("Dummy", [source((3, 4))]))


def test_dummy_as_input_and_output() -> None:
    layer = wire("Dummy", [], dummy_conf={"input": True, "shape": [10, 20]})
    forward(layer)
    data = layer.features[0].data
    assert data.shape == (10, 20)
    assert 0 <= data.min() and data.max() < 1
    end = wire("Dummy", [source((3, 4))], dummy_conf={"output": True})
    assert end.is_loss
    backward(end)
    assert 0 <= end.sources[0].grad.min() and end.sources[0].grad.max() < 1


def test_dummies_of_two_workers_share_one_batch() -> None:
    def data(worker: int, n_workers: int) -> Any:
        context = Context(worker=worker, n_workers=n_workers)
        layer = wire("Dummy", [], context, dummy_conf={"input": True, "shape": [4, 3]})
        forward(layer)
        return layer.features[0].data

    np.testing.assert_array_equal(np.concatenate([data(0, 2), data(1, 2)]), data(0, 1))


@pytest.mark.parametrize(
    ("sources", "block", "words"),
    [
        (0, {}, "takes one unless it is an input"),
        (1, {"input": True, "shape": [2]}, "takes no source layer"),
        (0, {"input": True}, "must start with a batch"),
    ],
)
def test_dummy_refuses(sources: int, block: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        wire("Dummy", [source((1, 1))] * sources, dummy_conf=block)
