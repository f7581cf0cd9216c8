"""Multiply: the product of its sources."""

from __future__ import annotations

import re

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.testing.case import Case, forward, source, wire
from singa_dask.testing.layer_exam import check_gradients

CASES = [
    Case("Multiply", [(3, 4)] * 2),
    Case("Multiply", [(3, 4, 2, 5)] * 3),
    Case("Multiply", [(6, 4)] * 2, n_steps=2),
    Case("Multiply", [(3, 4), (3, 4, 2, 5)]),
    Case("Multiply", [(3, 4, 2, 5), (3, 4, 1, 1), (3, 4)]),
    Case("Multiply", [(3, 4), (3, 4, 1, 1)]),
]


@pytest.mark.parametrize("n", [2, 4])
def test_formula(n: int) -> None:
    sources = [source((3, 4), k) for k in range(n)]
    layer = wire("Multiply", sources)
    forward(layer)
    np.testing.assert_allclose(layer.features[0].data, np.prod([each.data for each in sources], axis=0))


def test_a_source_without_gradient() -> None:
    check_gradients(wire("Multiply", [source((3, 4), grad=False), source((3, 4), 1), source((3, 4), 2)]))


@pytest.mark.parametrize("shapes", [[(3, 4), (3, 5)], [(3, 4, 2, 5), (3, 5)], [(3, 4, 5), (3, 4)]])
def test_refuses_sources_of_other_shapes(shapes: list[tuple[int, ...]]) -> None:
    wanted = f"srclayers: expected sources of one shape, or images (N, C, H, W) and gates (N, C), got {shapes}."
    with pytest.raises(ConfigError, match=re.escape(wanted)):
        wire("Multiply", [source(shape) for shape in shapes])
