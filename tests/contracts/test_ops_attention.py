"""The contract of the kernels of attention: batched products of strided views, and softmax under a mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps
from tests.contracts.arrays import Array, close, draw, get, put, slopes

# (leading axes, M, K, N)
PRODUCTS = [((3,), 4, 5, 6), ((2, 3), 7, 1, 2), ((1, 1), 1, 1, 1), ((5, 2), 16, 8, 16), ((2, 5), 33, 20, 17)]
ROWS = [(batch, m, k, n) for batch in ((1,), (3,), (3, 1), (2, 3)) for m, k, n in ((1, 5, 6), (1, 1, 2), (5, 6, 1))]


def product(a: Array, b: Array, transpose_a: bool, transpose_b: bool) -> Array:
    a, b = (x.astype(np.float64) for x in (a, b))
    made: Array = np.matmul(a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b)
    return made


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize(("batch", "m", "k", "n"), [*PRODUCTS, *ROWS])
def test_batch_matmul(
    ops: NumpyOps, dtype: Any, random: Any, batch: Any, m: int, k: int, n: int, transpose_a: bool, transpose_b: bool
) -> None:
    a = draw(random, (*batch, *((k, m) if transpose_a else (m, k))), dtype)
    b = draw(random, (*batch, *((n, k) if transpose_b else (k, n))), dtype)
    out, wanted = put(ops, np.full((*batch, m, n), np.nan, dtype)), product(a, b, transpose_a, transpose_b)
    a, b = put(ops, a), put(ops, b)
    ops.batch_matmul(a, b, out, transpose_a, transpose_b)
    close(get(ops, out), wanted)
    ops.batch_matmul(a, b, out, transpose_a, transpose_b, scale=0.3)
    close(get(ops, out), 0.3 * wanted)


@pytest.mark.parametrize(("batch", "m", "k", "n"), ROWS)
def test_products_of_parts_of_larger_arrays(
    ops: NumpyOps, dtype: Any, random: Any, batch: Any, m: int, k: int, n: int
) -> None:
    shapes = [(*batch, m, k), (*batch, k, n), (*batch, m, n)]
    larger = [np.full([2 * size for size in shape], np.nan, dtype) for shape in shapes]
    a, b, y = (array[tuple(map(slice, shape))] for array, shape in zip(larger, shapes, strict=True))
    a[...], b[...] = draw(random, a.shape, dtype), draw(random, b.shape, dtype)
    out = put(ops, y)
    ops.batch_matmul(put(ops, a), put(ops, b), out)
    close(get(ops, out), product(a, b, False, False))


@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_products_of_every_second_value(ops: NumpyOps, dtype: Any, random: Any, batch: Any) -> None:
    shapes = [(*batch, 4, 5), (*batch, 5, 6), (*batch, 4, 6)]
    larger = [draw(random, [2 * size for size in shape], dtype) for shape in shapes]
    a, b, out = (put(ops, array)[(slice(None, None, 2),) * array.ndim] for array in larger)
    ops.batch_matmul(a, b, out)
    close(get(ops, out.copy()), product(get(ops, a.copy()), get(ops, b.copy()), False, False))


def heads(rows: Any, n_heads: int, part: int = 0, n_parts: int = 1) -> Any:
    """Return a view (N, H, T, d) of rows (T, N, n_parts H d)."""
    t, n, width = rows.shape
    d = width // n_parts // n_heads
    return rows[:, :, part * n_heads * d : (part + 1) * n_heads * d].reshape(t, n, n_heads, d).transpose(1, 2, 0, 3)


@pytest.mark.parametrize(("t", "n", "n_heads", "d"), [(5, 3, 2, 4), (1, 1, 1, 1), (9, 2, 6, 8), (33, 1, 3, 5)])
def test_products_of_heads(ops: NumpyOps, dtype: Any, random: Any, t: int, n: int, n_heads: int, d: int) -> None:
    drawn = draw(random, (t, n, 3 * n_heads * d), dtype)
    q, k, v = (heads(drawn.astype(np.float64), n_heads, part, 3) for part in range(3))
    there, of_v = put(ops, drawn), put(ops, np.full((t, n, n_heads * d), np.nan, dtype))
    scores, grads = ops.empty((n, n_heads, t, t), dtype), put(ops, np.full(drawn.shape, np.nan, dtype))
    of_q, of_k, values = (heads(there, n_heads, part, 3) for part in range(3))
    ops.batch_matmul(of_q, of_k, scores, transpose_b=True, scale=0.5)
    wanted = 0.5 * q @ k.swapaxes(-1, -2)
    close(get(ops, scores), wanted)
    ops.batch_matmul(scores, values, heads(of_v, n_heads))
    close(get(ops, of_v), (wanted @ v).transpose(2, 0, 1, 3).reshape(t, n, -1))
    for part in range(3):
        ops.batch_matmul(scores, values, heads(grads, n_heads, part, 3), transpose_a=True)
        found = heads(get(ops, grads), n_heads, part, 3)
        close(found.copy(), wanted.swapaxes(-1, -2) @ v)


def softmax(scores: Array, causal: bool, first: int) -> Array:
    t, s = scores.shape[-2:]
    seen = np.arange(s) <= first + np.arange(t)[:, None] if causal else np.ones((t, s), bool)
    e = np.where(seen, np.exp(scores - scores.max(axis=-1, keepdims=True)), 0)
    p: Array = e / e.sum(axis=-1, keepdims=True)
    return p


@pytest.mark.parametrize(("causal", "first"), [(False, 0), (True, 0), (True, 2), (True, 99)])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (3, 1, 1), (1, 1, 40, 33), (4, 7, 7), (3, 2, 64, 64)])
def test_masked_softmax(ops: NumpyOps, dtype: Any, random: Any, shape: Any, causal: bool, first: int) -> None:
    scores, gy = 3 * draw(random, shape, dtype), draw(random, shape, dtype)
    wanted = softmax(scores.astype(np.float64), causal, first)
    wanted_grad = wanted * (gy - (gy * wanted).sum(axis=-1, keepdims=True))
    x, p = put(ops, scores), ops.empty(shape, dtype)
    ops.masked_softmax(x, p, causal, first)
    close(get(ops, p), wanted)
    gx = ops.empty((int(np.prod(shape[:-1])), shape[-1]), dtype)
    ops.softmax_grad(p.reshape(gx.shape), put(ops, gy).reshape(gx.shape), gx)
    close(get(ops, gx), wanted_grad.reshape(gx.shape))
    ops.masked_softmax(x, x, causal, first)
    close(get(ops, x), wanted)


@pytest.mark.parametrize("causal", [False, True])
def test_masked_softmax_of_strided_scores(ops: NumpyOps, dtype: Any, random: Any, causal: bool) -> None:
    drawn = draw(random, (3, 2, 4, 10), dtype)
    there, out = put(ops, drawn), put(ops, np.zeros(drawn.shape, dtype))
    ops.masked_softmax(there[..., 1::2].transpose(1, 0, 2, 3), out[..., 1::2].transpose(1, 0, 2, 3), causal, 1)
    found = get(ops, out)
    close(found[..., 1::2].copy(), softmax(drawn[..., 1::2].astype(np.float64), causal, 1))
    assert not found[..., ::2].any()


def test_its_gradient_is_that_of_central_differences(ops: NumpyOps, random: Any) -> None:
    scores, gy = draw(random, (2, 3, 4), np.float64), draw(random, (2, 3, 4), np.float64)
    p, gx = ops.empty(scores.shape, np.float64), ops.empty((6, 4), np.float64)
    ops.masked_softmax(put(ops, scores), p, True, 1)
    ops.softmax_grad(p.reshape(6, 4), put(ops, gy).reshape(6, 4), gx)
    wanted = slopes(lambda x: softmax(x, True, 1), scores, gy)
    np.testing.assert_allclose(get(ops, gx), wanted.reshape(6, 4), rtol=1e-7, atol=1e-9)


def test_scores_that_are_hidden_count_for_nothing(ops: NumpyOps, dtype: Any) -> None:
    scores = np.zeros((1, 2, 3), dtype)
    scores[0, 0, 1:] = np.inf, np.nan
    p = ops.empty(scores.shape, dtype)
    ops.masked_softmax(put(ops, scores), p, True)
    close(get(ops, p), np.array([[[1, 0, 0], [0.5, 0.5, 0]]]))
