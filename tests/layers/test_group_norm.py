"""GroupNorm: its formula, its params, and what it refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.testing.case import Case, forward, source, wire
from singa_dask.testing.layer_exam import check_gradients
from tests.layers.exam import check_layouts

PAIRS = {"groupnorm_conf": {"num_groups": 2}}
CASES = [
    Case("GroupNorm", [(3, 4, 2, 5)], PAIRS),
    Case("GroupNorm", [(3, 6, 3, 3)], {"groupnorm_conf": {"num_groups": 6, "epsilon": 0.1}}),
    Case("GroupNorm", [(2, 32, 3, 4)]),
]


def test_formula() -> None:
    x = source((2, 6, 3, 4))
    layer = wire("GroupNorm", [x], groupnorm_conf={"num_groups": 3, "epsilon": 0.5})
    forward(layer)
    groups = x.data.reshape(2, 3, -1)
    m, v = groups.mean(axis=2, keepdims=True), groups.var(axis=2, keepdims=True)
    u = ((groups - m) / np.sqrt(v + 0.5)).reshape(x.shape)
    scale, shift = (param.data[:, None, None] for param in layer.params)
    np.testing.assert_allclose(layer.features[0].data, scale * u + shift)
    check_layouts("GroupNorm", (2, 4, 3, 5), **PAIRS)


def test_params() -> None:
    layer = wire("GroupNorm", [source((3, 4, 2, 2))], **PAIRS)
    made = [(param.name, param.shape, param.conf.init and param.conf.init.value) for param in layer.params]
    assert made == [("layer.scale", (4,), 1), ("layer.shift", (4,), 0)]


def test_images_of_one_channel() -> None:
    check_gradients(wire("GroupNorm", [source((3, 4, 5))], groupnorm_conf={"num_groups": 1}))


def test_records_need_no_gradient() -> None:
    check_gradients(wire("GroupNorm", [source((3, 4, 2, 2), grad=False)], **PAIRS))


def test_refuses() -> None:
    words = "groupnorm_conf.num_groups: expected a number that divides the 4 channels, got 32."
    with pytest.raises(ConfigError, match=re.escape(words)):
        wire("GroupNorm", [source((2, 4, 2, 2))])
    with pytest.raises(ConfigError, match=r"srclayers: 'src0' gives records of \(4,\), expected images"):
        wire("GroupNorm", [source((2, 4))])
