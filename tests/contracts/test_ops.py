"""The contract of the kernels: each against plain numpy in float64, for every backend and precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.ops import NumpyOps, get_ops
from tests.contracts.arrays import LAYOUTS, blank, close, draw, lay

Array = np.ndarray[Any, Any]

ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "relu": (lambda x: np.maximum(x, 0), lambda y: (y > 0) * 1.0),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda y: y * (1 - y)),
    "tanh": (np.tanh, lambda y: 1 - y * y),
    "stanh": (
        lambda x: 1.7159047 * np.tanh(0.66666667 * x),
        lambda y: 0.66666667 * 1.7159047 - 0.66666667 / 1.7159047 * y * y,
    ),
}


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
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(5, 9), (1, 1, 1, 1), (3, 5, 4, 3), (7, 33, 17, 19)])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(ops: NumpyOps, dtype: Any, random: Any, name: str, shape: Any, layout: str, in_place: bool) -> None:
    f, slope = ACTIVATIONS[name]
    x, gy = lay(3 * draw(random, shape, dtype), layout), lay(draw(random, shape, dtype), layout)
    wanted = f(x.astype(np.float64))
    wanted_grad = gy * slope(wanted)
    y = x if in_place else blank(shape, dtype, layout)
    getattr(ops, name)(x, out=y)
    close(y, wanted)
    gx = gy if in_place else blank(shape, dtype, layout)
    getattr(ops, f"{name}_grad")(y, gy, out=gx)
    close(gx, wanted_grad)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 3), (4, 5, 3, 2), (3, 32, 16, 17)])
def test_leaky_relu(ops: NumpyOps, dtype: Any, random: Any, shape: Any, layout: str, in_place: bool) -> None:
    x, gy = lay(draw(random, shape, dtype), layout), lay(draw(random, shape, dtype), layout)
    x[0, 0] = 0
    wanted, slope = np.where(x > 0, x, 0.25 * x), np.where(x > 0, 1, 0.25)
    wanted_grad = gy * slope
    y = x if in_place else blank(shape, dtype, layout)
    ops.relu(x, out=y, negative_slope=0.25)
    close(y, wanted)
    gx = gy if in_place else blank(shape, dtype, layout)
    ops.relu_grad(y, gy, out=gx, negative_slope=0.25)
    close(gx, wanted_grad)


def test_extreme_values_warn_of_nothing(ops: NumpyOps, dtype: Any) -> None:
    x = np.array([[-1e4, -200.0, 0.0, 200.0, 1e4]], dtype)
    y = np.empty_like(x)
    ops.sigmoid(x, out=y)
    close(y, np.array([[0, 0, 0.5, 1, 1]]))
    ops.softmax(x, out=y)
    close(y, np.array([[0, 0, 0, 0, 1.0]]))
    assert ops.cross_entropy(y, np.array([0])) == pytest.approx(-np.log(np.finfo(dtype).tiny))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("layout", ["plain", "sliced"])
@pytest.mark.parametrize("shape", [(6, 4), (1, 1), (300, 513)])
def test_softmax_and_cross_entropy(
    ops: NumpyOps, dtype: Any, random: Any, shape: Any, layout: str, in_place: bool
) -> None:
    n, d = shape
    x, gy = lay(draw(random, shape, dtype), layout), lay(draw(random, shape, dtype), layout)
    labels = random.integers(0, d, n)
    p, gx = blank(shape, dtype, layout), gy if in_place else blank(shape, dtype, layout)
    wanted = softmax(x.astype(np.float64))
    wanted_grad = wanted * (gy - (gy * wanted).sum(axis=1, keepdims=True))
    ops.softmax(x, out=p)
    close(p, wanted)
    ops.softmax_grad(p, gy, out=gx)
    close(gx, wanted_grad)
    assert ops.cross_entropy(p, labels) == pytest.approx(-np.log(wanted[np.arange(n), labels]).mean(), rel=1e-5)
    ops.cross_entropy_grad(p, labels, 2.0, out=gx)
    close(gx, 2.0 / n * (wanted - np.eye(d)[labels]))


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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(4, 3), (3, 5, 4, 7)])
def test_elementwise(ops: NumpyOps, dtype: Any, random: Any, shape: Any, layout: str) -> None:
    x, y = (lay(draw(random, shape, dtype), layout) for _ in range(2))
    out = blank(shape, dtype, layout)
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
    wanted = x + y
    ops.add(x, y, out=x)
    close(x, wanted)
    assert ops.sum_squares(x) == pytest.approx(float((x.astype(np.float64) ** 2).sum()), rel=1e-5)
    assert isinstance(ops.to_host(x), np.ndarray)


def test_memory(ops: NumpyOps, dtype: Any) -> None:
    assert ops.empty((4, 3), dtype).shape == (4, 3)
    assert not ops.zeros((2, 2), dtype).any()


def test_dropout_mask(ops: NumpyOps, dtype: Any) -> None:
    mask = np.empty((500, 40), dtype)
    ops.dropout_mask((3, "drop", 0), 0.75, out=mask)
    np.testing.assert_allclose(np.unique(mask), [0, 1 / 0.75], rtol=1e-6)
    assert mask.mean() == pytest.approx(1, abs=0.02)
    part = np.empty((100, 40), dtype)
    ops.dropout_mask((3, "drop", 0), 0.75, out=part, first_row=200)
    np.testing.assert_array_equal(part, mask[200:300])


@pytest.mark.parametrize("in_place", [False, True])
def test_bernoulli(ops: NumpyOps, dtype: Any, random: Any, in_place: bool) -> None:
    chances = random.random((2000, 40)).astype(dtype)
    chances[:, :2] = 0, 1
    drawn = chances.copy() if in_place else np.full(chances.shape, np.nan, dtype)
    ops.bernoulli((3, "units", 0), drawn if in_place else chances, out=drawn)
    assert set(np.unique(drawn)) == {0, 1}
    np.testing.assert_array_equal(drawn[:, :2], chances[:, :2])
    for low in (0.0, 0.25, 0.5, 0.75):
        among = (low < chances) & (chances < low + 0.25)
        assert drawn[among].mean() == pytest.approx(chances[among].mean(), abs=0.02)
    part = np.empty((100, 40), dtype)
    ops.bernoulli((3, "units", 0), chances[200:300], out=part, first_row=200)
    np.testing.assert_array_equal(part, drawn[200:300])


def test_bounds_and_moments(ops: NumpyOps, dtype: Any) -> None:
    out = np.empty((500, 40), dtype)
    ops.uniform((3, "u"), out=out, low=-2, high=4)
    assert -2 <= out.min() and out.max() < 4
    assert out.mean() == pytest.approx(1, abs=0.05)
    ops.gaussian((3, "g"), out=out, mean=5, std=2)
    assert out.mean() == pytest.approx(5, abs=0.05)
    assert out.std() == pytest.approx(2, abs=0.05)


def test_words_belong_to_an_address(ops: NumpyOps) -> None:
    ids, epochs = np.arange(10_000) * 2**21, np.arange(10_000) % 3
    words = ops.random_words((1, "cut"), ids, epochs)
    assert words.shape == (4, 10_000)
    assert 0 <= words.min() and words.max() < 2**32
    np.testing.assert_array_equal(ops.random_words((1, "cut"), ids[::-7], epochs[::-7]), words[:, ::-7])
    for other in (((2, "cut"), ids, epochs), ((1, "cut2"), ids, epochs), ((1, "cut"), ids + 1, epochs)):
        assert (ops.random_words(*other) == words).mean() < 1e-3
    np.testing.assert_allclose((words / 2**32).mean(axis=1), 0.5, atol=0.02)
    assert np.abs(np.corrcoef(words) - np.eye(4)).max() < 0.05


def test_unknown_device_says_what_is_known() -> None:
    with pytest.raises(ConfigError, match=r"unknown device 'cup'\. Did you mean 'cpu'"):
        get_ops("cup")
