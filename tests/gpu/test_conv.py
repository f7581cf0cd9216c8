"""Convolution by matrix products on a GPU: in pieces, in bfloat16, on no images; and how long a run takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from singa_dask.ops import BFLOAT16, NumpyOps
from singa_dask.ops.contract import ConvWindow
from singa_dask.ops.cupy import conv
from singa_dask.ops.cupy import cudnn as cupy_cudnn
from tests.backends import backend

SHAPES = {"x": (5, 3, 8, 7), "w": (6, 3, 3, 2), "b": (6,), "y": (5, 6, 4, 8)}
STRIDE, PAD = (2, 1), (1, 1)


@pytest.fixture(autouse=True)
def without_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> Any:
        raise cupy_cudnn.Missing("Not in these tests.")

    monkeypatch.setattr(cupy_cudnn, "load", load)


def convolved(ops: NumpyOps, given: dict[str, Any], features: Any = np.float32) -> list[Any]:
    """Return the output, the gradient of x, and twice those of w and b."""
    x, y, gx = (ops.features(SHAPES[name], features) for name in ("x", "y", "x"))
    w, b = ops.from_host(given["w"]), ops.from_host(given["b"])
    gw, gb = ops.zeros(w.shape, np.float32), ops.zeros(b.shape, np.float32)
    ops.copy(ops.from_host(given["x"]), x)
    ops.conv2d(x, w, b, y, ConvWindow(STRIDE, PAD))
    ops.conv2d_grad_input(y, w, gx, ConvWindow(STRIDE, PAD))
    for accumulate in (False, True):
        ops.conv2d_grad_weight(x, y, gw, gb, ConvWindow(STRIDE, PAD), accumulate)
    return [ops.to_host(value).astype(np.float32) for value in (y, gx, gw, gb)]


def drawn() -> dict[str, Any]:
    random = np.random.default_rng(11)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def test_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    given = drawn()
    # two images and one
    monkeypatch.setattr("singa_dask.ops.cupy.conv.COLUMN_BYTES", 2 * 4 * 8 * 3 * 2 * 3 * 4)
    for actual, wanted in zip(convolved(backend("cuda:0"), given), convolved(NumpyOps(), given), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.long
def test_features_of_bfloat16() -> None:
    given = drawn()
    results = convolved(backend("cuda:0", "bf16"), given, BFLOAT16), convolved(NumpyOps(), given)
    for actual, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=2e-2, atol=2e-2 * np.abs(wanted).max())


def test_no_images() -> None:
    ops = backend("cuda:0")
    x, y = ops.features((0, 3, 8, 7), np.float32), ops.features((0, 6, 4, 8), np.float32)
    w, b = ops.from_host(drawn()["w"]), ops.from_host(drawn()["b"])
    ops.conv2d(x, w, b, y, ConvWindow(STRIDE, PAD))
    ops.conv2d_grad_input(y, w, x, ConvWindow(STRIDE, PAD))
    ops.conv2d_grad_weight(x, y, w, b, ConvWindow(STRIDE, PAD))
    assert not ops.to_host(w).any() and not ops.to_host(b).any()


# -- time of an engine ---------------------------------------------------------------------------------


def test_time_of_a_run() -> None:
    ops: Any = backend("cuda:0").for_thread()
    x, runs = ops.zeros((8,), np.float32), []

    def run() -> None:
        runs.append(1)
        ops.relu(x, x)

    assert ops._seconds(run, math.inf) > 0
    assert len(runs) in (3, 2 + conv.RUNS), "to load it, once, and captured"
    runs.clear()
    assert ops._seconds(run, -1.0) > 0
    assert len(runs) == 2, "it is slow"


def test_a_run_that_cannot_be_captured() -> None:
    ops: Any = backend("cuda:0").for_thread()
    x = ops.zeros((8,), np.float32)
    with pytest.raises(RuntimeError):
        ops._seconds(lambda: ops.to_host(x), math.inf)
    ops.relu(x, x)
    assert not ops.to_host(x).any()
