"""SiLU: its formula."""

from __future__ import annotations

import numpy as np

from singa_dask.testing.case import Case, forward, source, wire
from tests.layers.exam import check_layouts

CASES = [Case("SiLU", [(3, 4)]), Case("SiLU", [(3, 4, 2, 5)]), Case("SiLU", [(6, 4)], n_steps=2)]


def test_formula() -> None:
    x = source((3, 4))
    layer = wire("SiLU", [x])
    forward(layer)
    np.testing.assert_allclose(layer.features[0].data, x.data / (1 + np.exp(-x.data)))
    check_layouts("SiLU", (2, 3, 4, 5))
