"""Kernels on bfloat16, compared with float64: what tests of oneDNN and of a GPU share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.ops import BFLOAT16, NumpyOps

__all__ = ["WITHIN", "Array", "Kernels", "Values", "compare"]

Array = Any

# Half of the distance between two values of bfloat16 near 1, and some for what is rounded on the way.
WITHIN = 1.5 * 2.0**-8


class Values:
    """Arrays drawn in bfloat16 or float32, for one backend as they are, for the other in float64."""

    def __init__(self, ops: NumpyOps, wide: bool) -> None:
        self.ops, self.wide, self.random = ops, wide, np.random.default_rng(11)

    def features(self, *shape: int) -> Array:
        """Return images, or rows, of bfloat16 values."""
        made = self.ops.features(shape, np.float64 if self.wide else BFLOAT16)
        self.ops.copy(self.random.normal(size=shape).astype(BFLOAT16), out=made)
        return made

    def weights(self, *shape: int) -> Array:
        """Return values that bfloat16 has too, as float32."""
        drawn = self.random.normal(size=shape).astype(BFLOAT16).astype(np.float32)
        return self.ops.from_host(drawn.astype(np.float64) if self.wide else drawn)


def compare(ops: NumpyOps, work: Callable[[Any, Values], tuple[Array, ...]]) -> None:
    """Compare what a piece of work writes in bfloat16 and with numpy in float64."""
    plain = NumpyOps()
    for _ in range(2):
        actual, wanted = work(ops, Values(ops, False)), work(plain, Values(plain, True))
        for one, other in zip(actual, wanted, strict=True):
            scale = np.abs(other).max()
            np.testing.assert_allclose(ops.to_host(one).astype(np.float64), other, rtol=WITHIN, atol=WITHIN * scale)


class Kernels:
    """Tests for every backend with bfloat16; a subclass is in a module with a fixture ``ops``."""

    @pytest.mark.parametrize("transpose", [False, True])
    def test_inner_product(self, ops: NumpyOps, transpose: bool) -> None:
        def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
            x, gy, y, gx, more, total = (values.features(17, size) for size in (33, 21, 21, 33, 21, 21))
            w, b, gb = values.weights(*((33, 21) if transpose else (21, 33))), values.weights(21), values.weights(21)
            gw = values.weights(*w.shape)
            ops.linear(x, w, b, y, transpose)
            ops.linear_add(x, w, b, more, total, transpose)
            ops.linear_grad_input(gy, w, gx, transpose)
            ops.linear_grad_weight(x, gy, gw, transpose, accumulate=True)
            ops.linear_grad_bias(gy, gb, accumulate=True)
            return y, total, gx, gw, gb

        compare(ops, work)

    @pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh", "stanh", "gelu", "silu"])
    @pytest.mark.parametrize("shape", [(3, 16, 4, 4), (5, 9)])
    def test_activations_in_place(self, ops: NumpyOps, name: str, shape: tuple[int, ...]) -> None:
        def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
            y, gy = values.features(*shape), values.features(*shape)
            getattr(ops, name)(y, out=y)
            getattr(ops, f"{name}_grad")(y, gy, out=gy)
            return y, gy

        compare(ops, work)

    def test_probabilities_and_losses_in_float32(self, ops: NumpyOps) -> None:
        random, plain = np.random.default_rng(2), NumpyOps()
        scores = random.normal(size=(8, 10)).astype(BFLOAT16)
        there = ops.from_host(scores)
        labels, p, grad = random.integers(0, 10, 8), ops.empty((8, 10), np.float32), ops.empty((8, 10), BFLOAT16)
        wanted = np.empty((8, 10))
        ops.softmax(there, out=p)
        plain.softmax(scores.astype(np.float64), out=wanted)
        np.testing.assert_allclose(ops.to_host(p), wanted, rtol=1e-5)
        loss = ops.to_host(ops.cross_entropy(p, labels)).item()
        assert loss == pytest.approx(plain.cross_entropy(wanted, labels), rel=1e-5)
        ops.cross_entropy_grad(p, labels, 1.0, out=grad)
        plain.cross_entropy_grad(wanted.copy(), labels, 1.0, out=wanted)
        np.testing.assert_allclose(ops.to_host(grad).astype(np.float64), wanted, rtol=WITHIN)
        hits = ops.to_host(ops.count_in_top(there, labels, 3)).item()
        assert hits == plain.count_in_top(scores.astype(np.float64), labels, 3)
        squares = ops.to_host(ops.sum_squares(there)).item()
        assert squares == pytest.approx(float((scores.astype(np.float64) ** 2).sum()))
        assert ops.finite(there)

    def test_a_copy_changes_type_and_layout(self, ops: NumpyOps) -> None:
        drawn = np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(BFLOAT16)
        x = ops.features(drawn.shape, BFLOAT16)
        ops.copy(drawn, out=x)
        wide, back = ops.empty(drawn.shape, np.float32), ops.empty(drawn.shape, BFLOAT16)
        ops.copy(x, out=wide)
        np.testing.assert_array_equal(ops.to_host(wide), drawn.astype(np.float32))
        ops.copy(wide, out=back)
        np.testing.assert_array_equal(ops.to_host(back), drawn)
        here = np.empty(drawn.shape, np.float32)
        ops.copy(x, out=here)
        np.testing.assert_array_equal(here, drawn.astype(np.float32))

    @pytest.mark.parametrize("shape", [(7, 33), (2, 12, 5, 4)])
    def test_layer_and_group_normalisation(self, ops: NumpyOps, shape: tuple[int, ...]) -> None:
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
    def test_attention(self, ops: NumpyOps, causal: bool) -> None:
        def work(ops: NumpyOps, values: Values) -> tuple[Array, ...]:
            rows = [values.features(6, 2, 24) for _ in range(4)]
            q, k, v, y = (x.reshape(6, 2, 3, 8).transpose(1, 2, 0, 3) for x in rows)
            scores, given, p = (values.features(6, 6, 6).reshape(2, 3, 6, 6) for _ in range(3))
            ops.batch_matmul(q, k, scores, transpose_b=True, scale=0.3)
            ops.masked_softmax(given, p, causal)
            ops.batch_matmul(given, v, y, transpose_a=True)
            return scores, p, rows[3]

        compare(ops, work)
