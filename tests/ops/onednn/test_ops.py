"""OneDnnOps beyond the contract of the kernels: prepared calls, kernels of NumPy, threads, processes, no library."""

from __future__ import annotations

import gc
import importlib.metadata
import logging
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl

from singa_dask.errors import ConfigError
from singa_dask.ops import NumpyOps, OneDnnOps, get_ops
from singa_dask.ops.bfloat16 import BFLOAT16
from singa_dask.ops.contract import ConvWindow
from singa_dask.ops.onednn import library
from singa_dask.ops.onednn.library import OneDnnError

Array = np.ndarray[Any, Any]

needs_library = pytest.mark.skipif(library.find_library() is None, reason="oneDNN is not installed")


def images(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 3) -> Array:
    made: Array = NumpyOps().features(shape, dtype)
    made[...] = np.random.default_rng(seed).normal(size=shape)
    return made


def convolve(ops: NumpyOps, n: int = 4, dtype: Any = np.float32) -> Array:
    """Return a convolution that several threads have work in."""
    x, y = images((n, 16, 16, 16), dtype), images((n, 32, 16, 16), dtype)
    w = np.random.default_rng(5).normal(size=(32, 16, 5, 5)).astype(dtype)
    ops.conv2d(x, w, None, y, ConvWindow((1, 1), (2, 2)))
    gw = np.empty_like(w)
    ops.conv2d_grad_weight(x, y, gw, None, ConvWindow((1, 1), (2, 2)))
    return np.concatenate([y.ravel(), gw.ravel()])


@needs_library
def test_a_call_is_prepared_once_for_a_shape_a_layout_and_a_type() -> None:
    ops = OneDnnOps()
    x, out = images((2, 4, 6, 6)), images((2, 4, 6, 6))
    ops.relu(x, out)
    ops.relu(out, x)  # other memory alike
    assert len(ops._calls) == 1
    ops.relu(x[:1], out[:1])
    ops.relu(x, out, negative_slope=0.5)
    assert len(ops._calls) == 3


@needs_library
def test_a_call_follows_its_arrays() -> None:
    ops, random = OneDnnOps(), np.random.default_rng(1)
    w, b = random.normal(size=(5, 7)).astype("f"), random.normal(size=5).astype("f")
    x = y = None
    for n in (4, 4, 6, 3, 6, 4):  # of several sizes, so that one comes where another one was
        del x, y
        x, y = random.normal(size=(n, 7)).astype("f"), np.empty((n, 5), "f")
        ops.linear(x, w, b, y)
        np.testing.assert_allclose(y, x @ w.T + b, rtol=1e-5, atol=1e-5)


@needs_library
def test_a_bound_softmax_follows_its_values_and_keeps_nan() -> None:
    ops = OneDnnOps()
    x, out = np.float32([[1, 2, 4], [0, 0, 0]]), np.empty((2, 3), np.float32)
    ops.softmax(x, out)
    bound = ops.bound("softmax", x, out=out)
    x[0] = [3, 3, 3]
    bound()
    np.testing.assert_allclose(out, np.full((2, 3), 1 / 3), rtol=1e-6)
    x[0, 1] = np.nan
    bound()
    assert np.isnan(out).tolist() == [[True] * 3, [False] * 3]


@needs_library
def test_a_softmax_in_place_with_nan_in_one_row_leaves_other_rows_right() -> None:
    ops = OneDnnOps()
    for dtype in (np.float32, BFLOAT16):
        x = np.array([[0, np.log(3)], [1, np.nan]], dtype)
        bound = x.copy()
        ops.softmax(x, out=x)
        ops.bound("softmax", bound, out=bound)()
        for y in (x, bound):
            np.testing.assert_allclose(y.astype(float), [[0.25, 0.75], [np.nan] * 2], rtol=1e-2)


@needs_library
def test_strides_backwards_and_overlapping() -> None:
    ops = OneDnnOps()
    for x in (images((3, 4, 6, 6))[:, :, ::-1], np.broadcast_to(images((3, 4, 6, 1)), (3, 4, 6, 6))):
        y = images((3, 4, 6, 6))[::-1]
        ops.avg_pool(x, y, (1, 1), (1, 1), (0, 0), True)
        np.testing.assert_array_equal(y, x)
        gw = np.zeros((4, 4, 1, 1), "f")
        for times in (1, 2):
            ops.conv2d_grad_weight(x, y, gw[::-1], None, ConvWindow((1, 1), (0, 0)), accumulate=True)
            wanted = np.einsum("nfhw,nchw->fc", y, x)[::-1]
            np.testing.assert_allclose(gw[:, :, 0, 0], times * wanted, rtol=1e-5, atol=1e-4)


