"""Layer: what the base does for every member, and what it says to one that is not finished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import LayerConf, Phase
from singa_dask.layers import LAYERS, Connection, Context, Feature, Layer, matrix


def test_matrix_is_a_view_of_rows() -> None:
    x = np.zeros((2, 3, 4))
    assert matrix(x).shape == (2, 12)
    assert np.shares_memory(matrix(x), x)
    assert matrix(x[:, :, 0]) is not None


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
