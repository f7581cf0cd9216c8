"""The contract of layer and group normalisation, against formulas in float64 and central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from tests.contracts.arrays import LAYOUTS, Array, blank, close, draw, get, lay, put, slopes

EPS = 1e-3


class Case(NamedTuple):
    """Kernels, and how they see an array: as (N, G, values of a group)."""

    forward: Callable[..., None]
    backward: Callable[..., None]
    groups: int
    moments: tuple[int, ...]


def case(ops: NumpyOps, shape: Any, groups: int) -> Case:
    if len(shape) == 2:
        return Case(ops.layer_norm, ops.layer_norm_grad, 1, (shape[0],))
    return Case(ops.group_norm, ops.group_norm_grad, groups, (shape[0], groups))


def normal(x: Array, groups: int) -> tuple[Array, Array, Array]:
    """Return (x - mean) / sqrt(var + eps), mean and var."""
    rows = x.reshape(len(x), groups, -1)
    mean, var = rows.mean(axis=2, keepdims=True), rows.var(axis=2, keepdims=True)
    return ((rows - mean) / np.sqrt(var + EPS)).reshape(x.shape), mean[..., 0], var[..., 0]


def wide(values: Array, x: Array) -> Array:
    return values[:, None, None] if x.ndim == 4 else values


SHAPES = [
    ((5, 9), 1),
    ((700, 40), 1),
    ((3, 2048), 1),
    ((1, 1), 1),
    ((300, 257), 1),
    ((4, 6, 5, 3), 3),
    ((2, 8, 1, 1), 2),
    ((3, 32, 17, 9), 4),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "groups"), [*SHAPES, ((2, 5, 4, 4), 5), ((2, 5, 4, 4), 1)])
def test_normalisation(ops: NumpyOps, dtype: Any, random: Any, shape: Any, groups: int, layout: str) -> None:
    of, n_channels = case(ops, shape, groups), shape[1]
    x, gy = lay(2 + 3 * draw(random, shape, dtype), layout), lay(draw(random, shape, dtype), layout)
    scale, shift = draw(random, (n_channels,), dtype), draw(random, (n_channels,), dtype)
    u, mean, var = normal(x.astype(np.float64), of.groups)
    g = gy * wide(scale.astype(np.float64), x)
    rows, normals = (values.reshape(len(x), of.groups, -1) for values in (g, u))
    slope = rows - rows.mean(axis=2, keepdims=True) - normals * (rows * normals).mean(axis=2, keepdims=True)
    wanted_gx = (slope / np.sqrt(var + EPS)[..., None]).reshape(shape)
    axes = (0, 2, 3) if len(shape) == 4 else 0
    wanted_scale, wanted_shift = (gy * u).sum(axis=axes), gy.sum(axis=axes, dtype=np.float64)
    wanted = u * wide(scale, x) + wide(shift, x)
    x, gy, scale, shift = (put(ops, array) for array in (x, gy, scale, shift))
    y, gx = (put(ops, blank(shape, dtype, layout)) for _ in range(2))
    moments = [ops.empty(of.moments, dtype) for _ in range(2)]
    of.forward(x, scale, shift, *moments, y, EPS)
    close(get(ops, y), wanted)
    close(get(ops, moments[0]), mean.reshape(of.moments))
    close(get(ops, moments[1]), var.reshape(of.moments))
    grads = [put(ops, np.full(n_channels, np.nan, dtype)) for _ in range(2)]
    for times in (1, 2):
        of.backward(x, gy, scale, *moments, None if times == 2 else gx, *grads, EPS, accumulate=times == 2)
        close(get(ops, grads[0]), times * wanted_scale)
        close(get(ops, grads[1]), times * wanted_shift)
    close(get(ops, gx), wanted_gx)
    if len(shape) == 2:
        ops.layer_norm_grad_add(x, x, gy, scale, *moments, gx, *grads, EPS)
        close(get(ops, gx), wanted_gx + get(ops, x))
        close(get(ops, grads[0]), wanted_scale)
        close(get(ops, grads[1]), wanted_shift)


@pytest.mark.parametrize(("shape", "groups"), [((3, 5), 1), ((2, 4, 2, 2), 2)])
def test_gradients_are_those_of_central_differences(ops: NumpyOps, random: Any, shape: Any, groups: int) -> None:
    of, n_channels = case(ops, shape, groups), shape[1]
    x, gy = draw(random, shape, np.float64), draw(random, shape, np.float64)
    scale, shift = draw(random, (n_channels,), np.float64), draw(random, (n_channels,), np.float64)
    there = [put(ops, array) for array in (x, scale, shift)]
    y, gx = ops.features(shape, np.float64), ops.features(shape, np.float64)
    moments = [ops.empty(of.moments, np.float64) for _ in range(2)]
    grads = [ops.empty((n_channels,), np.float64) for _ in range(2)]
    of.forward(*there, *moments, y, EPS)
    of.backward(there[0], put(ops, gy), there[1], *moments, gx, *grads, EPS)

    def f(x: Array, scale: Array = scale, shift: Array = shift) -> Array:
        return normal(x, of.groups)[0] * wide(scale, x) + wide(shift, x)

    for found, wanted in (
        (gx, slopes(f, x, gy)),
        (grads[0], slopes(lambda values: f(x, values), scale, gy)),
        (grads[1], slopes(lambda values: f(x, scale, values), shift, gy)),
    ):
        np.testing.assert_allclose(get(ops, found), wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shape", [(4, 50), (2, 4, 5, 5)])
def test_values_far_from_zero_keep_their_variance(ops: NumpyOps, random: Any, shape: Any) -> None:
    of = case(ops, shape, 2)
    x = (1000 + draw(random, shape, np.float32)).astype(np.float32)
    y, moments = ops.features(shape, np.float32), [ops.empty(of.moments, np.float32) for _ in range(2)]
    ones, zeros = (put(ops, np.full(shape[1], value, np.float32)) for value in (1, 0))
    of.forward(put(ops, x), ones, zeros, *moments, y, EPS)
    _, _, var = normal(x.astype(np.float64), of.groups)
    np.testing.assert_allclose(get(ops, moments[1]), var.reshape(of.moments), rtol=1e-4)
