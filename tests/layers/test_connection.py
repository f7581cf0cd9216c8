"""Split, Slice, Concate and Dummy: SINGA's own numbers, sums of gradients, shares of workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.layers import Context, RecordIds
from singa_dask.net import memory
from singa_dask.testing.case import backward, forward, source, wire
from singa_dask.testing.layer_exam import check_gradients
from tests.layers.exam import check_layouts


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
    x.records = RecordIds(x.records.labels, np.array([7, 8]), np.array([0, 1]))
    layer = wire("Split", [x], split_conf={"num_splits": 3})
    assert len(set(layer.features)) == 3
    forward(layer)
    for feature in layer.features:
        assert feature.data is x.data
        assert feature.records.labels is x.records.labels
        assert feature.records is x.records


def test_split_with_one_consumer_that_learns_adds_nothing_up() -> None:
    x = source((2, 3))
    layer = wire("Split", [x], split_conf={"num_splits": 2})
    for feature in layer.features:
        feature._grad = None
    layer.features[1].requires_grad = False
    memory.allocate(layer)
    forward(layer)
    layer.features[0].grad[...] = 7
    backward(layer)
    assert (x.grad == 7).all()
    assert layer.features[1].grad is None


@pytest.mark.parametrize("axis", [0, 1])
def test_slice_cuts_where_singas_does(axis: int) -> None:
    layer = wire("Slice", [source((10, 20))], slice_conf={"slice_dim": axis, "num_slices": 5})
    forward(layer)
    x, out = layer.sources[0].data.reshape(-1), [np.array(feature.data).reshape(-1) for feature in layer.features]
    assert [feature.shape for feature in layer.features] == [((2, 20), (10, 4))[axis]] * 5
    for i, value in enumerate(x):
        place = (i // 40, i % 40) if axis == 0 else ((i // 4) % 5, 4 * (i // 20) + i % 4)
        assert out[place[0]][place[1]] == value
    check_gradients(layer)


@pytest.mark.parametrize("axis", [0, 1])
def test_concate_undoes_a_slice(axis: int) -> None:
    pieces = wire("Slice", [source((10, 20))], slice_conf={"slice_dim": axis, "num_slices": 5})
    forward(pieces)
    layer = wire("Concate", pieces.features, concate_conf={"concate_dim": axis, "num_concates": 1})
    forward(layer)
    np.testing.assert_array_equal(layer.features[0].data, pieces.sources[0].data)
    layer.features[0].grad[...] = np.random.default_rng(1).normal(size=(10, 20))
    backward(layer)
    backward(pieces)
    np.testing.assert_array_equal(pieces.sources[0].grad, layer.features[0].grad)
    check_gradients(wire("Concate", [source((4, 3), 1), source((4, 3), 2)], concate_conf={"concate_dim": axis}))


@pytest.mark.parametrize(("axis", "sizes"), [(0, [3, 3, 4]), (1, [2, 2, 3])])
def test_slices_are_as_equal_as_can_be(axis: int, sizes: list[int]) -> None:
    block = {"slice_dim": axis, "num_slices": 3}
    layer = wire("Slice", [source((10, 7, 2, 2))], slice_conf=block)
    assert [feature.shape[axis] for feature in layer.features] == sizes
    check_gradients(layer)


def test_a_piece_that_nothing_learns_from_gives_no_gradient() -> None:
    x = source((4, 6))
    layer = wire("Slice", [x], slice_conf={"slice_dim": 1, "num_slices": 2})
    layer.features[1]._grad = None
    x.grad[...] = np.nan  # as after a step whose gradients were not finite
    layer.features[0].grad[...] = 3
    backward(layer)
    np.testing.assert_array_equal(x.grad, [[3, 3, 3, 0, 0, 0]] * 4)


@pytest.mark.parametrize("kind", ["Slice", "Concate", "Split"])
def test_what_passes_on_records_passes_no_gradient(kind: str) -> None:
    assert not any(feature.requires_grad for feature in wire(kind, [source((4, 6), grad=False)]).features)


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
    assert end.traits.role == "loss"
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
        (0, {}, "is not an input takes one source layer"),
        (1, {"input": True, "shape": [2]}, "takes no source layer"),
        (0, {"input": True}, "does not start with a batch"),
    ],
)
def test_dummy_refuses(sources: int, block: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        wire("Dummy", [source((1, 1))] * sources, dummy_conf=block)
