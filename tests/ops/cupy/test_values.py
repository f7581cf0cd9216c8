"""Elementwise kernels take 16 bytes a thread where arrays lie alike in memory, with the same values everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.ops.bfloat16 import BFLOAT16
from tests.backends import backend

FLOATS = [np.dtype(np.float32), np.dtype(np.float64), BFLOAT16]
# fewer than a pack, whole packs, and a rest
SIZES = [1, 3, 64, 4099]


@pytest.fixture
def ops() -> Any:
    return backend("cuda:0")


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each kernel that is launched, whether it takes packs."""
    from singa_dask.ops.cupy.value_kernel import ValueKernel

    seen: list[bool] = []
    init = ValueKernel.__init__

    def noting(kernel: Callable[..., None], packs: bool) -> Callable[..., None]:
        def run(*arguments: Any, **options: Any) -> None:
            seen.append(packs)
            kernel(*arguments, **options)

        return run

    class Noted(ValueKernel):
        def __init__(self, *parts: str) -> None:
            init(self, *parts)
            self.single = noting(self.single, False)
            packed = self.packed
            self.packed = lambda *how: noting(packed(*how), True)

    of_elementwise = "singa_dask.ops.cupy.elementwise.CupyElementwise"
    monkeypatch.setattr(f"{of_elementwise}.add", Noted("add", "X x, Y y", "z = (Z)((W)x + (W)y);"))
    monkeypatch.setattr("singa_dask.ops.cupy.linear.ADD_BIAS", Noted("add_bias", "Y y, B b", "z = (Z)((W)y + (W)b);"))
    monkeypatch.setattr("singa_dask.ops.cupy.memory.CAST", Noted("cast", "X x", "z = (Z)x;"))
    return seen


def drawn(shape: tuple[int, ...], dtype: Any, seed: int = 3) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def unaligned(ops: Any, x: Any) -> Any:
    """Return a copy on the device, a value beyond where a pack may begin."""
    there = ops.empty((x.size + 1,), x.dtype)[1:].reshape(x.shape)
    ops.copy(x, there)
    return there


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_packs_and_single_values_agree(ops: Any, launched: list[bool], n: int, dtype: Any) -> None:
    x, y = drawn((n,), dtype), drawn((n,), dtype, 4)
    out, other = ops.zeros((n,), dtype), ops.zeros((n + 1,), dtype)[1:]
    ops.add(ops.from_host(x), ops.from_host(y), out)
    ops.add(unaligned(ops, x), ops.from_host(y), other)
    assert launched == [True, False]
    expected = (x.astype(np.float64) + y.astype(np.float64)).astype(np.float32).astype(dtype)
    if dtype == np.float64:
        expected = x + y
    np.testing.assert_array_equal(ops.to_host(out), expected)
    np.testing.assert_array_equal(ops.to_host(other), expected)


@pytest.mark.parametrize("n", SIZES)
def test_nothing_beyond_the_end_is_written(ops: Any, n: int) -> None:
    whole = ops.zeros((n + 16,), np.float32)
    ops.add(ops.from_host(np.ones(n, np.float32)), ops.from_host(np.ones(n, np.float32)), whole[:n])
    np.testing.assert_array_equal(ops.to_host(whole), np.repeat(np.float32([2, 0]), [n, 16]))


@pytest.mark.parametrize(("given", "written"), [("f4", BFLOAT16), (BFLOAT16, "f4"), ("f8", "f4")], ids=str)
def test_casts_of_transposed_matrices_take_packs(ops: Any, launched: list[bool], given: Any, written: Any) -> None:
    w = drawn((24, 40), given)
    there, out = ops.from_host(w), ops.empty((24, 40), written)
    ops.copy(there.T, out.T)
    assert launched == [True]
    np.testing.assert_array_equal(ops.to_host(out), w.astype(np.float32).astype(written))
    # to another order of the axes, and from every other column
    turned, rest = ops.empty((40, 24), written), ops.empty((24, 20), written)
    ops.copy(there.T, turned)
    ops.copy(there[:, ::2], rest)
    assert launched == [True, False, False]
    np.testing.assert_array_equal(ops.to_host(turned), w.T.astype(np.float32).astype(written))
    np.testing.assert_array_equal(ops.to_host(rest), w[:, ::2].astype(np.float32).astype(written))


@pytest.mark.parametrize("shape", [(5, 6, 7), (2, 8, 3, 4), (3, 4, 5, 2, 2)])
def test_any_order_of_axes(ops: Any, launched: list[bool], shape: tuple[int, ...]) -> None:
    x, y = drawn(shape, np.float32), drawn(shape, np.float32, 4)
    for axes in (tuple(range(len(shape)))[::-1], (*range(1, len(shape)), 0)):
        inverse = tuple(np.argsort(axes))
        out = ops.empty(tuple(shape[axis] for axis in axes), np.float32).transpose(inverse)
        left, right = ops.empty(out.shape, np.float32), ops.from_host(np.ascontiguousarray(y.transpose(axes)))
        ops.copy(x, left)
        ops.add(left, right.transpose(inverse), out)
        np.testing.assert_array_equal(ops.to_host(out), x + y)
        ops.add(right.transpose(inverse), right.transpose(inverse), out)
        np.testing.assert_array_equal(ops.to_host(out), y + y)
    assert launched == [False, True] * 2


@pytest.mark.parametrize("n_columns", [3, 40])
@pytest.mark.parametrize(("kind", "bias"), [("f4", "f4"), ("f8", "f8"), (BFLOAT16, "f4")], ids=str)
def test_a_bias_repeats_along_packs(ops: Any, launched: list[bool], kind: Any, bias: Any, n_columns: int) -> None:
    from singa_dask.ops.cupy import linear

    y, b = drawn((6, n_columns), kind), drawn((n_columns,), bias)
    there = ops.from_host(y)
    linear.ADD_BIAS(there, ops.from_host(b), there)
    assert launched == [n_columns == 40]
    wide = np.float64 if kind == "f8" else np.float32
    np.testing.assert_array_equal(ops.to_host(there), (y.astype(wide) + b).astype(kind))


def test_divisors() -> None:
    from singa_dask.ops.cupy.launch import divisor

    random, most = np.random.default_rng(3), 2**31 - 1
    for d in [*range(1, 300), *random.integers(1, most, 300).tolist(), 1 << 30, (1 << 30) + 1, most]:
        factor, shift = divmod(int(divisor(d)), 256)
        quotients = random.integers(0, most // d + 1, 20).tolist()
        numbers = {0, most, *(n for q in quotients for n in (q * d - 1, q * d, q * d + d - 1) if 0 <= n <= most)}
        # a product of 64 bits in the kernel
        assert factor < 1 << 32
        assert {n: n * factor >> shift for n in numbers} == {n: n // d for n in numbers}


def test_arguments_by_name(ops: Any) -> None:
    x, y = (ops.from_host(drawn((3, 4), np.float32, seed)) for seed in (1, 2))
    out = ops.empty((3, 4), np.float32)
    ops.subtract(out=out, y=y, x=x)
    np.testing.assert_array_equal(ops.to_host(out), ops.to_host(x) - ops.to_host(y))
    with pytest.raises(TypeError, match=r"^subtract: expected y, out, got z$"):
        ops.subtract(x, z=y)
