"""ReLUs that the layer before them computes, and gradients that are passed on without a copy: they change no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.layers import Speed
from singa_dask.layers.combine import Add
from singa_dask.layers.fused import Fused
from singa_dask.net import neuralnet
from singa_dask.net.fuse import fuse
from singa_dask.ops import BFLOAT16
from singa_dask.testing.case import backward, forward, source, wire
from tests.backends import BACKENDS, backend
from tests.gpu.test_nets import MOMENTUM, Run
from tests.net.jobs import DATA, UNIFORM, dense, job, layer, ready


def residual(after_conv: str = "ReLU") -> list[dict[str, Any]]:
    """Return a net with a shortcut, a block without one, and a sum of sums; with this type behind a convolution."""
    weights = {"param": [{"init": UNIFORM}, {"init": UNIFORM}]}
    conv = {"convolution_conf": {"num_filters": 4, "kernel": 3, "pad": 1}, **weights}
    return [
        {**DATA, "user_conf": {"shape": [8, 4, 6, 5], "classes": 3}},
        layer("conv1", "Convolution", "data", **conv),
        layer("norm1", "BatchNorm", "conv1", **weights),
        layer("relu1", "ReLU", "norm1"),
        layer("conv2", "Convolution", "relu1", **conv),
        layer("norm2", "BatchNorm", "conv2", **weights),
        layer("sum1", "Add", "norm2", "relu1"),
        layer("relu2", "Activation", "sum1"),
        layer("conv3", "Convolution", "relu2", **conv),
        layer("norm3", "BatchNorm", "conv3", **weights),
        layer("relu3", "ReLU", "norm3"),
        layer("conv4", "Convolution", "relu2", **conv),
        layer("act", after_conv, "conv4"),
        layer("conv5", "Convolution", "act", **conv),
        layer("sum2", "Add", "conv5", "relu3", "relu2"),
        layer("sum3", "Add", "sum2", "conv1"),
        layer("relu4", "ReLU", "sum3"),
        dense("fc", "relu4", 3),
        layer("loss", "SoftmaxLoss", "fc", "data"),
    ]


def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each layer compute what is its own, and copy gradients."""
    monkeypatch.setattr(neuralnet, "fuse", lambda layers, with_sums: None)


@pytest.mark.parametrize(
    ("name", "precision", "dtype", "watched"),
    [
        ("numpy", "float32", np.float32, False),
        ("onednn", "float32", np.float32, False),
        pytest.param("cuda:0", "float32", np.float32, False, marks=pytest.mark.long),
        ("onednn", "bf16", BFLOAT16, True),
        *(pytest.param(name, "float32", np.float32, True, marks=pytest.mark.long) for name in BACKENDS),
        pytest.param("numpy", "float64", np.float64, False, marks=pytest.mark.long),
        pytest.param("cuda:0", "bf16", BFLOAT16, False, marks=pytest.mark.long),
        pytest.param("numpy", "float64", np.float64, True, marks=pytest.mark.soak),
        pytest.param("onednn", "bf16", BFLOAT16, False, marks=pytest.mark.soak),
        pytest.param("cuda:0", "bf16", BFLOAT16, True, marks=pytest.mark.soak),
    ],
)
def test_a_net_learns_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, name: str, precision: str, dtype: Any, watched: bool
) -> None:
    ops = backend(name, precision)
    # cuDNN may compute a convolution with a ReLU by another engine than without
    names = ("relu1", "relu2", "relu3", "relu4", *(["act"] if ops.device == "cpu" else []))
    layers = residual("ReLU" if ops.device == "cpu" else "SiLU")
    found = []
    for is_fused in (True, False):
        with monkeypatch.context() as patch:
            if not is_fused:
                apart(patch)
            run = Run(job(layers, updater=MOMENTUM), ops, dtype)
        run.net.is_watched = watched
        total = run.net.name2layer("sum3")
        for relu in map(run.net.name2layer, names):
            assert (relu.features[0].data is relu.sources[0].data) is is_fused
        assert all((each.grad is total.features[0].grad) is is_fused for each in total.sources)
        run.train(range(3))
        found.append(run.found())
    for key, values in found[0].items():
        np.testing.assert_array_equal(values, found[1][key], err_msg=key)


def test_a_fused_net_takes_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [Run(job(residual()), backend("numpy"), np.float32)]
    apart(monkeypatch)
    runs.append(Run(job(residual()), backend("numpy"), np.float32))
    n_bytes = 8 * 4 * 6 * 5 * 4
    # outputs and gradients of five ReLUs; gradients of what is added, but that of sum1 behind the first ReLU's Split
    saved = runs[1].net.memory_bytes() - runs[0].net.memory_bytes()
    assert saved >= (2 * 5 + 5) * n_bytes and saved % n_bytes == 0


@pytest.mark.parametrize("phase", [Phase.TRAIN, Phase.TEST])
def test_outputs_are_their_own_unless_a_net_is_trained(phase: Phase) -> None:
    net = ready(residual(), phase=phase)
    for each in net.layers:
        net.forward(each, phase | Phase.FORWARD)
    below, above = (net.name2layer(name).features[0].data for name in ("norm1", "relu1"))
    assert (below < 0).any() == (phase is Phase.TEST)
    assert not (above < 0).any()


class Weighted(Add):
    """Twice the sum, by a user who states nothing of ReLUs or of gradients that are passed on."""

    speed = Speed()

    def forward(self, phase: Phase) -> None:
        self.features[0].data[...] = 2 * sum(each.data for each in self.sources)

    def backward(self, phase: Phase) -> None:
        for each in self.sources:
            if each.grad is not None:
                each.grad[...] = 2 * self.features[0].output_grad


def test_layers_of_users_compute_as_they_are_written() -> None:
    below = [wire("BatchNorm", [source((3, 4), seed)]) for seed in (1, 2)]
    layer = wire(Weighted, [each.features[0] for each in below])
    above = wire("ReLU", layer.features)
    fuse([*below, layer, above], with_sums=True)
    assert all(each.fused == Fused() for each in (*below, layer, above))
    for each in (*below, layer, above):
        forward(each)
    total = 2 * sum(each.features[0].data for each in below)
    np.testing.assert_allclose(above.features[0].data, np.maximum(total, 0))
    above.features[0].grad[...] = 1
    backward(above)
    backward(layer)
    for each in below:
        np.testing.assert_array_equal(each.features[0].grad, 2.0 * (total > 0))
