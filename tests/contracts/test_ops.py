"""The contract of the kernels: each against plain numpy in float64, for every backend and precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.ops import NumpyOps, get_ops
from tests.contracts.arrays import LAYOUTS, blank, close, draw, get, lay, put, scalar

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
    y, gw, gb, gx = (put(ops, np.full(shape, np.nan, dtype)) for shape in ((n, h), w.shape, (h,), (n, d)))
    of_x, of_w, of_b, of_gy = (put(ops, array) for array in (x, w, b, gy))
    ops.linear(of_x, of_w, of_b, out=y, transpose=transpose)
    close(get(ops, y), x.astype(np.float64) @ wide + b)
    ops.linear(of_x, of_w, None, out=y, transpose=transpose)
    close(get(ops, y), x.astype(np.float64) @ wide)
    wanted = x.T.astype(np.float64) @ gy
    wanted_w, wanted_b = wanted if transpose else wanted.T, gy.sum(axis=0, dtype=np.float64)
    for accumulate, times in ((False, 1), (True, 2)):
        ops.linear_grad_input(of_gy, of_w, out=gx, transpose=transpose, accumulate=accumulate)
        close(get(ops, gx), times * (gy.astype(np.float64) @ wide.T))
        ops.linear_grad_weight(of_x, of_gy, out=gw, transpose=transpose, accumulate=accumulate)
        close(get(ops, gw), times * wanted_w)
        ops.linear_grad_bias(of_gy, out=gb, accumulate=accumulate)
        close(get(ops, gb), times * wanted_b)
        ops.linear_grad_params(of_x, of_gy, gw, gb, transpose=transpose, accumulate=accumulate)
        close(get(ops, gw), (times + accumulate) * wanted_w)
        close(get(ops, gb), (times + accumulate) * wanted_b)
    ops.linear_add(of_x, of_w, of_b, of_gy, out=y, transpose=transpose)
    close(get(ops, y), x.astype(np.float64) @ wide + b + gy)


@pytest.mark.parametrize("rows", [3, 700])
def test_linear_on_parts_of_larger_arrays(ops: NumpyOps, dtype: Any, random: Any, rows: int) -> None:
    drawn = [draw(random, (rows, 12), dtype), draw(random, (12, 12), dtype), draw(random, (rows, 16), dtype)]
    wholes = [put(ops, array) for array in drawn]
    x, w, y = wholes[0][:, 2:9], wholes[1][5:, 1:6], wholes[2][:, 3:13:2]
    wide_x, wide_w = drawn[0][:, 2:9].astype(np.float64), drawn[1][5:, 1:6].astype(np.float64)
    wanted, gw, gb = wide_x @ wide_w, put(ops, np.ones((7, 5), dtype)), put(ops, np.ones(5, dtype))
    between = drawn[2].copy()
    ops.linear(x, w, None, out=y, transpose=True)
    between[:, 3:13:2] = wanted
    close(get(ops, wholes[2]), between)
    ops.linear_grad_weight(x, y, out=gw, transpose=True, accumulate=True)
    close(get(ops, gw), 1 + wide_x.T @ wanted)
    ops.linear_grad_bias(y, out=gb, accumulate=True)
    close(get(ops, gb), 1 + wanted.sum(axis=0))
    gx = wholes[0][:, 4:11]
    ops.linear_grad_input(y, w, out=gx, transpose=True)
    between = drawn[0].copy()
    between[:, 4:11] = wanted @ wide_w.T
    close(get(ops, wholes[0]), between)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(5, 9), (1, 1, 1, 1), (3, 5, 4, 3), (7, 33, 17, 19)])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(ops: NumpyOps, dtype: Any, random: Any, name: str, shape: Any, layout: str, in_place: bool) -> None:
    f, slope = ACTIVATIONS[name]
    x, gy = lay(3 * draw(random, shape, dtype), layout), lay(draw(random, shape, dtype), layout)
    wanted = f(x.astype(np.float64))
    wanted_grad = gy * slope(wanted)
    x, gy = put(ops, x), put(ops, gy)
    y, gx = (x, gy) if in_place else (put(ops, blank(shape, dtype, layout)) for _ in range(2))
    getattr(ops, name)(x, out=y)
    close(get(ops, y), wanted)
    getattr(ops, f"{name}_grad")(y, gy, out=gx)
    close(get(ops, gx), wanted_grad)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 3), (4, 5, 3, 2), (3, 32, 16, 17)])
def test_leaky_relu(ops: NumpyOps, dtype: Any, random: Any, shape: Any, layout: str, in_place: bool) -> None:
    x, gy = lay(draw(random, shape, dtype), layout), lay(draw(random, shape, dtype), layout)
    x[0, 0] = 0
    wanted, slope = np.where(x > 0, x, 0.25 * x), np.where(x > 0, 1, 0.25)
    wanted_grad = gy * slope
    x, gy = put(ops, x), put(ops, gy)
    y, gx = (x, gy) if in_place else (put(ops, blank(shape, dtype, layout)) for _ in range(2))
    ops.relu(x, out=y, negative_slope=0.25)
    close(get(ops, y), wanted)
    ops.relu_grad(y, gy, out=gx, negative_slope=0.25)
    close(get(ops, gx), wanted_grad)


def test_extreme_values_warn_of_nothing(ops: NumpyOps, dtype: Any) -> None:
    x = put(ops, np.array([[-1e4, -200.0, 0.0, 200.0, 1e4]], dtype))
    y = ops.empty(x.shape, dtype)
    ops.sigmoid(x, out=y)
    close(get(ops, y), np.array([[0, 0, 0.5, 1, 1]]))
    ops.softmax(x, out=y)
    close(get(ops, y), np.array([[0, 0, 0, 0, 1.0]]))
    assert scalar(ops, ops.cross_entropy(y, np.array([0]))) == pytest.approx(-np.log(np.finfo(dtype).tiny))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("layout", ["plain", "sliced"])
@pytest.mark.parametrize("shape", [(6, 4), (1, 1), (300, 513), (2500, 3)])
def test_softmax_and_cross_entropy(
    ops: NumpyOps, dtype: Any, random: Any, shape: Any, layout: str, in_place: bool
) -> None:
    n, d = shape
    x, gy = lay(draw(random, shape, dtype), layout), lay(draw(random, shape, dtype), layout)
    labels = random.integers(0, d, n)
    wanted = softmax(x.astype(np.float64))
    wanted_grad = wanted * (gy - (gy * wanted).sum(axis=1, keepdims=True))
    wanted_loss = -np.log(wanted[np.arange(n), labels]).mean()
    x, gy = put(ops, x), put(ops, gy)
    p, gx = (x, gy) if in_place else (put(ops, blank(shape, dtype, layout)) for _ in range(2))
    ops.softmax(x, out=p)
    close(get(ops, p), wanted)
    ops.softmax_grad(p, gy, out=gx)
    close(get(ops, gx), wanted_grad)
    for given in (labels, ops.labels(labels)):
        assert scalar(ops, ops.cross_entropy(p, given)) == pytest.approx(wanted_loss, rel=1e-5)
        ops.cross_entropy_grad(p, given, 2.0, out=gx)
        close(get(ops, gx), 2.0 / n * (wanted - np.eye(d)[labels]))


def test_of_equal_scores_the_higher_column_is_first(ops: NumpyOps, dtype: Any) -> None:
    scores = put(ops, np.array([[1, 3, 3, 2], [5, 5, 5, 5], [4, 3, 2, 1]], dtype))
    for k, wanted in ((1, [[2], [3], [0]]), (3, [[2, 1, 3], [3, 2, 1], [0, 1, 2]])):
        out = ops.empty((3, k), dtype)
        ops.top(scores, k, out=out)
        np.testing.assert_array_equal(get(ops, out), wanted)
    for labels, k, wanted_count in (([2, 3, 0], 1, 3), ([1, 0, 1], 1, 0), ([1, 2, 1], 2, 3), ([0, 0, 3], 3, 0)):
        assert scalar(ops, ops.count_in_top(scores, np.array(labels), k)) == wanted_count


@pytest.mark.parametrize("layout", ["plain", "sliced"])
@pytest.mark.parametrize(("n", "d", "k"), [(1, 1, 1), (9, 40, 3), (300, 600, 5)])
def test_the_best_of_many_scores(ops: NumpyOps, dtype: Any, random: Any, n: int, d: int, k: int, layout: str) -> None:
    scores, labels = lay(random.integers(0, 20, (n, d)).astype(dtype), layout), random.integers(0, d, n)
    order = np.lexsort((-np.broadcast_to(np.arange(d), (n, d)), -scores))[:, :k]
    out = put(ops, blank((n, k), dtype, layout))
    given = put(ops, scores)
    ops.top(given, k, out=out)
    close(get(ops, out), order)
    wanted = (order == labels[:, None]).any(axis=1).sum()
    assert scalar(ops, ops.count_in_top(given, labels, k)) == wanted


def test_softmax_hides_no_nan(ops: NumpyOps, dtype: Any) -> None:
    x = put(ops, np.array([[0, 1, 2], [1, np.nan, 3], [np.inf, 0, 0]], dtype))
    p = put(ops, np.zeros((3, 3), dtype))
    with np.errstate(invalid="ignore"):
        ops.softmax(x, out=p)
    assert np.isnan(get(ops, p)).all(axis=1).tolist() == [False, True, True]


def test_a_row_of_nan_is_a_miss(ops: NumpyOps, dtype: Any) -> None:
    scores = put(ops, np.full((2, 3), np.nan, dtype))
    assert scalar(ops, ops.count_in_top(scores, np.array([2, 0]), 1)) == 0


@pytest.mark.parametrize("rows", [1, 5, 300])
def test_normalize_bytes_and_floats(ops: NumpyOps, dtype: Any, random: Any, rows: int) -> None:
    pixels = random.integers(0, 256, (rows, 3, 50), dtype=np.uint8)
    mean, std = random.random((3, 50), np.float32), np.float32(127.5)
    out = ops.empty(pixels.shape, dtype)
    for by in (mean, ops.constant(mean)):
        ops.normalize(pixels, by, std, out=out)
        close(get(ops, out), (pixels - mean.astype(np.float64)) / 127.5)
    ops.normalize(pixels, 127.5, None, out=out)
    close(get(ops, out), pixels - 127.5)
    ops.normalize(pixels.astype(np.float32), None, 2.0, out=out)
    close(get(ops, out), pixels / 2.0)
    ops.normalize(pixels, None, None, out=out)
    np.testing.assert_array_equal(get(ops, out), pixels)


def test_normalize_images_into_a_feature(ops: NumpyOps, dtype: Any, random: Any) -> None:
    pixels = random.integers(0, 256, (5, 3, 4, 7), dtype=np.uint8)
    mean = random.random((3, 4, 7)).astype(dtype)
    out = ops.features(pixels.shape, dtype)
    ops.normalize(pixels, mean, None, out=out)
    close(get(ops, out), pixels - mean.astype(np.float64))


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
        out = put(ops, np.full((n, 3, *size), np.nan, dtype))
        ops.crop_mirror_normalize(x, top, left, mirrored, center, width, scale, out=out)
        close(get(ops, out), wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(4, 3), (3, 5, 4, 7)])
def test_elementwise(ops: NumpyOps, dtype: Any, random: Any, shape: Any, layout: str) -> None:
    x, y = (lay(draw(random, shape, dtype), layout) for _ in range(2))
    wanted = {"copy": x.copy(), "add": x + y, "subtract": x - y, "multiply": x * y}
    wanted["add_relu"], masked = np.maximum(x + y, 0), np.where(x > 0, x + y, 0)
    squares = float((wanted["add"].astype(np.float64) ** 2).sum())
    x, y, out = put(ops, x), put(ops, y), put(ops, blank(shape, dtype, layout))
    ops.copy(x, out=out)
    close(get(ops, out), wanted["copy"])
    for name in ("add", "add_relu", "subtract", "multiply"):
        getattr(ops, name)(x, y, out=out)
        close(get(ops, out), wanted[name])
    ops.copy(y, out=out)
    ops.add_relu_grad(x, x, out, out=out)
    close(get(ops, out), masked)
    ops.multiply(x, 0.5, out=out)
    close(get(ops, out), wanted["copy"] / 2)
    ops.add(x, y, out=x)
    close(get(ops, x), wanted["add"])
    assert scalar(ops, ops.sum_squares(x)) == pytest.approx(squares, rel=1e-5)
    assert isinstance(ops.to_host(x), np.ndarray)


def test_memory(ops: NumpyOps, dtype: Any) -> None:
    assert ops.empty((4, 3), dtype).shape == (4, 3)
    assert not ops.to_host(ops.zeros((2, 2), dtype)).any()
    pinned = ops.pinned((2, 3), dtype)
    assert pinned.shape == (2, 3) and pinned.dtype == dtype and not pinned.any()
    assert not ops.for_thread().to_host(ops.zeros((2, 2), dtype)).any()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4, 5), (60, 70, 20), (0, 3)])
def test_copies_from_and_to_the_host(ops: NumpyOps, dtype: Any, random: Any, shape: Any, layout: str) -> None:
    values = lay(draw(random, shape, dtype), layout)
    here, there = blank(shape, np.float32, layout), put(ops, blank(shape, dtype, layout))
    ops.copy(values, out=there)
    np.testing.assert_array_equal(get(ops, there), values)
    ops.copy(there, out=here)
    np.testing.assert_array_equal(here, values.astype(np.float32))
    np.testing.assert_array_equal(ops.to_host(ops.from_host(values)), values)
    values[...] = 0  # what was copied has been read
    assert (get(ops, there) != 0).all()


def test_sums_of_scalars(ops: NumpyOps, dtype: Any, random: Any) -> None:
    total: Any = 0.5
    wanted = 0.5
    for _ in range(3):
        values = draw(random, (40, 30), dtype)
        total = ops.accumulate(ops.sum_squares(put(ops, values)), total)
        wanted += float((values.astype(np.float64) ** 2).sum())
    assert scalar(ops, total) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 50, 40)])
def test_finite(ops: NumpyOps, dtype: Any, random: Any, shape: Any, layout: str) -> None:
    for value, wanted in ((0, True), (np.finfo(dtype).max, True), (np.nan, False), (np.inf, False), (-np.inf, False)):
        values = lay(draw(random, shape, dtype), layout)
        values[-1, 1:] = value
        assert ops.finite(put(ops, values)) is wanted


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(6, 40), (6, 3, 4, 5), (6, 5, 4, 6), (6,), (6, 2, 5)])
def test_draws_are_those_of_the_host(ops: NumpyOps, dtype: Any, random: Any, shape: Any, layout: str) -> None:
    layout = layout if len(shape) > 1 else "plain"
    plain, chances = NumpyOps(), lay(random.random(shape).astype(dtype), layout)
    for first_row in (0, 1 << 40):
        wanted, out = np.empty(shape, dtype), put(ops, blank(shape, dtype, layout))
        for name, given in (("uniform", {"low": -0.3, "high": 2.1}), ("dropout_mask", {"keep": 0.7}), ("uniform", {})):
            getattr(plain, name)((3, "a"), **given, out=wanted, first_row=first_row)
            getattr(ops, name)((3, "a"), **given, out=out, first_row=first_row)
            np.testing.assert_array_equal(get(ops, out), wanted)
        plain.bernoulli((3, "a"), chances, out=wanted, first_row=first_row)
        ops.bernoulli((3, "a"), put(ops, chances), out=out, first_row=first_row)
        np.testing.assert_array_equal(get(ops, out), wanted)
        plain.gaussian((3, "a"), out=wanted, mean=0.5, std=2.0, first_row=first_row)
        ops.gaussian((3, "a"), out=out, mean=0.5, std=2.0, first_row=first_row)
        np.testing.assert_allclose(get(ops, out), wanted, rtol=1e-5, atol=1e-5)


def test_dropout_mask(ops: NumpyOps, dtype: Any) -> None:
    there = ops.empty((500, 40), dtype)
    ops.dropout_mask((3, "drop", 0), 0.75, out=there)
    mask = get(ops, there)
    np.testing.assert_allclose(np.unique(mask), [0, 1 / 0.75], rtol=1e-6)
    assert mask.mean() == pytest.approx(1, abs=0.02)
    part = ops.empty((100, 40), dtype)
    ops.dropout_mask((3, "drop", 0), 0.75, out=part, first_row=200)
    np.testing.assert_array_equal(get(ops, part), mask[200:300])


@pytest.mark.parametrize("in_place", [False, True])
def test_bernoulli(ops: NumpyOps, dtype: Any, random: Any, in_place: bool) -> None:
    chances = random.random((2000, 40)).astype(dtype)
    chances[:, :2] = 0, 1
    given = put(ops, chances.copy())
    there = given if in_place else put(ops, np.full(chances.shape, np.nan, dtype))
    ops.bernoulli((3, "units", 0), given, out=there)
    drawn = get(ops, there)
    assert set(np.unique(drawn)) == {0, 1}
    np.testing.assert_array_equal(drawn[:, :2], chances[:, :2])
    for low in (0.0, 0.25, 0.5, 0.75):
        among = (low < chances) & (chances < low + 0.25)
        assert drawn[among].mean() == pytest.approx(chances[among].mean(), abs=0.02)
    part = ops.empty((100, 40), dtype)
    ops.bernoulli((3, "units", 0), put(ops, chances[200:300]), out=part, first_row=200)
    np.testing.assert_array_equal(get(ops, part), drawn[200:300])


def test_bounds_and_moments(ops: NumpyOps, dtype: Any) -> None:
    there = ops.empty((500, 40), dtype)
    ops.uniform((3, "u"), out=there, low=-2, high=4)
    out = get(ops, there)
    assert -2 <= out.min() and out.max() < 4
    assert out.mean() == pytest.approx(1, abs=0.05)
    ops.gaussian((3, "g"), out=there, mean=5, std=2)
    out = get(ops, there)
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
    with pytest.raises(ConfigError, match=r"unknown device 'cup'\. Did you mean 'cupy'\?"):
        get_ops("cup")
