"""RMSNorm: its cases. Its numbers are compared with PyTorch's in tests/oracles."""

from __future__ import annotations

import numpy as np

from singa_dask.testing.case import Case, forward, source, wire

CASES = [
    Case("RMSNorm", [(4, 6)]),
    Case("RMSNorm", [(3, 5)], {"rmsnorm_conf": {"epsilon": 0.5}}),
]


def test_rows_have_a_mean_square_of_one() -> None:
    layer = wire("RMSNorm", [source((5, 8))])
    layer.params[0].data[...] = 1
    forward(layer)
    np.testing.assert_allclose((layer.features[0].data ** 2).mean(axis=1), 1, rtol=1e-5)
