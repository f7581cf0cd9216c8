"""Layers on images against PyTorch: convolution, pooling, normalisation over channels and over the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.layers import Context
from singa_dask.testing.case import backward, forward, source, wire
from tests.oracles.compare import apart, assert_close, check, numbers, tensor

torch = pytest.importorskip("torch")
functional: Any = torch.nn.functional

SHAPE = (3, 4, 9, 7)
# kernel, stride and pad, each down and to the right
WINDOWS = {
    "3x3": ((3, 3), (1, 1), (0, 0)),
    "1x1": ((1, 1), (1, 1), (0, 0)),
    "stride": ((3, 3), (2, 2), (1, 1)),
    "high": ((3, 2), (2, 1), (1, 0)),
    "wide": ((2, 5), (1, 3), (0, 2)),
    "gaps": ((2, 2), (3, 3), (0, 0)),
    "whole": ((9, 7), (1, 1), (0, 0)),
}
windows = pytest.mark.parametrize(("kernel", "stride", "pad"), WINDOWS.values(), ids=WINDOWS)


def block_of(kernel: tuple[int, int], stride: tuple[int, int], pad: tuple[int, int], **more: Any) -> dict[str, Any]:
    """Return the keys of a window."""
    pairs = {"kernel": kernel, "stride": stride, "pad": pad}
    return {
        f"{key}_{axis}": value for key, pair in pairs.items() for axis, value in zip("yx", pair, strict=True)
    } | more


@windows
@pytest.mark.parametrize("bias", [False, True])
def test_convolution(kernel: tuple[int, int], stride: tuple[int, int], pad: tuple[int, int], bias: bool) -> None:
    def reference(x: Any, w: Any, b: Any = None) -> Any:
        return functional.conv2d(x, w.reshape(5, SHAPE[1], *kernel), b, stride, pad)

    block = block_of(kernel, stride, pad, num_filters=5, bias_term=bias)
    check(wire("Convolution", [source(SHAPE)], convolution_conf=block), reference)


@pytest.mark.parametrize("dilation", [(1, 1), (2, 1), (2, 3)])
@pytest.mark.parametrize(("groups", "filters"), [(1, 5), (2, 6), (4, 4), (4, 8)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 3)])
def test_groups_and_dilation(dilation: tuple[int, int], groups: int, filters: int, stride: tuple[int, int]) -> None:
    def reference(x: Any, w: Any, b: Any) -> Any:
        return functional.conv2d(x, w.reshape(filters, -1, 3, 2), b, stride, (1, 2), dilation, groups)

    block = block_of((3, 2), stride, (1, 2), num_filters=filters, groups=groups)
    block |= {"dilation_y": dilation[0], "dilation_x": dilation[1]}
    check(wire("Convolution", [source(SHAPE)], convolution_conf=block), reference)


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize(("groups", "filters"), [(1, 5), (2, 6), (4, 4)])
@pytest.mark.parametrize(("stride", "more"), [((1, 1), 0), ((2, 3), 0), ((2, 2), 1)])
def test_transposed_convolution(dilation: int, groups: int, filters: int, stride: tuple[int, int], more: int) -> None:
    def reference(x: Any, w: Any, b: Any) -> Any:
        how = (stride, (1, 0), more, groups, dilation)
        return functional.conv_transpose2d(x, w.reshape(SHAPE[1], -1, 3, 2), b, *how)

    block = block_of((3, 2), stride, (1, 0), num_filters=filters, groups=groups, output_pad=more, dilation=dilation)
    check(wire("ConvTranspose", [source(SHAPE)], convtranspose_conf=block), reference)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("factor", [1, 2, 3, 4, 5])
def test_upsampling(mode: str, factor: int) -> None:
    layer = wire("Upsample", [source(SHAPE)], upsample_conf={"factor": factor, "mode": mode.upper()})
    check(layer, lambda x: functional.interpolate(x, scale_factor=factor, mode=mode))


@pytest.mark.parametrize("pool", ["max", "avg"])
@pytest.mark.parametrize("size", [(1, 1), (3, 7), (4, 3), (9, 7), (7, 2)])
def test_adaptive_pooling(pool: str, size: tuple[int, int]) -> None:
    block = {"height": size[0], "width": size[1], "pool": pool.upper()}
    layer = wire("AdaptivePooling", [apart(SHAPE)], adaptivepooling_conf=block)
    check(layer, lambda x: getattr(functional, f"adaptive_{pool}_pool2d")(x, size))


@windows
@pytest.mark.parametrize("ties", ["first", "all"])
def test_max_pooling(kernel: tuple[int, int], stride: tuple[int, int], pad: tuple[int, int], ties: str) -> None:
    def reference(x: Any) -> Any:
        # torch pads by no more than half a kernel
        padded = functional.pad(x, (pad[1], pad[1], pad[0], pad[0]), value=-torch.inf)
        return functional.max_pool2d(padded, kernel, stride)

    block = block_of(kernel, stride, pad, pool="MAX", ties=ties)
    check(wire("Pooling", [apart(SHAPE)], pooling_conf=block), reference)


@windows
@pytest.mark.parametrize("count_pad", [False, True])
def test_mean_pooling(kernel: tuple[int, int], stride: tuple[int, int], pad: tuple[int, int], count_pad: bool) -> None:
    block = block_of(kernel, stride, pad, pool="AVG", count_include_pad=count_pad)
    layer = wire("Pooling", [source(SHAPE)], pooling_conf=block)
    check(layer, lambda x: functional.avg_pool2d(x, kernel, stride, pad, count_include_pad=count_pad))


@pytest.mark.parametrize(
    ("size", "alpha", "beta", "knorm"), [(5, 1.0, 0.75, 1.0), (3, 5e-5, 0.75, 2.0), (7, 2, 0.5, 1)]
)
def test_lrn(size: int, alpha: float, beta: float, knorm: float) -> None:
    block = {"local_size": size, "alpha": alpha, "beta": beta, "knorm": knorm}
    layer = wire("LRN", [source((2, 6, 3, 4))], lrn_conf=block)
    check(layer, lambda x: functional.local_response_norm(x, size, alpha, beta, knorm))


@pytest.mark.parametrize("shape", [(3, 4, 5, 2), (6, 4)])
def test_batch_norm_in_training(shape: tuple[int, ...]) -> None:
    layer = wire("BatchNorm", [source(shape)], bm_conf={"epsilon": 1e-3})

    def reference(x: Any, scale: Any, shift: Any, *running: Any) -> Any:
        return functional.batch_norm(x, None, None, scale, shift, training=True, eps=1e-3)

    check(layer, reference, n_params=2)


def test_the_running_mean_of_batch_norm() -> None:
    x, theirs = source((3, 4, 5, 2)), torch.nn.BatchNorm2d(4, eps=1e-3, momentum=0.25, dtype=torch.float64)
    layer = wire("BatchNorm", [x], bm_conf={"momentum": 0.75, "epsilon": 1e-3})
    mean, variance = layer.params[2:]
    mean.data[...], variance.data[...] = 0, 1
    for seed in range(3):
        x.data[...] = np.random.default_rng(seed).normal(1, 2, x.shape)
        theirs(tensor(x.data))
        forward(layer)
        layer.features[0].grad[...] = 0
        backward(layer)
        for param in (mean, variance):
            param.data -= param.grad
    assert_close(mean.data, numbers(theirs.running_mean))
    # ours divides by the number of values, torch's running one by one less
    n = x.data.size // 4
    kept = 0.75**3
    assert_close(variance.data - kept, (numbers(theirs.running_var) - kept) * (n - 1) / n)


@pytest.mark.parametrize("shape", [(3, 4, 5, 2), (6, 4)])
def test_batch_norm_in_a_test(shape: tuple[int, ...]) -> None:
    x = source(shape)
    layer = wire("BatchNorm", [x], Context(phase=Phase.TEST, dtype=np.dtype(np.float64)), bm_conf={"epsilon": 1e-3})
    layer.params[3].data[...] = [0.5, 1, 2, 3]
    scale, shift, mean, variance = (tensor(param.data, learns=False) for param in layer.params)
    forward(layer)
    wanted = functional.batch_norm(tensor(x.data), mean, variance, scale, shift, training=False, eps=1e-3)
    assert_close(layer.features[0].data, numbers(wanted))
