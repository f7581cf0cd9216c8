"""What the tests of layers of images share: the same numbers whatever the order of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.layers import Context
from singa_dask.testing.case import backward, forward, source, wire


def check_layouts(kind: str, shape: Sequence[int], context: Context | None = None, **conf: Any) -> None:
    """Check that a layer gives the same numbers of images whatever their order in memory."""
    found = []
    for plain in (False, True):
        x = source(shape, plain=plain)
        assert x.data.flags.c_contiguous is plain
        layer = wire(kind, [x], context, **conf)
        forward(layer)
        layer.features[0].grad[...] = np.random.default_rng(3).normal(size=layer.features[0].shape)
        backward(layer)
        found.append([layer.features[0].data, x.grad, *(param.grad for param in layer.params)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
