"""The contract of the activations whose gradients come from their input, against `math.erf` and formulas in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from tests.contracts.arrays import LAYOUTS, Array, blank, close, draw, get, lay, put, slopes

SHAPES = [(5, 9), (1, 1, 1, 1), (3, 5, 4, 3), (7, 33, 17, 19)]


def gelu(x: Array) -> Array:
    return x * np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(x)


def gelu_tanh(x: Array) -> Array:
    y: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return y


def silu(x: Array) -> Array:
    y: Array = x / (1 + np.exp(-x))
    return y


KERNELS = {"gelu": (gelu, {}), "gelu_tanh": (gelu_tanh, {"approximate": True}), "silu": (silu, {})}


def forward(ops: NumpyOps, name: str, x: Any, out: Any) -> None:
    if name == "silu":
        ops.silu(x, out)
    else:
        ops.gelu(x, out, **KERNELS[name][1])


def backward(ops: NumpyOps, name: str, x: Any, gy: Any, out: Any) -> None:
    if name == "silu":
        ops.silu_grad(x, gy, out)
    else:
        ops.gelu_grad(x, gy, out, **KERNELS[name][1])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", KERNELS)
def test_activation(ops: NumpyOps, dtype: Any, random: Any, name: str, shape: Any, layout: str) -> None:
    x, gy = lay(3 * draw(random, shape, dtype), layout), lay(draw(random, shape, dtype), layout)
    f = KERNELS[name][0]
    wide, step = x.astype(np.float64), 1e-6
    wanted, wanted_slope = f(wide), (f(wide + step) - f(wide - step)) / (2 * step)
    x, gy = put(ops, x), put(ops, gy)
    y, gx = (put(ops, blank(shape, dtype, layout)) for _ in range(2))
    forward(ops, name, x, y)
    close(get(ops, y), wanted)
    backward(ops, name, x, gy, gx)
    np.testing.assert_allclose(get(ops, gx), get(ops, gy) * wanted_slope, rtol=1e-5, atol=1e-5)
    backward(ops, name, x, gy, gy)
    np.testing.assert_array_equal(get(ops, gy), get(ops, gx))
    forward(ops, name, x, x)
    np.testing.assert_array_equal(get(ops, x), get(ops, y))


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_of_float64_are_exact(ops: NumpyOps, random: Any, name: str) -> None:
    x, gy = np.linspace(-6, 6, 301)[:, None], draw(random, (301, 1), np.float64)
    if name == "gelu":
        cdf = np.array([[0.5 * math.erfc(-v / math.sqrt(2))] for v in x[:, 0]])
        slope = cdf + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    elif name == "silu":
        logistic = 1 / (1 + np.exp(-x))
        slope = logistic * (1 + x * (1 - logistic))
    else:
        t = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
    gx = ops.empty(x.shape, np.float64)
    backward(ops, name, put(ops, x), put(ops, gy), gx)
    close(get(ops, gx), gy * slope)
    np.testing.assert_allclose(slopes(KERNELS[name][0], x[::50], gy[::50]), (gy * slope)[::50], rtol=1e-8, atol=1e-9)


def test_the_tail_of_gelu_keeps_its_digits(ops: NumpyOps) -> None:
    x = -np.array([[0.5, 1.0, 3.0, 5.6, 6.0, 10.0, 20.0, 30.0]])
    y = ops.empty(x.shape, np.float64)
    ops.gelu(put(ops, x), y)
    np.testing.assert_allclose(get(ops, y), gelu(x), rtol=2e-13)


def test_large_values_pass(ops: NumpyOps, dtype: Any) -> None:
    x = put(ops, np.array([[-1e4, -50.0, 0.0, 50.0, 1e4]], dtype))
    for name in KERNELS:
        y, gx = ops.empty(x.shape, dtype), ops.empty(x.shape, dtype)
        forward(ops, name, x, y)
        close(get(ops, y), np.array([[0, 0, 0, 50, 1e4]]))
        backward(ops, name, x, put(ops, np.ones(x.shape, dtype)), gx)
        close(get(ops, gx), np.array([[0, 0, 0.5, 1, 1]]))
