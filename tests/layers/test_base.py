"""Layer: what the base does for every member, and what it says to one that is not finished."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import LayerConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS, Connection, Context, Feature, Layer, Speed, Traits
from singa_dask.layers.neuron import InnerProduct
from singa_dask.net import memory, wiring
from singa_dask.testing.case import CPU, source, wire


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
    with pytest.raises(TypeError, match=r"Layer has no setup\(\)"):
        layer.setup()
    with pytest.raises(TypeError, match=r"has no forward\(\)"):
        layer.forward(Phase.TRAIN)


def test_names_of_params_and_keys_of_random_numbers() -> None:
    class TwoParams(Layer):
        traits = Traits(n_sources=(0, 0), params=("left", "right"))

        def setup(self) -> None:
            self.add_param((2,))
            self.add_param((3,))

    context = Context(seed=9, group=2)
    conf = {"name": "mine", "type": "TwoParams", "param": [{"name": "w", "lr_scale": 2.0}]}
    layer = TwoParams(LayerConf.model_validate(conf), context)
    wiring.wire(layer, [], None)
    assert [param.name for param in layer.params] == ["w", "mine.right"]
    assert [param.conf.lr_scale for param in layer.params] == [2.0, 1.0]
    context.step = 4
    assert layer.random_key("a") == (9, "mine", 2, 1, 4, "a")


def test_singas_names_of_the_verbs() -> None:
    calls = []

    class Mine(InnerProduct):
        speed = InnerProduct.speed

        def compute_feature(self, phase: Phase) -> None:
            calls.append("feature")
            super().compute_feature(phase)

        def compute_gradient(self, phase: Phase) -> None:
            calls.append("gradient")
            super().compute_gradient(phase)

    x = source((2, 3))
    conf = LayerConf.model_validate(
        {"name": "mine", "type": "Mine", "srclayers": ["x"], "innerproduct_conf": {"num_output": 4}}
    )
    layer = Mine(conf, Context(dtype=np.dtype(np.float64)))
    wiring.wire(layer, [x], CPU)
    layer.learns = True
    for param in layer.params:
        param.data = np.ones(param.shape)
    memory.allocate(layer)
    layer.forward(Phase.TRAIN)
    np.testing.assert_allclose(layer.features[0].data, x.data.sum(axis=1, keepdims=True) + np.ones((2, 4)))
    layer.features[0].grad[...] = 1
    layer.backward(Phase.TRAIN)
    np.testing.assert_array_equal(x.grad, np.full((2, 3), 4.0))
    assert calls == ["feature", "gradient"]


def test_a_verb_by_both_of_its_names_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Mine defines forward\(\) and compute_feature\(\), which mean the same"):
        type("Mine", (Layer,), {"forward": Layer.forward, "compute_feature": Layer.forward})


def test_a_trait_beside_the_traits_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Mine\.role has no effect\. Write traits = Traits\(role=\.\.\.\)\."):
        type("Mine", (Layer,), {"role": "loss"})
    with pytest.raises(TypeError, match=r"Mine\.capturable has no effect\. Write speed = Speed\(capturable="):
        type("Mine", (Layer,), {"capturable": True})


def test_a_param_that_the_traits_do_not_name_is_refused() -> None:
    class Unnamed(Layer):
        traits = Traits(n_sources=(0, 0))

        def setup(self) -> None:
            self.add_param((2,))

    layer = Unnamed(LayerConf.model_validate({"name": "mine", "type": "Unnamed"}), Context())
    with pytest.raises(TypeError, match=r"Unnamed adds a param that its traits do not name\. Write Traits"):
        wiring.wire(layer, [], None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": "all"}, "it changes the trait steps to 'all', but nets are planned with 'own'"),
        ({"role": "unsupervised"}, "it changes the trait role to 'unsupervised', but nets are planned with ''"),
        ({"params": ("b",)}, r"setup\(\) changes the names of params from \('a', 'b'\) to \('b',\)"),
        ({"params": ("a",), "role": "loss", "consumes": ("labels",)}, ""),
    ],
)
def test_traits_that_setup_changes(changes: dict[str, Any], words: str) -> None:
    class Changing(Layer):
        traits = Traits(params=("a", "b"))

        def setup(self) -> None:
            self.traits = self.traits.replace(**changes)
            for _ in self.traits.params:
                self.add_param((2,))

    layer = Changing(LayerConf.model_validate({"name": "mine", "type": "Changing"}), Context())
    source = Feature((3, 2))
    with pytest.raises(ConfigError, match=words) if words else contextlib.nullcontext():
        wiring.wire(layer, [source], None)
    assert source.consumed_as == (set() if words else {"labels"})


def test_a_subclass_with_code_of_its_own_says_what_that_permits() -> None:
    class Named(InnerProduct):
        note = "no code of its own that computes"

    class Stated(InnerProduct):
        speed = Speed()

        def forward(self, phase: Phase) -> None:
            super().forward(phase)

    assert Named.speed == InnerProduct.speed
    assert Stated.speed == Speed()
    assert Stated.traits == Named.traits == InnerProduct.traits
    said = r"Mine overrides \w+ of InnerProduct\. .* Write speed = Speed\(\); or speed = InnerProduct\.speed if"
    for verb in ("forward", "compute_feature"):
        with pytest.raises(TypeError, match=said):
            type("Mine", (InnerProduct,), {verb: Stated.forward})


def test_how_types_depend_on_their_sources() -> None:
    to_all = {name for name in LAYERS.names() if LAYERS.find(name).speed.feature_parallel is Connection.ONE_TO_ALL}
    assert {"InnerProduct", "Convolution"} <= to_all
    assert not {"ReLU", "SoftmaxLoss", "Dropout", "Split"} & to_all
