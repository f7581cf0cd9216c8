"""Kernels on bfloat16 on a GPU: as float64 gives them for the same values, to the precision of what is written."""

from __future__ import annotations

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from tests.backends import backend
from tests.ops.bf16 import Array, Kernels, Values, compare


@pytest.fixture
def ops() -> NumpyOps:
    return backend("cuda:0", "bf16")


class TestOnAGpu(Kernels):
    pass


@pytest.mark.long
def test_sums_and_products(ops: NumpyOps) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        x, y, total, half, masked = (values.features(4, 3, 5, 6) for _ in range(5))
        ops.add(x, y, out=total)
        ops.multiply(x, 0.5, out=half)
        ops.dropout_mask((1, "a"), 0.5, out=masked)
        ops.multiply(masked, x, out=masked)
        pixels = np.arange(360, dtype=np.uint8).reshape(x.shape)
        ops.normalize(pixels, 100.0, 50.0, out=y)
        return total, half, masked, y

    compare(ops, work)
