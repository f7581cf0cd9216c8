"""The contract of the kernels: each against plain numpy in float64, for every backend and precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.ops import NumpyOps, get_ops

Array = np.ndarray[Any, Any]
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}

ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "relu": (lambda x: np.maximum(x, 0), lambda y: (y > 0) * 1.0),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda y: y * (1 - y)),
    "tanh": (np.tanh, lambda y: 1 - y * y),
    "stanh": (
        lambda x: 1.7159047 * np.tanh(0.66666667 * x),
        lambda y: 0.66666667 * 1.7159047 - 0.66666667 / 1.7159047 * y * y,
    ),
}


def close(actual: Array, wanted: Array) -> None:
    np.testing.assert_allclose(actual, wanted, rtol=TOLERANCE[actual.dtype.name], atol=TOLERANCE[actual.dtype.name])


def draw(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return random.normal(size=shape).astype(dtype)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    p: Array = e / e.sum(axis=1, keepdims=True)
    return p


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("n", "d", "h"), [(4, 7, 5), (1, 1, 1), (3, 64, 33)])
def test_linear(ops: NumpyOps, dtype: Any, random: Any, n: int, d: int, h: int, transpose: bool) -> None:
    x, b, gy = draw(random, (n, d), dtype), draw(random, (h,), dtype), draw(random, (n, h), dtype)
    w = draw(random, (d, h) if transpose else (h, d), dtype)
    wide = w if transpose else w.T
    y, gw, gb, gx = (np.full(shape, np.nan, dtype) for shape in ((n, h), w.shape, (h,), (n, d)))
    ops.linear(x, w, b, out=y, transpose=transpose)
    close(y, x.astype(np.float64) @ wide + b)
    ops.linear(x, w, None, out=y, transpose=transpose)
    close(y, x.astype(np.float64) @ wide)
    ops.linear_grad_input(gy, w, out=gx, transpose=transpose)
    close(gx, gy.astype(np.float64) @ wide.T)
    wanted = x.T.astype(np.float64) @ gy
    ops.linear_grad_weight(x, gy, out=gw, transpose=transpose)
    close(gw, wanted if transpose else wanted.T)
    ops.linear_grad_bias(gy, out=gb)
    close(gb, gy.sum(axis=0, dtype=np.float64))
    before_w, before_b = gw.copy(), gb.copy()
    ops.linear_grad_weight(x, gy, out=gw, transpose=transpose, accumulate=True)
    ops.linear_grad_bias(gy, out=gb, accumulate=True)
    close(gw, 2 * before_w)
    close(gb, 2 * before_b)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(ops: NumpyOps, dtype: Any, random: Any, name: str, in_place: bool) -> None:
    f, slope = ACTIVATIONS[name]
    x, gy = 3 * draw(random, (5, 9), dtype), draw(random, (5, 9), dtype)
    wanted = f(x.astype(np.float64))
    wanted_grad = gy * slope(wanted)
    y = x if in_place else np.empty_like(x)
    getattr(ops, name)(x, out=y)
    close(y, wanted)
    gx = gy if in_place else np.empty_like(gy)
    getattr(ops, f"{name}_grad")(y, gy, out=gx)
    close(gx, wanted_grad)


@pytest.mark.parametrize("in_place", [False, True])
def test_leaky_relu(ops: NumpyOps, dtype: Any, in_place: bool) -> None:
    x, gy = np.array([[-2.0, 0.0, 3.0]], dtype), np.array([[1.0, 1.0, 1.0]], dtype)
    y = x if in_place else np.empty_like(x)
    ops.relu(x, out=y, negative_slope=0.25)
    close(y, np.array([[-0.5, 0.0, 3.0]]))
    gx = gy if in_place else np.empty_like(gy)
    ops.relu_grad(y, gy, out=gx, negative_slope=0.25)
    close(gx, np.array([[0.25, 0.25, 1.0]]))


def test_extreme_values_warn_of_nothing(ops: NumpyOps, dtype: Any) -> None:
    x = np.array([[-1e4, -200.0, 0.0, 200.0, 1e4]], dtype)
    y = np.empty_like(x)
    ops.sigmoid(x, out=y)
    close(y, np.array([[0, 0, 0.5, 1, 1]]))
    ops.softmax(x, out=y)
    close(y, np.array([[0, 0, 0, 0, 1.0]]))
    assert ops.cross_entropy(y, np.array([0])) == pytest.approx(-np.log(np.finfo(dtype).tiny))


def test_softmax_and_cross_entropy(ops: NumpyOps, dtype: Any, random: Any) -> None:
    x, gy, labels = draw(random, (6, 4), dtype), draw(random, (6, 4), dtype), random.integers(0, 4, 6)
    p, gx = np.empty_like(x), np.empty_like(x)
    wanted = softmax(x.astype(np.float64))
    ops.softmax(x, out=p)
    close(p, wanted)
    ops.softmax_grad(p, gy, out=gx)
    close(gx, wanted * (gy - (gy * wanted).sum(axis=1, keepdims=True)))
    assert ops.cross_entropy(p, labels) == pytest.approx(-np.log(wanted[np.arange(6), labels]).mean(), rel=1e-5)
    ops.cross_entropy_grad(p, labels, 2.0, out=gx)
    close(gx, 2.0 / 6 * (wanted - np.eye(4)[labels]))


def test_of_equal_scores_the_higher_column_is_first(ops: NumpyOps, dtype: Any) -> None:
    scores = np.array([[1, 3, 3, 2], [5, 5, 5, 5], [4, 3, 2, 1]], dtype)
    for k, wanted in ((1, [[2], [3], [0]]), (3, [[2, 1, 3], [3, 2, 1], [0, 1, 2]])):
        out = np.empty((3, k), dtype)
        ops.top(scores, k, out=out)
        np.testing.assert_array_equal(out, wanted)
    for labels, k, wanted_count in (([2, 3, 0], 1, 3), ([1, 0, 1], 1, 0), ([1, 2, 1], 2, 3), ([0, 0, 3], 3, 0)):
        assert ops.count_in_top(scores, np.array(labels), k) == wanted_count


def test_a_row_of_nan_is_a_miss(ops: NumpyOps, dtype: Any) -> None:
    assert ops.count_in_top(np.full((2, 3), np.nan, dtype), np.array([2, 0]), 1) == 0


@pytest.mark.parametrize("rows", [1, 5, 300])
def test_normalize_bytes_and_floats(ops: NumpyOps, dtype: Any, random: Any, rows: int) -> None:
    pixels = random.integers(0, 256, (rows, 3, 50), dtype=np.uint8)
    mean, std = random.random((3, 50), np.float32), np.float32(127.5)
    out = np.empty(pixels.shape, dtype)
    ops.normalize(pixels, mean, std, out=out)
    close(out, (pixels - mean.astype(np.float64)) / 127.5)
    ops.normalize(pixels, 127.5, None, out=out)
    close(out, pixels - 127.5)
    ops.normalize(pixels.astype(np.float32), None, 2.0, out=out)
    close(out, pixels / 2.0)
    ops.normalize(pixels, None, None, out=out)
    np.testing.assert_array_equal(out, pixels)


@pytest.mark.parametrize("size", [(9, 8), (6, 5), (1, 1)])
@pytest.mark.parametrize("n", [1, 7, 300])
def test_crop_mirror_normalize(ops: NumpyOps, dtype: Any, random: Any, n: int, size: tuple[int, int]) -> None:
    pixels = random.integers(0, 256, (n, 3, 9, 8), dtype=np.uint8)
    top, left = random.integers(0, 10 - size[0], n), random.integers(0, 9 - size[1], n)
    mirrored = random.random(n) < 0.5
    mean, std = random.random((3, 9, 8)).astype(dtype), 1 + random.random((3, 9, 8)).astype(dtype)
    for x, center, width, scale in (
        (pixels, mean, std, 0.5),
        (pixels, 127.5, 60.0, 1.0),
        (pixels.astype(dtype), None, std, 2.0),
        (pixels.astype(dtype), mean, None, 1.0),
    ):
        whole = (x - (0.0 if center is None else center)) / (1.0 if width is None else width) * scale
        wanted = np.stack(
            [
                one[:, t : t + size[0], k : k + size[1]][..., :: -1 if turn else 1]
                for one, t, k, turn in zip(whole, top, left, mirrored, strict=True)
            ]
        )
        out = np.full((n, 3, *size), np.nan, dtype)
        ops.crop_mirror_normalize(x, top, left, mirrored, center, width, scale, out=out)
        close(out, wanted)


def test_elementwise(ops: NumpyOps, dtype: Any, random: Any) -> None:
    x, y = draw(random, (4, 3), dtype), draw(random, (4, 3), dtype)
    out = ops.empty((4, 3), dtype)
    assert not ops.zeros((2, 2), dtype).any()
    ops.copy(x, out=out)
    close(out, x)
    ops.add(x, y, out=out)
    close(out, x + y)
    ops.subtract(x, y, out=out)
    close(out, x - y)
    ops.multiply(x, y, out=out)
    close(out, x * y)
    ops.multiply(x, 0.5, out=out)
    close(out, x / 2)
    assert ops.sum_squares(x) == pytest.approx(float((x.astype(np.float64) ** 2).sum()), rel=1e-5)
    assert isinstance(ops.to_host(x), np.ndarray)


def test_unknown_device_says_what_is_known() -> None:
    with pytest.raises(ConfigError, match=r"unknown device 'cup'\. Did you mean 'cpu'"):
        get_ops("cup")
