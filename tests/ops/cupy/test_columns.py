"""Sums of columns on a GPU: one launch, any strides, the same bits each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops.bfloat16 import BFLOAT16
from tests.backends import backend

# of one block, of many; of a column, of fewer and more than a warp has; more than the blocks in all
SHAPES = [(0, 5), (1, 1), (7, 3), (3000, 1), (3000, 10), (5000, 32), (700, 96), (333, 257), (20, 20000)]
TOLERANCE = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-14, BFLOAT16: 1e-6}


@pytest.fixture
def ops() -> Any:
    return backend("cuda:0")


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_of_columns(ops: Any, shape: tuple[int, int], dtype: Any) -> None:
    x = np.random.default_rng(5).uniform(1, 2, shape).astype(dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    there, out = ops.from_host(x), ops.zeros((shape[1],), wide)
    ops.column_sums(there, out)
    expected = x.astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(ops.to_host(out), expected, TOLERANCE[np.dtype(dtype)])
    first = ops.to_host(out).tobytes()
    for _ in range(2):
        ops.column_sums(there, out)
        assert ops.to_host(out).tobytes() == first
    ops.column_sums(there, out, accumulate=True)
    np.testing.assert_allclose(ops.to_host(out), 2 * expected, TOLERANCE[np.dtype(dtype)])


@pytest.mark.parametrize("layout", ["transposed", "every other column", "unaligned", "odd rows"])
def test_other_layouts(ops: Any, layout: str) -> None:
    whole = ops.from_host(np.random.default_rng(5).uniform(1, 2, (640, 642)).astype(np.float32))
    x = {
        "transposed": whole.T,
        "every other column": whole[:, ::2],
        "unaligned": whole[:, 1:513],
        "odd rows": whole.reshape(-1)[: 600 * 641].reshape(600, 641)[:, :640],
    }[layout]
    out = ops.zeros((x.shape[1],), np.float32)
    ops.column_sums(x, out)
    np.testing.assert_allclose(ops.to_host(out), ops.to_host(x).astype(np.float64).sum(axis=0), 1e-6)


def test_the_counters_are_reset(ops: Any) -> None:
    # an atomic counter says which block is the last one, and is 0 again afterwards
    x, out = ops.from_host(np.ones((4096, 512), np.float32)), ops.zeros((512,), np.float32)
    for _ in range(3):
        ops.column_sums(x, out)
        assert (ops.to_host(out) == 4096).all()
    n_grown = ops.n_grown
    # a block is for 32 threads with 4 columns each
    assert not ops.to_host(ops.scratch("counters", (512 // 32 // 4,), np.uint32)).any()
    assert ops.n_grown == n_grown, "it is the memory that the kernel took"
