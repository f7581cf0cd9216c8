"""Layer: what the base does for every member, and what it says to one that is not finished."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import LayerConf, Phase
from singa_dask.layers import LAYERS, Connection, Context, Feature, Layer
from tests.layers.exam import source, wire


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 1, 4, 5), (2, 3, 1, 1), (2,)])
def test_rows_of_plain_records_are_their_memory(shape: tuple[int, ...]) -> None:
    x = source(shape)
    layer = wire("Dummy", [x])
    assert layer.rows().shape == (2, x.size)
    assert np.shares_memory(layer.rows(), x.data)
    with layer.grad_rows() as gx:
        assert gx.shape == (2, x.size)
        assert np.shares_memory(gx, x.grad)


def test_rows_of_images_are_copied_through_memory_that_stays() -> None:
    x = source((2, 3, 4, 5))
    layer = wire("Dummy", [x])
    rows = layer.rows()
    np.testing.assert_array_equal(rows, x.data.reshape(2, -1))
    x.data += 1
    assert np.shares_memory(layer.rows(), rows)
    np.testing.assert_array_equal(rows, x.data.reshape(2, -1))
    with layer.grad_rows() as gx:
        gx[...] = np.arange(120).reshape(2, 60)
    np.testing.assert_array_equal(x.grad, np.arange(120).reshape(2, 3, 4, 5))
    with layer.grad_rows() as again:
        assert np.shares_memory(again, gx)
    assert not np.shares_memory(gx, rows)


def test_a_feature_counts_the_values_of_a_record() -> None:
    assert Feature((5, 3, 4)).size == 12
    assert Feature((5,)).size == 1


def test_a_layer_without_verbs_says_so() -> None:
    layer = Layer(LayerConf.model_validate({"name": "mine", "type": "Mine"}), Context())
    with pytest.raises(TypeError, match=r"Layer does not say its shapes: it has no setup\(\)"):
        layer.setup(layer.conf, [], None)
    with pytest.raises(TypeError, match=r"has no compute_feature\(\)"):
        layer.compute_feature(Phase.TRAIN)
    assert layer.cursor() is None


def test_names_of_params_and_keys_of_random_numbers() -> None:
    class TwoParams(Layer):
        param_names = ("left", "right")

        def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
            self.param(0, (2,))
            self.param(1, (3,))

    context = Context(seed=9, group=2)
    conf = {"name": "mine", "type": "TwoParams", "param": [{"name": "w", "lr_scale": 2.0}]}
    layer = TwoParams(LayerConf.model_validate(conf), context)
    layer.n_sources = (0, 0)  # type: ignore[misc]
    layer.wire([], None)
    assert [param.name for param in layer.params] == ["w", "mine.right"]
    assert [param.conf.lr_scale for param in layer.params] == [2.0, 1.0]
    context.step = 4
    assert layer.random_key("a") == (9, "mine", 2, 1, 4, "a")


def test_how_types_depend_on_their_sources() -> None:
    to_all = {name for name in LAYERS.names() if LAYERS.find(name).connection is Connection.ONE_TO_ALL}
    assert {"InnerProduct", "Softmax"} <= to_all
    assert not {"ReLU", "SoftmaxLoss", "Dropout", "Split"} & to_all


@pytest.mark.parametrize("name", [name for name in LAYERS.names() if "." not in name])
def test_a_layer_says_which_block_it_reads(name: str) -> None:
    cls = LAYERS.find(name)
    if not cls.__module__.startswith("singa_dask."):
        pytest.skip("registered by another test")
    # the last class that sets up anything of its own
    asked = [
        re.findall(r"\.block\(([\w.]+)\)", inspect.getsource(each)) for each in cls.__mro__ if each not in Layer.__mro__
    ]
    found = {each for names in asked for each in names if each != "self.block"}
    assert found <= {"ActivationConf"} | ({cls.block.__name__} if cls.block else set())
