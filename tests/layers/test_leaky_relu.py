"""LeakyReLU: its formula."""

from __future__ import annotations

import numpy as np
import pytest

from singa_dask.testing.case import Case, forward, source, wire
from singa_dask.testing.layer_exam import check_gradients
from tests.layers.exam import check_layouts

STEEP = {"leakyrelu_conf": {"negative_slope": 0.25}}
CASES = [
    Case("LeakyReLU", [(3, 4)], kink=0.01),
    Case("LeakyReLU", [(3, 4, 2, 5)], STEEP, kink=0.01),
    Case("LeakyReLU", [(6, 4)], n_steps=2, kink=0.01),
]


@pytest.mark.parametrize("share", [False, True])
def test_formula(share: bool) -> None:
    x = source((3, 4), kink=0.01)
    layer = wire("LeakyReLU", [x], share_src_blobs=share, **STEEP)
    forward(layer)
    np.testing.assert_allclose(layer.features[0].data, np.where(x.data > 0, x.data, x.data / 4))
    check_gradients(layer)
    check_layouts("LeakyReLU", (2, 3, 4, 5))
