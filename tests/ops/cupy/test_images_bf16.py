"""Kernels on images of bfloat16 on a GPU: as float64 gives them for the same values, but for what is rounded."""

from __future__ import annotations

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from tests.backends import backend
from tests.ops.bf16 import Array, Values, compare


@pytest.fixture
def ops() -> NumpyOps:
    return backend("cuda:0", "bf16")


@pytest.mark.parametrize("channels", [32, 12, 3])
def test_pooling(ops: NumpyOps, channels: int) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        x, gy, y, average = (values.features(2, channels, n, n) for n in (9, 4, 4, 4))
        gx, ties, spread = (values.features(*x.shape) for _ in range(3))
        where, how = ops.features(gy.shape, ops.place_dtype((3, 3))), ((3, 3), (2, 2), (0, 0))
        ops.max_pool(x, y, where, *how)
        ops.max_pool_grad(gy, where, gx, *how)
        ops.max_pool_grad_ties(x, y, gy, ties, *how)
        ops.avg_pool(x, average, *how, True)
        ops.avg_pool_grad(gy, spread, *how, False)
        return y, gx, ties, where, average, spread

    compare(ops, work)


@pytest.mark.parametrize("beta", [0.75, 0.5, 1.0, 0.6])
def test_normalisation_over_channels(ops: NumpyOps, beta: float) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        x, gy, y, gx = (values.features(2, 32, 5, 5) for _ in range(4))
        how = (3, 0.1, beta, 1.0)
        memory = ops.lrn_memory(x.shape, x.dtype, *how)
        ops.lrn(x, y, memory, *how)
        ops.lrn_grad(x, gy, gx, memory, *how)
        return y, gx

    compare(ops, work)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(6, 32, 5, 5), (60, 7)])
def test_batch_normalisation(ops: NumpyOps, shape: tuple[int, ...], training: bool) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        x, gy, y, gx = (values.features(*shape) for _ in range(4))
        scale, shift, mean, var, gs, gb = (values.weights(shape[1]) for _ in range(6))
        ops.multiply(var, var, out=var)
        ops.batch_norm(x, scale, shift, mean, var, y, 1e-3, training)
        ops.batch_norm_grad(x, gy, scale, mean, var, gx, gs, gb, 1e-3)
        return mean, var, y, gx, gs, gb

    compare(ops, work)


def test_crops_of_bytes(ops: NumpyOps) -> None:
    random = np.random.default_rng(3)
    pixels, mean = random.integers(0, 256, (5, 3, 8, 7), dtype=np.uint8), random.random((3, 8, 7)) * 255
    top, left, mirrored = random.integers(0, 4, 5), random.integers(0, 3, 5), random.random(5) < 0.5

    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        out = values.features(5, 3, 5, 5)
        ops.crop_mirror_normalize(pixels, top, left, mirrored, ops.constant(mean), 60.0, 0.5, out=out)
        return (out,)

    compare(ops, work)
