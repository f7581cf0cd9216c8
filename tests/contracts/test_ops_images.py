"""The contract of the kernels on images: each against loops over places in float64, for every backend and layout."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from singa_dask.ops.contract import ConvWindow, Running
from tests.contracts.arrays import LAYOUTS, blank, close, draw, get, lay, put

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]

# (N, C, H, W), filters, kernel, stride, pad
CONVOLUTIONS = [
    ((1, 1, 5, 5), 1, (1, 1), (1, 1), (0, 0)),
    ((2, 3, 7, 6), 4, (3, 3), (1, 1), (1, 1)),
    ((3, 2, 9, 8), 5, (5, 3), (2, 1), (2, 0)),
    ((2, 4, 8, 9), 3, (2, 5), (3, 2), (0, 2)),
    ((1, 3, 16, 16), 32, (5, 5), (1, 1), (2, 2)),
    ((2, 3, 11, 11), 8, (3, 3), (4, 4), (0, 0)),
    ((5, 17, 6, 5), 19, (3, 2), (1, 1), (1, 1)),
    ((2, 3, 4, 5), 6, (4, 5), (1, 1), (0, 0)),
    ((1, 2, 3, 3), 2, (2, 2), (1, 1), (3, 3)),
    ((6, 16, 12, 12), 7, (5, 5), (1, 1), (2, 2)),
]
# (N, C, H, W), filters, kernel, stride, pad, dilation, groups
GROUPED = [
    ((2, 4, 9, 8), 6, (3, 3), (1, 1), (2, 2), (2, 2), 1),
    ((2, 3, 11, 9), 4, (3, 2), (2, 3), (1, 0), (3, 2), 1),
    ((3, 4, 7, 6), 6, (3, 3), (1, 1), (1, 1), (1, 1), 2),
    ((2, 6, 8, 7), 6, (3, 3), (1, 1), (1, 1), (1, 1), 6),
    ((2, 16, 9, 9), 32, (5, 5), (2, 2), (2, 2), (1, 1), 16),
    ((1, 6, 10, 9), 9, (2, 3), (1, 2), (0, 4), (2, 3), 3),
]
# (N, C, H, W), kernel, stride, pad
POOLS = [
    ((1, 1, 4, 4), (2, 2), (2, 2), (0, 0)),
    ((2, 3, 7, 6), (3, 3), (2, 2), (0, 0)),
    ((3, 5, 9, 8), (3, 2), (2, 3), (1, 1)),
    ((2, 32, 16, 16), (3, 3), (2, 2), (1, 1)),
    ((1, 17, 5, 7), (5, 7), (1, 1), (0, 0)),
    ((2, 2, 8, 8), (2, 2), (3, 3), (0, 0)),
    ((4, 3, 6, 6), (4, 3), (1, 2), (3, 2)),
    ((1, 2, 20, 20), (17, 17), (1, 1), (8, 8)),
]
# (N, C, H, W), size, alpha, beta, knorm
LRNS = [
    ((2, 8, 3, 4), 3, 5e-5, 0.75, 1.0),
    ((1, 1, 2, 2), 5, 1.0, 0.75, 1.0),
    ((3, 5, 4, 1), 5, 0.7, 0.5, 2.0),
    ((2, 3, 2, 5), 9, 2.0, 1.3, 0.5),
    ((2, 32, 8, 8), 3, 1e-2, 0.75, 1.0),
    ((1, 4, 3, 3), 1, 1.0, 0.75, 1.0),
]


def output_shape(shape: Any, channels: int, kernel: Pair, stride: Pair, pad: Pair) -> tuple[int, ...]:
    sizes = ((n + 2 * p - k) // s + 1 for n, k, s, p in zip(shape[2:], kernel, stride, pad, strict=True))
    return (shape[0], channels, *sizes)


def padded(x: Array, pad: Pair, value: float = 0.0) -> Array:
    edges = ((0, 0), (0, 0), (pad[0], pad[0]), (pad[1], pad[1]))
    return np.pad(x.astype(np.float64), edges, constant_values=value)


def offsets(kernel: Pair, stride: Pair, sizes: Any) -> Iterator[tuple[int, int, Any]]:
    """Yield each place of a kernel, and the pixels of padded images that it meets."""
    for k, m in np.ndindex(*kernel):
        rows = slice(k, k + stride[0] * (sizes[0] - 1) + 1, stride[0])
        columns = slice(m, m + stride[1] * (sizes[1] - 1) + 1, stride[1])
        yield k, m, (slice(None), slice(None), rows, columns)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "filters", "kernel", "stride", "pad"), CONVOLUTIONS)
def test_convolution(
    ops: NumpyOps, dtype: Any, random: Any, layout: str, shape: Any, filters: int, kernel: Pair, stride: Pair, pad: Pair
) -> None:
    x = lay(draw(random, shape, dtype), layout)
    w, b = draw(random, (filters, shape[1] * kernel[0] * kernel[1]), dtype), draw(random, (filters,), dtype)
    w = w.reshape(filters, shape[1], *kernel)
    gy = lay(draw(random, output_shape(shape, filters, kernel, stride, pad), dtype), layout)
    source, wanted = padded(x, pad), np.zeros(gy.shape)
    wanted_x, wanted_w, wanted_b = np.zeros(source.shape), np.zeros(w.shape), gy.sum(axis=(0, 2, 3), dtype=np.float64)
    wide_w, wide_g = w.astype(np.float64), gy.astype(np.float64)
    for k, m, pixels in offsets(kernel, stride, gy.shape[2:]):
        wanted += np.einsum("nchw,fc->nfhw", source[pixels], wide_w[:, :, k, m], optimize=True)
        wanted_x[pixels] += np.einsum("nfhw,fc->nchw", wide_g, wide_w[:, :, k, m], optimize=True)
        wanted_w[:, :, k, m] = np.einsum("nfhw,nchw->fc", wide_g, source[pixels], optimize=True)
    wanted_y = wanted + b[:, None, None]

    y, gx = put(ops, blank(gy.shape, dtype, layout)), put(ops, blank(shape, dtype, layout))
    x, w, b, gy, gw, gb = (put(ops, one) for one in (x, w, b, gy, np.empty_like(w), np.empty_like(b)))
    for _ in range(2):  # the second call meets what the first one kept
        ops.conv2d(x, w, b, y, ConvWindow(stride, pad))
        close(get(ops, y), wanted_y)
    for bias, values in ((b, wanted_y), (None, wanted)):
        ops.conv2d(x, w, bias, y, ConvWindow(stride, pad), relu=True)
        close(get(ops, y), np.maximum(values, 0))
    ops.conv2d(x, w, None, y, ConvWindow(stride, pad))
    close(get(ops, y), wanted)
    ops.conv2d_grad_input(gy, w, gx, ConvWindow(stride, pad))
    close(get(ops, gx), wanted_x[:, :, pad[0] : pad[0] + shape[2], pad[1] : pad[1] + shape[3]])
    ops.conv2d_grad_weight(x, gy, gw, gb, ConvWindow(stride, pad))
    close(get(ops, gw), wanted_w)
    close(get(ops, gb), wanted_b)
    ops.conv2d_grad_weight(x, gy, gw, gb, ConvWindow(stride, pad), accumulate=True)
    close(get(ops, gw), 2 * wanted_w)
    close(get(ops, gb), 2 * wanted_b)
    ops.conv2d_grad_weight(x, gy, gw, None, ConvWindow(stride, pad))
    close(get(ops, gw), wanted_w)
    close(get(ops, gb), 2 * wanted_b)
    ops.conv2d_grad_weight(x, gy, gw, None, ConvWindow(stride, pad), accumulate=True)
    close(get(ops, gw), 2 * wanted_w)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "filters", "kernel", "stride", "pad", "dilation", "groups"), GROUPED)
def test_groups_and_dilation(
    ops: NumpyOps,
    dtype: Any,
    random: Any,
    layout: str,
    shape: Any,
    filters: int,
    kernel: Pair,
    stride: Pair,
    pad: Pair,
    dilation: Pair,
    groups: int,
) -> None:
    reach = ((kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1)
    n_channels, n_filters = shape[1] // groups, filters // groups
    x, w, b = (draw(random, each, dtype) for each in (shape, (filters, n_channels, *kernel), (filters,)))
    gy = draw(random, output_shape(shape, filters, reach, stride, pad), dtype)
    # the same as one group of a large kernel with zeros where the groups and the dilation have none
    whole = np.zeros((filters, shape[1], *reach))
    parts = [
        (slice(g * n_filters, (g + 1) * n_filters), slice(g * n_channels, (g + 1) * n_channels)) for g in range(groups)
    ]
    for rows, columns in parts:
        whole[rows, columns, :: dilation[0], :: dilation[1]] = w[rows]
    source, wanted = padded(x, pad), np.zeros(gy.shape)
    wanted_x, wanted_whole = np.zeros(source.shape), np.zeros(whole.shape)
    for k, m, pixels in offsets(reach, stride, gy.shape[2:]):
        wanted += np.einsum("nchw,fc->nfhw", source[pixels], whole[:, :, k, m], optimize=True)
        wanted_x[pixels] += np.einsum("nfhw,fc->nchw", gy.astype(np.float64), whole[:, :, k, m], optimize=True)
        wanted_whole[:, :, k, m] = np.einsum("nfhw,nchw->fc", gy.astype(np.float64), source[pixels], optimize=True)
    wanted_w = np.concatenate([wanted_whole[r, c, :: dilation[0], :: dilation[1]] for r, c in parts])
    wanted_x = wanted_x[:, :, pad[0] : pad[0] + shape[2], pad[1] : pad[1] + shape[3]]

    y, gx = put(ops, blank(gy.shape, dtype, layout)), put(ops, blank(shape, dtype, layout))
    x, gy = lay(x, layout), lay(gy, layout)
    sums = gy.sum(axis=(0, 2, 3), dtype=np.float64)
    x, w, b, gy, gw, gb = (put(ops, one) for one in (x, w, b, gy, np.empty_like(w), np.empty_like(b)))
    for relu in (False, True):
        ops.conv2d(x, w, b, y, ConvWindow(stride, pad, dilation, groups), relu)
        biased = wanted + get(ops, b)[:, None, None]
        close(get(ops, y), np.maximum(biased, 0) if relu else biased)
    ops.conv2d_grad_input(gy, w, gx, ConvWindow(stride, pad, dilation, groups))
    close(get(ops, gx), wanted_x)
    for times, accumulate in ((1, False), (2, True)):
        ops.conv2d_grad_weight(x, gy, gw, gb, ConvWindow(stride, pad, dilation, groups), accumulate)
        close(get(ops, gw), times * wanted_w)
        close(get(ops, gb), times * sums)


def test_weights_that_change_between_calls(ops: NumpyOps, dtype: Any, random: Any) -> None:
    x, w = put(ops, lay(draw(random, (2, 3, 6, 6), dtype), "features")), put(ops, draw(random, (4, 3, 3, 3), dtype))
    y, gx = put(ops, blank((2, 4, 4, 4), dtype, "features")), put(ops, blank((2, 3, 6, 6), dtype, "features"))
    ops.conv2d(x, w, None, y, ConvWindow((1, 1), (0, 0)))
    first = get(ops, y).copy()
    w *= 2
    ops.conv2d(x, w, None, y, ConvWindow((1, 1), (0, 0)))
    close(get(ops, y), 2.0 * first)
    ops.conv2d_grad_input(y, w, gx, ConvWindow((1, 1), (0, 0)))
    first = get(ops, gx).copy()
    w *= 2
    ops.conv2d_grad_input(y, w, gx, ConvWindow((1, 1), (0, 0)))
    close(get(ops, gx), 2.0 * first)


def test_other_batches_and_other_memory_between_calls(ops: NumpyOps, dtype: Any, random: Any) -> None:
    w = put(ops, draw(random, (4, 3, 3, 3), dtype))
    x = lay(draw(random, (5, 3, 6, 6), dtype), "features")
    y = put(ops, blank((5, 4, 4, 4), dtype, "features"))
    ops.conv2d(put(ops, x), w, None, y, ConvWindow((1, 1), (0, 0)))
    whole = get(ops, y).astype(np.float64)
    for rows, layout in ((slice(0, 2), "plain"), (slice(2, 5), "features"), (slice(4, 5), "features")):
        y = put(ops, blank(whole[rows].shape, dtype, "features"))
        ops.conv2d(put(ops, lay(x[rows], layout)), w, None, y, ConvWindow((1, 1), (0, 0)))
        close(get(ops, y), whole[rows])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("shape", "kernel", "stride", "pad"), POOLS)
def test_max_pool(
    ops: NumpyOps, dtype: Any, random: Any, layout: str, ties: bool, shape: Any, kernel: Pair, stride: Pair, pad: Pair
) -> None:
    drawn = random.integers(-2, 1, shape).astype(dtype) if ties else draw(random, shape, dtype) - 3
    x = lay(drawn, layout)
    out_shape = output_shape(shape, shape[1], kernel, stride, pad)
    gy = lay(draw(random, out_shape, dtype), layout)
    source, wanted, wanted_x = padded(x, pad, -np.inf), np.empty(out_shape), padded(np.zeros(shape), pad)
    places = np.empty(out_shape, int)
    n, c = np.ogrid[: shape[0], : shape[1]]
    for i, j in np.ndindex(*out_shape[2:]):
        window = source[:, :, i * stride[0] :, j * stride[1] :][:, :, : kernel[0], : kernel[1]]
        places[:, :, i, j] = place = window.reshape(*shape[:2], -1).argmax(axis=2)
        k, m = place // kernel[1], place % kernel[1]
        wanted[:, :, i, j] = window[n, c, k, m]
        wanted_x[n, c, i * stride[0] + k, j * stride[1] + m] += gy[:, :, i, j]

    y, gx = put(ops, blank(out_shape, dtype, layout)), put(ops, blank(shape, dtype, layout))
    x, gy, where = put(ops, x), put(ops, gy), ops.features(out_shape, ops.place_dtype(kernel))
    assert where.dtype == (np.uint8 if kernel[0] * kernel[1] <= 256 else np.int32)
    for _ in range(2):
        ops.max_pool(x, y, where, kernel, stride, pad)
        np.testing.assert_array_equal(get(ops, y), wanted)
        np.testing.assert_array_equal(get(ops, where), places)
        ops.max_pool_grad(gy, where, gx, kernel, stride, pad)
        close(get(ops, gx), wanted_x[:, :, pad[0] : pad[0] + shape[2], pad[1] : pad[1] + shape[3]])
    y[...] = np.nan
    ops.max_pool(x, y, None, kernel, stride, pad)
    np.testing.assert_array_equal(get(ops, y), wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "kernel", "stride", "pad"), POOLS)
def test_the_gradient_of_all_ties(
    ops: NumpyOps, dtype: Any, random: Any, layout: str, shape: Any, kernel: Pair, stride: Pair, pad: Pair
) -> None:
    x = lay(random.integers(-2, 1, shape).astype(dtype), layout)
    out_shape = output_shape(shape, shape[1], kernel, stride, pad)
    gy = lay(draw(random, out_shape, dtype), layout)
    source, wanted = padded(x, pad, -np.inf), padded(np.zeros(shape), pad)
    for i, j in np.ndindex(*out_shape[2:]):
        part = np.s_[:, :, i * stride[0] : i * stride[0] + kernel[0], j * stride[1] : j * stride[1] + kernel[1]]
        largest = source[part].max(axis=(2, 3), keepdims=True)
        wanted[part] += (source[part] == largest) * gy[:, :, i : i + 1, j : j + 1]
    y, gx = put(ops, blank(out_shape, dtype, layout)), put(ops, blank(shape, dtype, layout))
    x, gy = put(ops, x), put(ops, gy)
    ops.max_pool(x, y, None, kernel, stride, pad)
    ops.max_pool_grad_ties(x, y, gy, gx, kernel, stride, pad)
    close(get(ops, gx), wanted[:, :, pad[0] : pad[0] + shape[2], pad[1] : pad[1] + shape[3]])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count_pad", [True, False])
@pytest.mark.parametrize(("shape", "kernel", "stride", "pad"), POOLS)
def test_avg_pool(
    ops: NumpyOps,
    dtype: Any,
    random: Any,
    layout: str,
    count_pad: bool,
    shape: Any,
    kernel: Pair,
    stride: Pair,
    pad: Pair,
) -> None:
    x = lay(draw(random, shape, dtype), layout)
    out_shape = output_shape(shape, shape[1], kernel, stride, pad)
    gy = lay(draw(random, out_shape, dtype), layout)
    source, inside, wanted_x = padded(x, pad), padded(np.ones(shape), pad), padded(np.zeros(shape), pad)
    wanted = np.empty(out_shape)
    for i, j in np.ndindex(*out_shape[2:]):
        rows = slice(i * stride[0], i * stride[0] + kernel[0])
        columns = slice(j * stride[1], j * stride[1] + kernel[1])
        count = kernel[0] * kernel[1] if count_pad else inside[0, 0, rows, columns].sum()
        wanted[:, :, i, j] = source[:, :, rows, columns].sum(axis=(2, 3)) / count
        wanted_x[:, :, rows, columns] += (gy[:, :, i, j] / count)[:, :, None, None]

    y, gx = put(ops, blank(out_shape, dtype, layout)), put(ops, blank(shape, dtype, layout))
    x, gy = put(ops, x), put(ops, gy)
    for _ in range(2):
        ops.avg_pool(x, y, kernel, stride, pad, count_pad)
        close(get(ops, y), wanted)
        ops.avg_pool_grad(gy, gx, kernel, stride, pad, count_pad)
        wanted_gx = wanted_x[:, :, pad[0] : pad[0] + shape[2], pad[1] : pad[1] + shape[3]]
        close(get(ops, gx), wanted_gx)
        ops.avg_pool_relu_grad(x, gy, gx, kernel, stride, pad, count_pad)
        close(get(ops, gx), np.where(get(ops, x) > 0, wanted_gx, 0))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 1, 1, 1), (3, 70, 9, 2), (5, 32, 8, 8)])
def test_global_avg_pool(ops: NumpyOps, dtype: Any, random: Any, shape: Any, layout: str) -> None:
    x, gy = lay(draw(random, shape, dtype), layout), draw(random, shape[:2], dtype)
    wanted, share = x.mean(axis=(2, 3), dtype=np.float64), gy.astype(np.float64)[:, :, None, None] / x[0, 0].size
    y, gx = put(ops, np.full(shape[:2], np.nan, dtype)), put(ops, blank(shape, dtype, layout))
    ops.global_avg_pool(put(ops, x), y)
    close(get(ops, y), wanted)
    ops.global_avg_pool_grad(put(ops, gy), gx)
    close(get(ops, gx), np.broadcast_to(share, shape))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "size", "alpha", "beta", "knorm"), LRNS)
def test_lrn(
    ops: NumpyOps,
    dtype: Any,
    random: Any,
    layout: str,
    shape: Any,
    size: int,
    alpha: float,
    beta: float,
    knorm: float,
) -> None:
    how = (size, alpha, beta, knorm)
    x, gy = lay(draw(random, shape, dtype), layout), lay(draw(random, shape, dtype), layout)
    wide, g, channels = x.astype(np.float64), gy.astype(np.float64), np.arange(shape[1])
    near = (abs(channels[:, None] - channels) <= size // 2).astype(float)  # who is whose neighbour
    sums = knorm + alpha / size * np.einsum("cd,ndhw->nchw", near, wide**2)
    inner = np.einsum("cd,ndhw->nchw", near, g * wide * sums ** (-beta - 1))
    wanted, wanted_x = wide * sums**-beta, g * sums**-beta - 2 * beta * alpha / size * wide * inner

    y, gx = put(ops, blank(shape, dtype, layout)), put(ops, blank(shape, dtype, layout))
    x, gy, work = put(ops, x), put(ops, gy), ops.lrn_memory(shape, dtype, *how)
    for _ in range(2):
        ops.lrn(x, y, work, *how)
        close(get(ops, y), wanted)
        ops.lrn_grad(x, gy, gx, work, *how)
        close(get(ops, gx), wanted_x)
    y[...] = np.nan
    ops.lrn(x, y, None, *how)
    close(get(ops, y), wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(4, 3, 5, 6), (1, 2, 3, 3), (9, 1, 1, 2), (6, 33, 8, 7), (5, 7), (64, 1)])
def test_batch_norm(ops: NumpyOps, dtype: Any, random: Any, layout: str, shape: Any) -> None:
    eps, axes, c = 1e-3, tuple(i for i in range(len(shape)) if i != 1), shape[1]
    x, gy = lay(3 * draw(random, shape, dtype) + 1, layout), lay(draw(random, shape, dtype), layout)
    scale, shift = draw(random, (c,), dtype), draw(random, (c,), dtype)
    over = (slice(None), *(None,) * (len(shape) - 2))  # how values of channels meet x
    wide, g = x.astype(np.float64), gy.astype(np.float64)
    wanted_mean, wanted_var = wide.mean(axis=axes), wide.var(axis=axes)
    normal = (wide - wanted_mean[over]) / np.sqrt(wanted_var + eps)[over]
    count = x.size / c
    wanted_shift, wanted_scale = g.sum(axis=axes), (g * normal).sum(axis=axes)
    wanted_x = (scale / np.sqrt(wanted_var + eps))[over] * (
        g - wanted_shift[over] / count - normal * wanted_scale[over] / count
    )

    wanted_y = scale[over] * normal + shift[over]
    known_mean, known_var = draw(random, (c,), dtype), draw(random, (c,), dtype) ** 2
    wanted_known = scale[over] * (wide - known_mean[over]) / np.sqrt(known_var + eps)[over] + shift[over]

    y, gx = put(ops, blank(shape, dtype, layout)), put(ops, blank(shape, dtype, layout))
    x, gy, scale, shift = (put(ops, one) for one in (x, gy, scale, shift))
    mean, var, grad_scale, grad_shift = (put(ops, np.full(c, np.nan, dtype)) for _ in range(4))
    for _ in range(2):
        ops.batch_norm(x, scale, shift, mean, var, y, eps, True)
        close(get(ops, mean), wanted_mean)
        close(get(ops, var), wanted_var)
        close(get(ops, y), wanted_y)
        ops.batch_norm_grad(x, gy, scale, mean, var, gx, grad_scale, grad_shift, eps)
        close(get(ops, gx), wanted_x)
        close(get(ops, grad_scale), wanted_scale)
        close(get(ops, grad_shift), wanted_shift)
    grad_scale[...] = grad_shift[...] = np.nan
    ops.batch_norm_grad(x, gy, scale, mean, var, None, grad_scale, grad_shift, eps)
    close(get(ops, grad_scale), wanted_scale)
    close(get(ops, grad_shift), wanted_shift)
    mean, var = put(ops, known_mean.copy()), put(ops, known_var.copy())
    ops.batch_norm(x, scale, shift, mean, var, y, eps, False)
    close(get(ops, y), wanted_known)
    np.testing.assert_array_equal((get(ops, mean), get(ops, var)), (known_mean, known_var))


@pytest.mark.parametrize("has_work", [False, True])
@pytest.mark.parametrize("shape", [(4, 3, 5, 6), (3, 16, 5, 7), (300, 40)])
def test_a_relu_and_running_statistics_of_batch_norm(
    ops: NumpyOps, dtype: Any, random: Any, shape: Any, has_work: bool
) -> None:
    """As the kernels of their own compute them."""
    c, eps = shape[1], 1e-3
    x, gy = (put(ops, lay(draw(random, shape, dtype), LAYOUTS[0])) for _ in range(2))
    scale, shift, mean, var, grad_scale, grad_shift = (put(ops, draw(random, (c,), dtype)) for _ in range(6))
    wanted_y, y, wanted_gx, gx = (put(ops, blank(shape, dtype, LAYOUTS[0])) for _ in range(4))
    running, grads = ([draw(random, (c,), dtype) for _ in range(2)] for _ in range(2))
    statistics = Running(*(put(ops, values) for values in (*running, *grads)), 0.25)
    ops.batch_norm(x, scale, shift, mean, var, wanted_y, eps, True)
    ops.relu(wanted_y, wanted_y)
    work = put(ops, np.zeros(-(-math.prod(shape) // 8), np.uint8)) if has_work else None
    ops.batch_norm(x, scale, shift, mean, var, y, eps, True, relu=True, work=work)
    np.testing.assert_array_equal(get(ops, y), get(ops, wanted_y))
    masked = put(ops, lay(get(ops, gy) * (get(ops, y) > 0), LAYOUTS[0]))
    ops.batch_norm_grad(x, masked, scale, mean, var, wanted_gx, grad_scale, grad_shift, eps)
    wanted = [get(ops, values).copy() for values in (wanted_gx, grad_scale, grad_shift)]
    ops.batch_norm_grad(x, gy, scale, mean, var, gx, grad_scale, grad_shift, eps, statistics, y, work)
    for values, those in zip((gx, grad_scale, grad_shift), wanted, strict=True):
        np.testing.assert_array_equal(get(ops, values), those)
    for grad, before, of_batch in zip(statistics[2:4], running, (mean, var), strict=True):
        close(get(ops, grad), 0.25 * (before.astype(np.float64) - get(ops, of_batch)))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 1, 1, 1), (3, 7), (4,), (2, 3, 4)])
def test_memory_of_features(ops: NumpyOps, dtype: Any, shape: Any) -> None:
    made = ops.features(shape, dtype)
    assert made.shape == shape and made.dtype == dtype and not get(ops, made).any()
    assert (made.transpose(0, 2, 3, 1) if len(shape) == 4 else made).flags.c_contiguous
