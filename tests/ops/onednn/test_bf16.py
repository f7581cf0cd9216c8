"""Kernels on bfloat16: as float64 gives them for the same values, to the precision of what is written."""

from __future__ import annotations

import pytest

from singa_dask.errors import ConfigError
from singa_dask.ops import NumpyOps, get_ops
from singa_dask.ops.contract import ConvWindow
from singa_dask.ops.onednn import library
from tests.backends import backend
from tests.ops.bf16 import Array, Kernels, Values, compare


@pytest.fixture
def ops() -> NumpyOps:
    return backend("onednn", "bf16")


class TestOneDnn(Kernels):
    pass


@pytest.mark.parametrize(("channels", "filters", "kernel", "pad"), [(3, 32, 5, 2), (16, 32, 5, 2), (5, 7, 3, 0)])
def test_convolution(ops: NumpyOps, channels: int, filters: int, kernel: int, pad: int) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        x, w = values.features(3, channels, 9, 8), values.weights(filters, channels, kernel, kernel)
        size = 2 * pad + 1 - kernel
        b, y, gy = values.weights(filters), *(values.features(3, filters, 9 + size, 8 + size) for _ in range(2))
        gx, gw, gb = values.features(*x.shape), values.weights(*w.shape), values.weights(filters)
        how = [ConvWindow((1, 1), (pad, pad))]
        ops.conv2d(x, w, b, y, *how)
        ops.conv2d_grad_input(gy, w, gx, *how)
        ops.conv2d_grad_weight(x, gy, gw, gb, *how, accumulate=True)
        return y, gx, gw, gb

    compare(ops, work)


def test_pooling(ops: NumpyOps) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        x, gy = values.features(2, 32, 9, 9), values.features(2, 32, 4, 4)
        y, gx, average, spread = (values.features(*gy.shape), values.features(*x.shape), gy.copy("K"), x.copy("K"))
        where, how = ops.features(gy.shape, ops.place_dtype((3, 3))), ((3, 3), (2, 2), (0, 0))
        ops.max_pool(x, y, where, *how)
        ops.max_pool_grad(gy, where, gx, *how)
        ops.avg_pool(x, average, *how, True)
        ops.avg_pool_grad(gy, spread, *how, False)
        return y, gx, where, average, spread

    compare(ops, work)


@pytest.mark.parametrize("beta", [0.75, 0.5])
def test_normalisation_over_channels(ops: NumpyOps, beta: float) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        x, gy, y, gx = (values.features(2, 32, 5, 5) for _ in range(4))
        how = (3, 0.1, beta, 1.0)
        memory = ops.lrn_memory(x.shape, x.dtype, *how)
        ops.lrn(x, y, memory, *how)
        ops.lrn_grad(x, gy, gx, memory, *how)
        return y, gx

    compare(ops, work)


@pytest.mark.parametrize("shape", [(6, 32, 5, 5), (60, 7)])
def test_batch_normalisation(ops: NumpyOps, shape: tuple[int, ...]) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        x, gy, y, gx = (values.features(*shape) for _ in range(4))
        scale, shift, mean, var, gs, gb = (values.weights(shape[1]) for _ in range(6))
        ops.batch_norm(x, scale, shift, mean, var, y, 1e-3, True)
        ops.batch_norm_grad(x, gy, scale, mean, var, gx, gs, gb, 1e-3)
        return mean, var, y, gx, gs, gb

    compare(ops, work)


def test_bfloat16_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="precision: bf16 needs ops onednn or cupy, not numpy"):
        get_ops("numpy", "bf16")
    monkeypatch.setattr(library, "AVX512_CORE", 1 << 30)  # instructions that no CPU has
    with pytest.raises(ConfigError, match=r"precision: bf16 needs (ops onednn|AVX-512)"):
        get_ops("auto", "bf16")
