"""Add: the sum of its sources."""

from __future__ import annotations

import re

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.testing.case import Case, forward, source, wire

CASES = [Case("Add", [(3, 4)] * 2), Case("Add", [(3, 4, 2, 5)] * 3), Case("Add", [(6, 4)] * 2, n_steps=2)]


@pytest.mark.parametrize("n", [2, 4])
def test_formula(n: int) -> None:
    sources = [source((3, 4), k) for k in range(n)]
    layer = wire("Add", sources)
    forward(layer)
    np.testing.assert_allclose(layer.features[0].data, sum(each.data for each in sources))


def test_a_source_without_gradient() -> None:
    layer = wire("Add", [source((3, 4), grad=False), source((3, 4))])
    forward(layer)
    layer.features[0].grad[...] = 2
    layer.backward(layer.context.phase)
    np.testing.assert_array_equal(layer.sources[1].grad, np.full((3, 4), 2))


def test_refuses_sources_of_several_shapes() -> None:
    with pytest.raises(ConfigError, match=re.escape("srclayers: expected sources of one shape, got (3, 4), (3, 5).")):
        wire("Add", [source((3, 4)), source((3, 5))])
    with pytest.raises(ConfigError, match="Add takes at least 2 source layers, not 1"):
        wire("Add", [source((3, 4))])
