"""GELU: its formula and its approximation."""

from __future__ import annotations

import math

import numpy as np

from singa_dask.testing.case import Case, forward, source, wire
from tests.layers.exam import check_layouts

TANH = {"gelu_conf": {"approximate": "tanh"}}
CASES = [
    Case("GELU", [(3, 4)]),
    Case("GELU", [(3, 4, 2, 5)], TANH),
    Case("GELU", [(6, 4)], n_steps=2),
]


def test_formula() -> None:
    x = source((3, 4))
    layer = wire("GELU", [x])
    forward(layer)
    erf = np.vectorize(math.erf)
    np.testing.assert_allclose(layer.features[0].data, x.data * (1 + erf(x.data / math.sqrt(2))) / 2)
    check_layouts("GELU", (2, 3, 4, 5))


def test_the_approximation_is_near() -> None:
    exact, near = (wire("GELU", [source((30, 4))], **conf) for conf in ({}, TANH))
    forward(exact)
    forward(near)
    difference = np.abs(exact.features[0].data - near.features[0].data).max()
    assert 1e-6 < difference < 1e-3
