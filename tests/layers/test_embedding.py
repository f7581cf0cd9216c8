"""Layers of numbers: where they take them from, one-hot rows, tables, labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import LayerConf
from singa_dask.errors import ConfigError, DataError
from singa_dask.layers import LAYERS, Context, Feature, Layer, LayerSite, ShardIndex
from singa_dask.layers.traits import Consumed
from singa_dask.net import memory, wiring
from singa_dask.ops import BFLOAT16, NumpyOps, get_ops
from singa_dask.testing.case import backward, forward, wire
from singa_dask.testing.layer_exam import check_gradients

WINDOW = [[0, 3, 1, 4], [2, 2, 0, 1]]


def numbers(rows: Sequence[Sequence[float]], n_steps: int = 1, dtype: Any = np.int32) -> Feature:
    """Return a source of numbers."""
    feature = Feature(np.shape(rows), dtype, requires_grad=False)
    feature.data, feature.n_steps = np.array(rows, dtype), n_steps
    return feature


def embedding(x: Feature, n_steps: int = 1, **more: Any) -> Layer:
    block = {"vocab_size": 5, "feature_dim": 3, **more}
    return wire("Embedding", [x], None, n_steps, embedding_conf=block)


def one_hot(x: Feature, n_steps: int = 1) -> Layer:
    return wire("OneHot", [x], None, n_steps, onehot_conf={"vocab_size": 5})


@pytest.mark.parametrize(
    ("rows", "source_steps", "n_steps", "wanted"),
    [
        (WINDOW, 1, 3, [0, 2, 3, 2, 1, 0]),
        (WINDOW, 1, 4, [0, 2, 3, 2, 1, 0, 4, 1]),
        ([[4], [1]], 1, 1, [4, 1]),
        ([[4], [1]], 1, 2, [4, 1, 4, 1]),
        ([[4], [1], [0], [3]], 2, 2, [4, 1, 0, 3]),
    ],
)
def test_where_numbers_come_from(rows: Any, source_steps: int, n_steps: int, wanted: list[int]) -> None:
    for dtype in (np.int32, np.int64, np.float32):
        x = numbers(rows, source_steps, dtype)
        layer = one_hot(x, n_steps)
        forward(layer)
        np.testing.assert_array_equal(layer.features[0].one_hot_index, wanted)
        np.testing.assert_array_equal(layer.features[0].data, np.eye(5)[wanted])
        assert layer.features[0].n_steps == n_steps
        table = embedding(x, n_steps)
        forward(table)
        np.testing.assert_array_equal(table.features[0].data, table.params[0].data[wanted])


def test_a_copy_takes_the_column_of_its_time_step() -> None:
    x, found = numbers(WINDOW), []
    for step in range(3):
        conf = LayerConf.model_validate({"name": "layer", "type": "RNNLabel", "srclayers": ["data"]})
        layer = LAYERS.find("RNNLabel")(conf, Context(), LayerSite("layer", first_step=step))
        layer.name = f"{step}#layer"
        wiring.wire(layer, [x], get_ops("numpy"))
        memory.allocate(layer)
        forward(layer)
        found.append(layer.features[0].records.labels.tolist())
    assert found == [[3, 2], [1, 0], [4, 1]]


def test_labels_are_one_step_ahead() -> None:
    layer = wire("RNNLabel", [numbers(WINDOW)], None, 3)
    layer.features[0].consumed_as.add("data")
    forward(layer)
    assert layer.features[0].records.labels.tolist() == [3, 2, 1, 0, 4, 1]
    assert layer.features[0].data.tolist() == [[3], [2], [1], [0], [4], [1]]


def test_one_hot_writes_rows_only_for_a_reader() -> None:
    x = numbers([[0], [2]])
    conf = LayerConf.model_validate(
        {"name": "layer", "type": "OneHot", "srclayers": ["data"], "onehot_conf": {"vocab_size": 5}}
    )
    cases: list[tuple[set[Consumed], bool]] = [
        ({"one_hot_index"}, False),
        ({"one_hot_index", "data"}, True),
        (set(), True),
    ]
    for consumed_as, has_data in cases:
        layer = LAYERS.find("OneHot")(conf, Context())
        wiring.wire(layer, [x], get_ops("numpy"))
        layer.features[0].consumed_as |= consumed_as
        memory.allocate(layer)
        forward(layer)
        assert layer.features[0].has_data is has_data
        assert layer.features[0].one_hot_index.tolist() == [0, 2]


def test_refuses_columns_that_no_time_step_reads() -> None:
    for kind, n_steps, block, message in (
        ("OneHot", 1, {"onehot_conf": {"vocab_size": 5}}, "reads 1, for 1 time step. Set unroll_len: 4"),
        ("PaddingMask", 2, {}, "reads 2, for 2 time steps. Set unroll_len: 4"),
        ("Embedding", 2, {"embedding_conf": {"vocab_size": 5}}, "reads 2, for 2 time steps. Set unroll_len: 4"),
    ):
        with pytest.raises(
            ConfigError, match=rf"^unroll_len: 'src0' has 4 numbers in each record, but {kind} {message},"
        ):
            wire(kind, [numbers(WINDOW)], None, n_steps, **block)


# -- the table --------------------------------------------------------------------------------------------


def test_gradient_of_the_table() -> None:
    for n_steps in (1, 3):
        x = numbers([[0, -1, 1, 4], [2, 2, 0, 1], [2, -1, -1, 0]])
        check = embedding(x, n_steps)
        x._grad = None
        check_gradients(check)


def test_all_columns_of_a_layer_that_is_not_unrolled() -> None:
    layer = embedding(numbers([[0, -1], [2, 2]]))
    forward(layer)
    table = layer.params[0].data
    np.testing.assert_array_equal(layer.features[0].data, [[table[0], np.zeros(3)], [table[2], table[2]]])
    with pytest.raises(ConfigError, match=r"partition_dim: rows of 2 numbers .* Use 0 or -1\."):
        wire("Embedding", [numbers([[0, 1]])], feature_shard=ShardIndex(0, 2), embedding_conf={"vocab_size": 5})


def test_rows_taken_often_get_the_sum_and_others_nothing() -> None:
    layer = embedding(numbers([[2], [2], [0], [-1]]))
    forward(layer)
    assert layer.features[0].data[3].tolist() == [0, 0, 0]
    layer.features[0].grad[...] = [[1, 2, 3], [10, 20, 30], [5, 5, 5], [7, 7, 7]]
    layer.params[0].grad[...] = np.nan
    backward(layer)
    wanted = [[5, 5, 5], [0, 0, 0], [11, 22, 33], [0, 0, 0], [0, 0, 0]]
    np.testing.assert_array_equal(layer.params[0].grad, wanted)
    backward(layer, adds=True)
    np.testing.assert_array_equal(layer.params[0].grad, 2 * np.array(wanted))


def test_numbers_have_no_gradient() -> None:
    x = numbers([[2.0], [1.0]], dtype=np.float64)
    x.requires_grad = True
    x.grad = np.full(x.shape, np.nan)
    layer = embedding(x)
    forward(layer)
    layer.features[0].grad[...] = 1
    backward(layer)
    assert not x.grad.any()


def test_bf16() -> None:
    ops: NumpyOps
    try:
        ops = get_ops("onednn", "bf16")
    except ConfigError as error:
        pytest.skip(str(error))
    for kind, block, size in (("Embedding", "embedding_conf", {"feature_dim": 3}), ("OneHot", "onehot_conf", {})):
        conf = {"name": "layer", "type": kind, "srclayers": ["data"], block: {"vocab_size": 5, **size}}
        layer = LAYERS.find(kind)(LayerConf.model_validate(conf), Context(dtype=BFLOAT16))
        wiring.wire(layer, [numbers([[3], [-1 if size else 0]])], ops)
        layer.learns = True
        for param in layer.params:
            param.data = np.arange(15, dtype=np.float32).reshape(5, 3)
        memory.allocate(layer)
        forward(layer)
        wanted = [[9, 10, 11], [0, 0, 0]] if size else [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]
        np.testing.assert_array_equal(layer.features[0].data.astype(np.float32), wanted)
        if size:
            layer.features[0].grad[...] = 1
            backward(layer)
            assert layer.params[0].grad.sum(axis=1).tolist() == [0, 0, 0, 3, 0]


# -- what cannot be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "wrong", "words"),
    [
        ("OneHot", 5, r"layer layer: 5 is out of range\. Numbers from 'src0' must be 0 to 4, as vocab_size is 5"),
        ("OneHot", -1, r"-1 is out of range.* must be 0 to 4"),
        ("Embedding", 7, r"7 is out of range.* must be -1 to 4"),
        ("Embedding", -2, r"-2 is out of range"),
    ],
)
def test_a_number_out_of_range(kind: str, wrong: int, words: str) -> None:
    x = numbers([[1], [wrong]])
    layer = embedding(x) if kind == "Embedding" else one_hot(x)
    with pytest.raises(DataError, match=words):
        forward(layer)


@pytest.mark.parametrize("kind", ["OneHot", "Embedding"])
def test_the_size_of_the_vocabulary_is_needed(kind: str) -> None:
    with pytest.raises(ConfigError, match="needs vocab_size: how many numbers there are") as caught:
        wire(kind, [numbers([[1]])])
    assert caught.value.problems[0].path[1] == "vocab_size"


def test_columns_are_missing() -> None:
    with pytest.raises(ConfigError, match="expected 5 columns or more, 4 time steps from 0 on, with labels, got 4"):
        wire("RNNLabel", [numbers(WINDOW)], None, 4)
    with pytest.raises(ConfigError, match="expected 5 columns or more, 5 time steps from 0 on, got 4"):
        one_hot(numbers(WINDOW), 5)
    with pytest.raises(ConfigError, match="a source of 2 time steps must have one number in each row, got 4"):
        one_hot(numbers(WINDOW, 2), 2)
    with pytest.raises(ConfigError, match="expected 2 columns or more"):
        wire("RNNLabel", [numbers([[1], [2]])])
