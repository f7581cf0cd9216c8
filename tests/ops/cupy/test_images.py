"""What is said only of kernels on images on a GPU: ways that small arrays do not take, and the same bits each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from tests.backends import backend

Array = Any

ALL_POOLS = [((3, 3), (2, 2), (0, 0)), ((2, 4), (1, 3), (1, 2)), ((5, 5), (1, 1), (2, 2))]


@pytest.fixture(params=["float32", pytest.param("float64", marks=pytest.mark.long)])
def dtype(request: pytest.FixtureRequest) -> np.dtype[Any]:
    return np.dtype(request.param)


@pytest.fixture
def ops(dtype: np.dtype[Any]) -> NumpyOps:
    return backend("cuda:0", dtype.name)


class Sides:
    """The same calls on the device and in numpy in float64, on arrays of the same values."""

    def __init__(self, ops: NumpyOps, dtype: Any) -> None:
        self.ops, self.dtype, self.plain = ops, dtype, NumpyOps()
        self.random = np.random.default_rng(5)
        self.of: dict[int, Array] = {}

    def draw(self, *shape: int) -> Array:
        """Return a device array of features that numpy has too."""
        drawn = self.random.normal(size=shape).astype(self.dtype)
        made, wide = self.ops.features(shape, self.dtype), self.plain.features(shape, np.float64)
        self.ops.copy(drawn, out=made)
        wide[...] = drawn
        self.of[id(made)] = wide
        return made

    def call(self, name: str, *arguments: Any) -> None:
        """Call a kernel on both sides, twice on the device: with the same bits."""
        getattr(self.plain, name)(*(self.of.get(id(one), one) for one in arguments))
        first = None
        for _ in range(2):
            getattr(self.ops, name)(*arguments)
            bits = [self.ops.to_host(one).tobytes() for one in arguments if id(one) in self.of]
            assert first is None or bits == first
            first = bits

    def check(self, *arrays: Array) -> None:
        """Compare device arrays with numpy's."""
        within = 1e-5 if self.dtype == np.float32 else 1e-12
        for one in arrays:
            wanted = self.of[id(one)]
            scale = max(1.0, np.abs(wanted).max())
            np.testing.assert_allclose(self.ops.to_host(one), wanted, rtol=within, atol=within * scale)


@pytest.fixture
def sides(ops: NumpyOps, dtype: Any) -> Sides:
    return Sides(ops, dtype)


