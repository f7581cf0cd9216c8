"""Kernels on bfloat16: as float64 gives them for the same values, to the precision of what is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.ops import NumpyOps, get_ops
from singa_dask.ops.onednn import library
from singa_dask.ops.onednn.library import BFLOAT16

Array = np.ndarray[Any, Any]

# Half of the distance between two values of bfloat16 near 1, and some for what is rounded on the way.
WITHIN = 1.5 * 2.0**-8


@pytest.fixture
def ops() -> NumpyOps:
    try:
        return get_ops("onednn", "bf16")
    except ConfigError as error:
        pytest.skip(str(error))


class Values:
    """Arrays drawn in bfloat16 or float32, for one backend as they are, for the other in float64."""

    def __init__(self, ops: NumpyOps, wide: bool) -> None:
        self.ops, self.wide, self.random = ops, wide, np.random.default_rng(11)

    def features(self, *shape: int) -> Array:
        """Return images, or rows, of bfloat16 values."""
        drawn = self.random.normal(size=shape).astype(BFLOAT16)
        made: Array = self.ops.features(shape, np.float64 if self.wide else BFLOAT16)
        made[...] = drawn
        return made

    def weights(self, *shape: int) -> Array:
        """Return values that bfloat16 has too, as float32."""
        drawn = self.random.normal(size=shape).astype(BFLOAT16).astype(np.float32)
        return drawn.astype(np.float64) if self.wide else drawn


def compare(ops: NumpyOps, work: Callable[[Any, Values], tuple[Array, ...]]) -> None:
    """Compare what a piece of work writes with oneDNN in bfloat16 and with numpy in float64."""
    plain = NumpyOps()
    for _ in range(2):
        actual, wanted = work(ops, Values(ops, False)), work(plain, Values(plain, True))
        for one, other in zip(actual, wanted, strict=True):
            scale = np.abs(other).max()
            np.testing.assert_allclose(one.astype(np.float64), other, rtol=WITHIN, atol=WITHIN * scale)


@pytest.mark.parametrize(("channels", "filters", "kernel", "pad"), [(3, 32, 5, 2), (16, 32, 5, 2), (5, 7, 3, 0)])
def test_convolution(ops: NumpyOps, channels: int, filters: int, kernel: int, pad: int) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        x, w = values.features(3, channels, 9, 8), values.weights(filters, channels, kernel, kernel)
        size = 2 * pad + 1 - kernel
        b, y, gy = values.weights(filters), *(values.features(3, filters, 9 + size, 8 + size) for _ in range(2))
        gx, gw, gb = values.features(*x.shape), values.weights(*w.shape), values.weights(filters)
        how = ((1, 1), (pad, pad))
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


@pytest.mark.parametrize("transpose", [False, True])
def test_inner_product(ops: NumpyOps, transpose: bool) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        x, gy, y, gx = (values.features(17, size) for size in (33, 21, 21, 33))
        w, b, gb = values.weights(*((33, 21) if transpose else (21, 33))), values.weights(21), values.weights(21)
        gw = values.weights(*w.shape)
        ops.linear(x, w, b, y, transpose)
        ops.linear_grad_input(gy, w, gx, transpose)
        ops.linear_grad_weight(x, gy, gw, transpose, accumulate=True)
        ops.linear_grad_bias(gy, gb, accumulate=True)
        return y, gx, gw, gb

    compare(ops, work)


@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh", "stanh", "gelu", "silu"])
@pytest.mark.parametrize("shape", [(3, 16, 4, 4), (5, 9)])
def test_activations_in_place(ops: NumpyOps, name: str, shape: tuple[int, ...]) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        y, gy = values.features(*shape), values.features(*shape)
        getattr(ops, name)(y, out=y)
        getattr(ops, f"{name}_grad")(y, gy, out=gy)
        return y, gy

    compare(ops, work)


def test_probabilities_and_losses_in_float32(ops: NumpyOps) -> None:
    random = np.random.default_rng(2)
    scores = random.normal(size=(8, 10)).astype(BFLOAT16)
    labels, p, grad = random.integers(0, 10, 8), np.empty((8, 10), np.float32), np.empty((8, 10), BFLOAT16)
    wanted, plain = np.empty((8, 10)), NumpyOps()
    ops.softmax(scores, out=p)
    plain.softmax(scores.astype(np.float64), out=wanted)
    np.testing.assert_allclose(p, wanted, rtol=1e-5)
    assert ops.cross_entropy(p, labels) == pytest.approx(plain.cross_entropy(wanted, labels), rel=1e-5)
    ops.cross_entropy_grad(p, labels, 1.0, out=grad)
    plain.cross_entropy_grad(wanted.copy(), labels, 1.0, out=wanted)
    np.testing.assert_allclose(grad.astype(np.float64), wanted, rtol=WITHIN)
    assert ops.count_in_top(scores, labels, 3) == plain.count_in_top(scores.astype(np.float64), labels, 3)


def test_a_copy_changes_type_and_layout(ops: NumpyOps) -> None:
    x = ops.features((2, 3, 4, 5), BFLOAT16)
    x[...] = np.random.default_rng(1).normal(size=x.shape)
    wide, back = np.empty(x.shape, np.float32), np.empty(x.shape, BFLOAT16)
    ops.copy(x, out=wide)
    np.testing.assert_array_equal(wide, x.astype(np.float32))
    ops.copy(wide, out=back)
    np.testing.assert_array_equal(back, x)


def test_bfloat16_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="precision: bf16 is for ops onednn and cupy, not numpy"):
        get_ops("numpy", "bf16")
    monkeypatch.setattr(library, "AVX512_CORE", 1 << 30)  # instructions that no CPU has
    with pytest.raises(ConfigError, match=r"precision: bf16 (is for ops onednn|needs AVX-512)"):
        get_ops("auto", "bf16")


@pytest.mark.parametrize("shape", [(7, 33), (2, 12, 5, 4)])
def test_layer_and_group_normalisation(ops: NumpyOps, shape: tuple[int, ...]) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        x, gy, y, gx = (values.features(*shape) for _ in range(4))
        scale, shift, grad_scale, grad_shift = (values.weights(shape[1]) for _ in range(4))
        of_groups = len(shape) == 4
        moments = [values.weights(*((shape[0], 3) if of_groups else shape[:1])) for _ in range(2)]
        forward = ops.group_norm if of_groups else ops.layer_norm
        backward = ops.group_norm_grad if of_groups else ops.layer_norm_grad
        forward(x, scale, shift, *moments, y, 1e-5)
        backward(x, gy, scale, *moments, gx, grad_scale, grad_shift, 1e-5, accumulate=True)
        return y, gx, grad_scale, grad_shift

    compare(ops, work)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(ops: NumpyOps, causal: bool) -> None:
    def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
        rows = [values.features(6, 2, 24) for _ in range(4)]
        q, k, v, y = (x.reshape(6, 2, 3, 8).transpose(1, 2, 0, 3) for x in rows)
        scores, given, p = (values.features(6, 6, 6).reshape(2, 3, 6, 6) for _ in range(3))
        ops.batch_matmul(q, k, scores, transpose_b=True, scale=0.3)
        ops.masked_softmax(given, p, causal)
        ops.batch_matmul(given, v, y, transpose_a=True)
        return scores, p, rows[3]

    compare(ops, work)
