"""How many launches a warm training step takes, how often the host waits, and that launches are counted right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.launches import step_of
from singa_dask.ops import NumpyOps
from singa_dask.ops.contract import ConvWindow
from tests.conftest import is_simulated

pytestmark = pytest.mark.skipif(not is_simulated(), reason="the simulated GPU counts")


BARS = [("cifar-100", "float32", 40), ("resnet20", "float32", 200)]
MORE = [("cifar-100", "bf16", 40), ("resnet20", "bf16", 201), ("transformer-4", "float32", 123)]
MOST = [("cifar-100", "tf32", 40), ("resnet20", "tf32", 200), ("transformer-4", "tf32", 140)]
MOST += [("transformer-4", "bf16", 124)]


@pytest.mark.parametrize(
    ("what", "precision", "most"),
    [
        *BARS,
        *(pytest.param(*each, marks=pytest.mark.long) for each in MORE),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in MOST),
    ],
)
def test_launches_of_a_step(what: str, precision: str, most: int) -> None:
    step = step_of(what, precision)
    assert step.launches.total() <= most, step.launches.most_common()


@pytest.mark.parametrize(
    "what",
    [
        "cifar-100",
        pytest.param("resnet20", marks=pytest.mark.long),
        pytest.param("transformer-4", marks=pytest.mark.soak),
    ],
)
def test_the_host_waits_for_nothing(what: str) -> None:
    assert step_of(what, "float32", small=True).n_waits == 0


def test_what_is_asked_of_a_device_is_counted(gpu: Any) -> None:
    from cupy import _world

    x, y = (gpu.from_host(np.ones(1000, np.float32)) for _ in range(2))
    with _world.metered() as meter:
        gpu.add(x, y, out=y)
        gpu.gemm(x[:600].reshape(20, 30), y[:600].reshape(30, 20), gpu.zeros((20, 20), np.float32))
        asked = [(op.name, op.n_bytes) for op in meter.ops if "copying" not in op.name]
        assert asked == [("add", 8000), ("gemm", 4 * (600 + 600 + 400))]
        gpu.to_host(y)
        gpu.synchronize()
        assert meter.n_waits == 1, "there is nothing left to wait for"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_captured_convolutions_use_the_weights_of_each_replay(gpu: NumpyOps, dtype: Any) -> None:
    random = np.random.default_rng(0)
    images = random.normal(size=(2, 3, 6, 5)).astype(dtype)
    weights = [random.normal(size=size).astype(dtype) for size in ((4, 3, 3, 3), (300, 3, 2, 2), (5, 3, 1, 1))]
    x, *ws = (gpu.from_host(each) for each in (images, *weights))
    how = [ConvWindow((1, 1), (1, 1))]
    outs = [gpu.features((2, len(w), 9 - w.shape[2], 8 - w.shape[3]), dtype) for w in ws]

    def compute() -> None:
        for w, out in zip(ws, outs, strict=True):
            gpu.conv2d(x, w, None, out, *how)
            gpu.conv2d_grad_input(out, w, gx, *how)

    gx = gpu.features(x.shape, dtype)
    compute()
    captured = gpu.capture(compute)
    for factor in (1.0, -2.0):
        for w, first in zip(ws, weights, strict=True):
            gpu.copy(first * dtype(factor), out=w)
        captured.replay(lambda key: key)
        for w, out in zip(weights, outs, strict=True):
            wanted = np.empty(out.shape, dtype)
            NumpyOps().conv2d(images, w * dtype(factor), None, wanted, *how)
            np.testing.assert_allclose(gpu.to_host(out), wanted, rtol=1e-4, atol=1e-4)