def pool(sides: Sides, channels: int, how: Any) -> None:
    """Check all kernels of pooling."""
    x = sides.draw(3, channels, 9, 8)
    sizes = [(n + 2 * pad - kernel) // step + 1 for n, kernel, step, pad in zip((9, 8), *how, strict=True)]
    y, gy, average = (sides.draw(3, channels, *sizes) for _ in range(3))
    gx, ties, spread = (sides.draw(*x.shape) for _ in range(3))
    where = sides.ops.features(y.shape, sides.ops.place_dtype(how[0]))
    sides.of[id(where)] = sides.plain.features(y.shape, sides.plain.place_dtype(how[0]))
    sides.call("max_pool", x, y, where, *how)
    sides.call("max_pool_grad", gy, where, gx, *how)
    sides.call("max_pool_grad_ties", x, y, gy, ties, *how)
    sides.call("avg_pool", x, average, *how, False)
    sides.call("avg_pool_grad", gy, spread, *how, False)
    sides.check(y, where, gx, ties, average, spread)


@pytest.mark.parametrize("how", ALL_POOLS)
@pytest.mark.parametrize("channels", [3, 6, 12])
def test_pooling_of_one_two_and_four_channels_at_once(sides: Sides, channels: int, how: Any) -> None:
    pool(sides, channels, how)


def test_more_values_than_an_int_counts(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa_dask.ops.cupy.launch.INT_VALUES", 0)
    pool(sides, 4, ALL_POOLS[1])
    normalise_over_channels(sides, 7, 3, 0.75)
    normalise_over_the_batch(sides, (5, 4, 3, 3))


def test_pixels_that_are_not_aligned(sides: Sides) -> None:
    x = sides.draw(3, 4, 5, 6)
    part, wide = x[:, :, :, 1:][:, 1:], sides.of[id(x)][:, :, :, 1:][:, 1:]
    y = sides.draw(3, 3, 2, 2)
    sides.of[id(part)] = wide
    sides.call("avg_pool", part, y, (2, 2), (2, 2), (0, 0), True)
    sides.check(y)


def test_a_pixel_that_is_no_number_is_seen_after_pooling(ops: NumpyOps, dtype: Any) -> None:
    pixels = np.zeros((1, 1, 4, 4), dtype)
    pixels[0, 0, 1, 0] = np.nan
    y = ops.features((1, 1, 2, 2), dtype)
    ops.max_pool(ops.from_host(pixels), y, None, (2, 2), (2, 2), (0, 0))
    np.testing.assert_array_equal(ops.to_host(y)[0, 0], [[np.nan, 0], [0, 0]])


def normalise_over_channels(sides: Sides, channels: int, size: int, beta: float) -> None:
    """Check the kernels of LRN."""
    x, gy, y, gx = (sides.draw(2, channels, 3, 2) for _ in range(4))
    how = (size, 0.5, beta, 1.5)
    work = sides.ops.lrn_memory(x.shape, sides.dtype, *how)
    sides.of[id(work)] = sides.plain.lrn_memory(x.shape, np.float64, *how)
    sides.call("lrn", x, y, work, *how)
    sides.call("lrn_grad", x, gy, gx, work, *how)
    sides.check(y, gx, work)


@pytest.mark.parametrize("beta", [0.75, 0.5, 1.0, 0.9])
def test_exponents_that_are_roots(sides: Sides, beta: float) -> None:
    normalise_over_channels(sides, 9, 5, beta)


@pytest.mark.parametrize(("channels", "size"), [(300, 129), (300, 131), (140, 999)])
def test_more_neighbours_than_a_block_keeps(sides: Sides, channels: int, size: int) -> None:
    normalise_over_channels(sides, channels, size, 0.75)


def normalise_over_the_batch(sides: Sides, shape: tuple[int, ...]) -> None:
    """Check the kernels of batch normalisation."""
    x, gy, y, gx = (sides.draw(*shape) for _ in range(4))
    scale, shift, mean, var, grad_scale, grad_shift = (sides.draw(shape[1]) for _ in range(6))
    sides.call("batch_norm", x, scale, shift, mean, var, y, 1e-3, True)
    sides.call("batch_norm_grad", x, gy, scale, mean, var, gx, grad_scale, grad_shift, 1e-3)
    sides.check(mean, var, y, gx, grad_scale, grad_shift)


@pytest.mark.parametrize("shape", [(40, 4, 9, 9), (100, 33, 5, 5), (3000, 2), (700, 96)])
def test_sums_that_several_blocks_share(sides: Sides, shape: tuple[int, ...]) -> None:
    normalise_over_the_batch(sides, shape)


def test_the_variance_of_values_far_from_zero(ops: NumpyOps, dtype: Any) -> None:
    values = np.random.default_rng(1).normal(size=(500, 3)).astype(dtype) + dtype.type(1000)
    x, y = ops.from_host(values), ops.features(values.shape, dtype)
    scale, shift, mean, var = (ops.from_host(np.full(3, n, dtype)) for n in (1, 0, 0, 0))
    ops.batch_norm(x, scale, shift, mean, var, y, 0.0, True)
    np.testing.assert_allclose(ops.to_host(var), values.astype(np.float64).var(axis=0), rtol=1e-6)


def test_crops_of_what_is_on_the_device(ops: NumpyOps, dtype: Any) -> None:
    random = np.random.default_rng(3)
    pixels, mean, std = random.random((6, 3, 7, 9)), random.random((3, 7, 9)), 1 + random.random((3, 7, 9))
    places = random.integers(0, 3, 6), random.integers(0, 4, 6), random.random(6) < 0.5
    wanted = np.empty((6, 3, 5, 6))
    NumpyOps().crop_mirror_normalize(pixels, *places, mean, std, 0.5, out=wanted)
    within = 1e-5 if dtype == np.float32 else 1e-12
    for records in (pixels.astype(dtype), np.moveaxis(np.moveaxis(pixels, 1, 3).astype(dtype, order="C"), 3, 1)):
        for x in (records, ops.from_host(records)):
            out = ops.features(wanted.shape, dtype)
            ops.crop_mirror_normalize(x, *places, ops.constant(mean), std, 0.5, out=out)
            np.testing.assert_allclose(ops.to_host(out), wanted, rtol=within, atol=within)