@needs_library
def test_what_numpy_does_instead_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    ops = OneDnnOps()
    with caplog.at_level(logging.INFO):
        for n in (1, 2, 3):
            actual = convolve(ops, n, np.float64)
            np.testing.assert_array_equal(actual, convolve(NumpyOps(), n, np.float64))
    assert [record.getMessage().split(" is computed by NumPy")[0] for record in caplog.records] == [
        "ops: conv2d",
        "ops: conv2d_grad_weight",
    ]


@needs_library
@pytest.mark.parametrize("how", [(1, 1.0, 0.75, 1.0), (7, 1.0, 0.75, 1.0), (3, 1.0, 0.6, 1.0)])
def test_normalisations_that_onednn_gets_wrong_or_does_slowly_are_numpys(how: Any) -> None:
    ops, plain = OneDnnOps(), NumpyOps()
    x, gy, y, gx = (images((2, 20, 5, 5), seed=seed) for seed in range(4))
    work = ops.lrn_memory(x.shape, x.dtype, *how)
    ops.lrn(x, y, work, *how)
    ops.lrn_grad(x, gy, gx, work, *how)
    wanted, work = images(x.shape, np.float64), plain.lrn_memory(x.shape, np.float64, *how)
    plain.lrn(x.astype(np.float64), wanted, work, *how)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
    plain.lrn_grad(x.astype(np.float64), gy.astype(np.float64), wanted, work, *how)
    np.testing.assert_allclose(gx, wanted, rtol=1e-5, atol=1e-5)


@needs_library
def test_a_call_prepared_for_a_number_of_threads_serves_that_number() -> None:
    ops = OneDnnOps()
    results = {}
    for n_threads in (1, 2, 1, 2):
        with threadpoolctl.threadpool_limits(n_threads):
            actual = convolve(ops)
        np.testing.assert_array_equal(actual, results.setdefault(n_threads, actual))
    assert len(ops._calls) == 4
    np.testing.assert_allclose(results[1], results[2], rtol=1e-4, atol=1e-4 * abs(results[1]).max())


@needs_library
def test_objects_in_threads_of_their_own() -> None:
    wanted = convolve(OneDnnOps())

    def work(_: int) -> bool:
        ops = OneDnnOps()
        return all(np.array_equal(convolve(ops), wanted) for _ in range(20))

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(work, range(4)))


@needs_library
def test_what_an_object_made_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    destroy = library.destroy

    def counted(made: list[Any], process: int) -> None:
        ended.append(len(made))
        destroy(made, process)

    monkeypatch.setattr(library, "destroy", counted)
    ops = OneDnnOps()
    convolve(ops)
    del ops
    gc.collect()
    assert len(ended) == 1 and ended[0] > 10


@needs_library
def test_it_does_not_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = OneDnnOps()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(ops)
    convolve(ops)
    process = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process + 1)
    with pytest.raises(OneDnnError, match="in its child"):
        convolve(ops)


@needs_library
def test_a_call_that_fails_says_which() -> None:
    engine = library.Engine(library.find_library() or Path())
    with pytest.raises(OneDnnError, match=r"^dnnl_stream_create: oneDNN reports: invalid arguments"):
        engine.make("stream", "stream_create", None, 1)


@needs_library
def test_auto_is_onednn_where_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert isinstance(get_ops("auto"), OneDnnOps)
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def without(name: str) -> Any:
    raise importlib.metadata.PackageNotFoundError(name)


def test_auto_is_numpy_without_the_wheel(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(importlib.metadata, "files", without)
    assert type(get_ops("auto")) is NumpyOps
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "not installed" in record.getMessage()
    with pytest.raises(ConfigError, match="Install 'onednn-cpu-gomp'"):
        get_ops("onednn")


def test_a_library_that_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / library.FILE
    path.write_bytes(b"no library")

    class Wheel:
        name = path.name

        def locate(self) -> Path:
            return path

    monkeypatch.setattr(importlib.metadata, "files", lambda name: [Wheel()])
    assert type(get_ops("auto")) is NumpyOps
    assert "cannot be loaded" in caplog.text
