"""A product with a bias is one launch of cuBLASLt where it can be, a product and an addition elsewhere."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from singa_dask.ops.bfloat16 import BFLOAT16
from tests.backends import backend
from tests.ops.bf16 import WITHIN


@pytest.fixture
def ops() -> Any:
    return backend("cuda:0")


@pytest.fixture
def additions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """List the additions of a bias that are launches of their own; trials are made anew."""
    from singa_dask.ops.cupy import linear

    seen: list[Any] = []

    def noted(kernel: Any) -> Any:
        def add(*arrays: Any) -> None:
            seen.append(arrays)
            kernel(*arrays)

        return add

    for name in ("ADD_BIAS", "ADD_TO_BIASED"):
        monkeypatch.setattr(linear, name, noted(getattr(linear, name)))
    monkeypatch.setattr(linear, "_BIAS_IS_RIGHT", {})
    return seen


def product(ops: Any, kind: Any = np.float32, transpose: bool = False, sizes: Any = (12, 24, 40)) -> Any:
    """Return a product with a bias, and what it is in float64."""
    (m, k, n), random = sizes, np.random.default_rng(3)
    wide = np.float64 if kind == np.float64 else np.float32
    x, w, b = random.normal(size=(m, k)).astype(kind), random.normal(size=(n, k)), random.normal(size=n).astype(wide)
    w = w.astype(kind)
    out = ops.empty((m, n), kind)
    ops.linear(ops.from_host(x), ops.from_host(w.T.copy() if transpose else w), ops.from_host(b), out, transpose)
    return ops.to_host(out), x.astype(np.float64) @ w.astype(np.float64).T + b


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("sizes", [(12, 24, 40), (1, 1, 1), (5, 3, 7), (64, 100, 10)], ids=str)
def test_one_launch(ops: Any, additions: list[Any], sizes: Any, transpose: bool) -> None:
    for _ in range(2):
        made, expected = product(ops, np.float32, transpose, sizes)
        np.testing.assert_allclose(made, expected, atol=1e-5)
    # a library may have nothing for the smallest ones
    assert not additions or min(sizes) < 8


def test_threads_do_not_share_the_memory_of_a_product(ops: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product may be two kernels, between which another thread may enqueue its own on the same stream."""
    from singa_dask.ops.cupy.cublas import BiasedProducts

    rooms, enqueue = [], BiasedProducts.enqueue

    def note(self: BiasedProducts, *given: Any) -> bool:
        rooms.append(given[-2])
        return enqueue(self, *given)

    monkeypatch.setattr(BiasedProducts, "enqueue", note)
    for each in (ops.for_thread(), ops.for_thread()):
        product(each)
    first, second = (room.data.ptr for room in rooms[-2:])
    assert abs(first - second) >= rooms[-1].nbytes


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("kind", [np.float32, BFLOAT16], ids=str)
def test_one_launch_writes_bfloat16(ops: Any, additions: list[Any], kind: Any, transpose: bool) -> None:
    """Weights of either type, and a bias in float32, which is rounded as the weights are."""
    random = np.random.default_rng(3)
    x, more = (random.normal(size=size).astype(BFLOAT16) for size in ((16, 24), (16, 40)))
    w, b = random.normal(size=(40, 24)).astype(BFLOAT16), random.normal(size=40).astype(np.float32)
    arrays = [ops.from_host(each) for each in (x, (w.T.copy() if transpose else w).astype(kind), b)]
    y, sums = (ops.empty(more.shape, BFLOAT16) for _ in range(2))
    for _ in range(2):
        ops.linear(*arrays, y, transpose)
        ops.linear_add(*arrays, ops.from_host(more), sums, transpose)
    wide = x.astype(np.float64) @ w.astype(np.float64).T + b
    for made, expected in ((y, wide), (sums, wide + more.astype(np.float64))):
        within = {"rtol": WITHIN, "atol": WITHIN * np.abs(expected).max()}
        np.testing.assert_allclose(ops.to_host(made).astype(np.float64), expected, **within)
    assert not additions


def test_float64_takes_two(ops: Any, additions: list[Any]) -> None:
    made, expected = product(ops, np.float64)
    np.testing.assert_allclose(made, expected, atol=1e-13)
    assert len(additions) == 1


def test_arrays_that_do_not_begin_at_a_pack(ops: Any) -> None:
    random = np.random.default_rng(3)
    x, w, b = (random.normal(size=size).astype(np.float32) for size in ((6, 9), (11, 9), (11,)))
    there = [ops.empty((array.size + 1,), np.float32)[1:].reshape(array.shape) for array in (x, w, b)]
    for array, copy in zip((x, w, b), there, strict=True):
        ops.copy(array, copy)
    out = ops.zeros((6, 13), np.float32)
    ops.linear(*there, out[:, 1:12])
    np.testing.assert_allclose(ops.to_host(out)[:, 1:12], x @ w.T + b, atol=1e-5)
    assert not ops.to_host(out)[:, [0, 12]].any()


@pytest.mark.parametrize(("kind", "tolerance"), [(np.float32, 1e-5), (BFLOAT16, 0.1)], ids=str)
def test_a_wrong_result_of_the_trial(
    ops: Any,
    additions: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: Any,
    tolerance: float,
) -> None:
    from singa_dask.ops.cupy.cublas import BiasedProducts

    enqueue = BiasedProducts.enqueue

    def without_bias(self: BiasedProducts, handle: int, matrices: Any, bias: Any, *others: Any) -> bool:
        return enqueue(self, handle, matrices, ops.zeros(bias.shape, bias.dtype), *others)

    monkeypatch.setattr(BiasedProducts, "enqueue", without_bias)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            made, expected = product(ops, kind)
            np.testing.assert_allclose(made.astype(np.float64), expected, atol=tolerance)
    assert len(additions) == 2
    assert [record.message for record in caplog.records] == [
        "ops: cuBLASLt's product with a bias gives other values than NumPy; each bias takes a separate launch"
    ]


@pytest.mark.parametrize("why", ["no algorithm", "refused", "no library"])
def test_where_cublaslt_does_not_do_it(
    ops: Any, additions: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    from singa_dask.ops.cupy import cublas

    known = cublas.function

    def function(name: str) -> Any:
        if why == "no library":
            raise AttributeError(f"undefined symbol: {name}")
        refused = "cublasLtMatmulAlgoGetHeuristic" if why == "no algorithm" else "cublasLtMatmul"
        return (lambda *arguments: 15) if name == refused else known(name)

    monkeypatch.setattr(cublas, "function", function)
    ops = ops.for_thread()
    with caplog.at_level(logging.WARNING):
        made, expected = product(ops)
    np.testing.assert_allclose(made, expected, atol=1e-5)
    assert len(additions) == 1
    (record,) = caplog.records
    assert ("undefined symbol" if why == "no library" else "is not there") in record.message


def test_a_captured_product_has_the_same_bits(ops: Any, additions: list[Any]) -> None:
    import cupy

    random = np.random.default_rng(3)
    arrays = [ops.from_host(random.normal(size=size).astype(np.float32)) for size in ((16, 24), (40, 24), (40,))]
    out, again = ops.zeros((16, 40), np.float32), ops.zeros((16, 40), np.float32)
    ops.linear(*arrays, out)
    ops.synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        ops.linear(*arrays, again)
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    assert ops.to_host(again).tobytes() == ops.to_host(out).tobytes()
    assert not additions
