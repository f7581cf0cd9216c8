"""LayerNorm: its formula, its params, and what it refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.testing.case import Case, forward, source, wire
from singa_dask.testing.layer_exam import check_gradients

CASES = [
    Case("LayerNorm", [(3, 4)]),
    Case("LayerNorm", [(6, 40)], {"layernorm_conf": {"epsilon": 0.1}}, n_steps=2),
]


def test_formula() -> None:
    x = source((3, 7))
    layer = wire("LayerNorm", [x], layernorm_conf={"epsilon": 0.5})
    forward(layer)
    m, v = x.data.mean(axis=1, keepdims=True), x.data.var(axis=1, keepdims=True)
    scale, shift = (param.data for param in layer.params)
    np.testing.assert_allclose(layer.features[0].data, scale * (x.data - m) / np.sqrt(v + 0.5) + shift)


def test_params() -> None:
    layer = wire("LayerNorm", [source((3, 7))])
    made = [(param.name, param.shape, param.conf.init and param.conf.init.value) for param in layer.params]
    assert made == [("layer.scale", (7,), 1), ("layer.shift", (7,), 0)]


def test_records_need_no_gradient() -> None:
    check_gradients(wire("LayerNorm", [source((3, 4), grad=False)]))


def test_refuses_images() -> None:
    words = "srclayers: 'src0' gives records of (3, 2, 2), expected rows. Use GroupNorm for images."
    with pytest.raises(ConfigError, match=re.escape(words)):
        wire("LayerNorm", [source((2, 3, 2, 2))])
