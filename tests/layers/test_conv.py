"""Convolution and pooling: gradients, sizes, numbers worked out by hand, and what the job may ask of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS, Context, Feature
from singa_dask.net import memory, wiring
from singa_dask.testing.case import backward, forward, source, wire
from singa_dask.testing.layer_exam import check_gradients
from tests.layers.exam import check_layouts
from tests.selection import mostly_long

TEST = Context(phase=Phase.TEST, dtype=np.dtype(np.float64))
WINDOWS: list[dict[str, Any]] = [
    {},
    {"kernel": 1},
    {"kernel": 2, "stride": 2, "pad": 1},
    {"kernel_x": 2, "kernel_y": 3, "stride_x": 2, "stride_y": 1, "pad_x": 1, "pad_y": 2},
]
# each as the one of a tuple, which is a parameter
SHAPES: list[tuple[tuple[int, ...]]] = [((2, 3, 5, 4),), ((2, 4, 5),), ((1, 1, 3, 3),)]


def apart(shape: tuple[int, ...]) -> Feature:
    """Return a source without ties, not even nearly."""
    feature = source(shape)
    feature.data[...] = np.random.default_rng(1).permutation(feature.data.size).reshape(shape) / 10
    return feature


@pytest.mark.parametrize("shape", mostly_long(SHAPES, 3))
@pytest.mark.parametrize("block", [*WINDOWS, {"kernel": 3, "bias_term": False}])
def test_convolution(shape: tuple[int, ...], block: dict[str, Any]) -> None:
    layer = wire("Convolution", [source(shape)], convolution_conf={"num_filters": 2, **block})
    check_gradients(layer)
    assert [p.name for p in layer.params] == ["layer.weight", "layer.bias"][: len(layer.params)]
    assert len(layer.params) == (2 if block.get("bias_term", True) else 1)


GROUPED: list[dict[str, Any]] = [
    {"groups": 2},
    {"groups": 4, "pad": 1},
    {"dilation": 2, "pad": 2},
    {"dilation_x": 3, "kernel": 2, "stride": 2, "groups": 2, "pad": 1},
]


@pytest.mark.parametrize("block", GROUPED)
def test_groups_and_dilation(block: dict[str, Any]) -> None:
    check_gradients(wire("Convolution", [source((2, 4, 7, 6))], convolution_conf={"num_filters": 8, **block}))
    check_layouts("Convolution", (2, 4, 7, 6), convolution_conf={"num_filters": 8, **block})


@pytest.mark.parametrize(
    "block", mostly_long([*GROUPED, {}, *WINDOWS[2:], {"stride": 2, "output_pad": 1, "bias_term": False}], 4)
)
def test_transposed_convolution(block: dict[str, Any]) -> None:
    check_gradients(wire("ConvTranspose", [source((2, 4, 5, 4))], convtranspose_conf={"num_filters": 8, **block}))
    check_layouts("ConvTranspose", (2, 4, 5, 4), convtranspose_conf={"num_filters": 8, **block})


@pytest.mark.parametrize("mode", ["NEAREST", "BILINEAR"])
@pytest.mark.parametrize("factor", mostly_long([3, 1, 2, 4], 4))
def test_upsampling(mode: str, factor: int) -> None:
    block = {"factor": factor, "mode": mode}
    for shape in ((2, 3, 4, 5), (2, 1, 3), (1, 2, 1, 1)):
        check_gradients(wire("Upsample", [source(shape)], upsample_conf=block))
    check_layouts("Upsample", (2, 3, 4, 5), upsample_conf=block)


@pytest.mark.parametrize("pool", ["MAX", "AVG"])
@pytest.mark.parametrize(("height", "width"), mostly_long([(3, 4), (2, 3), (3, 2), (1, 1), (4, 6)], 5))
def test_adaptive_pooling(pool: str, height: int, width: int) -> None:
    block = {"pool": pool, "height": height, "width": width}
    check_gradients(wire("AdaptivePooling", [apart((2, 3, 4, 6))], adaptivepooling_conf=block))
    check_layouts("AdaptivePooling", (2, 3, 4, 6), adaptivepooling_conf=block)


@pytest.mark.parametrize(
    ("kind", "block", "message"),
    [
        ("Convolution", {"num_filters": 4, "groups": 3}, "groups: expected a divisor of the number of channels"),
        (
            "Convolution",
            {"num_filters": 3, "groups": 2},
            "groups: expected a divisor of the number of filters",
        ),
        (
            "Convolution",
            {"num_filters": 4, "dilation": 4},
            "at most 6, the height of an image, got 9 with its dil",
        ),
        ("ConvTranspose", {"num_filters": 4, "pad": 9}, "pad: the output would be empty with a pad of 9"),
        ("ConvTranspose", {"num_filters": 4, "output_pad": 1}, "output_pad: expected a number below the stride"),
        ("AdaptivePooling", {"height": 7, "width": 1}, "height: expected at most 6, the height of an image, got 7"),
    ],
)
def test_what_does_not_fit_is_refused(kind: str, block: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        wire(kind, [source((2, 4, 6, 6))], **{f"{kind.lower()}_conf": block})


@pytest.mark.parametrize("block", WINDOWS)
def test_layouts(block: dict[str, Any]) -> None:
    check_layouts("Convolution", (2, 3, 5, 4), convolution_conf={"num_filters": 2, **block})
    for pool in ("MAX", "AVG"):
        block = {**block, "pad": 0, "pool": pool}
        check_layouts("Pooling", (2, 3, 5, 4), pooling_conf=block)


def test_columns_of_the_weights_are_channel_row_column() -> None:
    x = source((1, 2, 3, 4), grad=False)
    layer = wire("CConvolution", [x], convolution_conf={"num_filters": 1, "kernel_y": 2, "kernel_x": 3})
    layer.params[0].data[...] = 0
    layer.params[0].data[0, 6 + 3 + 2] = 1  # channel 1, row 1, column 2
    layer.params[1].data[...] = 5
    forward(layer)
    np.testing.assert_allclose(layer.features[0].data, x.data[:, 1:, 1:, 2:] + 5)
    assert layer.params[0].shape == (1, 12)
    assert layer.params[1].shape == (1,)


def test_convolution_needs_no_gradient_of_records() -> None:
    check_gradients(wire("Convolution", [source((2, 3, 4, 4), grad=False)], convolution_conf={"num_filters": 2}))


def test_convolution_adds_gradients_of_time_steps_when_told() -> None:
    layer = wire("Convolution", [source((2, 3, 4, 4))], convolution_conf={"num_filters": 2})
    forward(layer)
    layer.features[0].grad[...] = 1
    backward(layer)
    once = [param.grad.copy() for param in layer.params]
    backward(layer, adds=True)
    for param, grad in zip(layer.params, once, strict=True):
        np.testing.assert_allclose(param.grad, 2 * grad)


@pytest.mark.parametrize("pool", ["MAX", "AVG"])
@pytest.mark.parametrize("shape", mostly_long(SHAPES, 3))
@pytest.mark.parametrize("block", [{}, *WINDOWS[1:3], {"kernel": 3, "pad_x": 2, "stride_y": 1}])
def test_pooling(shape: tuple[int, ...], block: dict[str, Any], pool: str) -> None:
    check_gradients(wire("Pooling", [apart(shape)], pooling_conf={"pool": pool, **block}))


def test_sizes_are_rounded_down() -> None:
    # the CIFAR-10 net: 32 -> 32 -> 15 or 16
    conv = wire("Convolution", [source((1, 3, 32, 32))], convolution_conf={"num_filters": 4, "kernel": 5, "pad": 2})
    assert conv.features[0].shape == (1, 4, 32, 32)
    for pad, size in ((0, 15), (1, 16)):
        pool = wire("Pooling", [conv.features[0]], pooling_conf={"kernel": 3, "stride": 2, "pad": pad})
        assert pool.features[0].shape == (1, 4, size, size)


def test_the_first_of_equal_values_gets_the_gradient() -> None:
    x = source((1, 1, 2, 4))
    x.data[...] = 7
    layer = wire("CPooling", [x], pooling_conf={"kernel": 2})
    forward(layer)
    layer.features[0].grad[...] = [[[[1, 2]]]]
    backward(layer)
    np.testing.assert_array_equal(x.grad, [[[[1, 0, 2, 0], [0, 0, 0, 0]]]])


def test_all_of_equal_values_may_get_the_gradient() -> None:
    x = source((1, 1, 2, 2))
    x.data[...] = 3
    layer = wire("Pooling", [x], pooling_conf={"kernel": 2, "ties": "all"})
    forward(layer)
    layer.features[0].grad[...] = 5
    backward(layer)
    np.testing.assert_array_equal(x.grad, np.full((1, 1, 2, 2), 5))


def test_padding_is_never_the_largest() -> None:
    x = source((1, 1, 2, 2))
    x.data[...] = -5
    layer = wire("Pooling", [x], pooling_conf={"kernel": 2, "pad": 1})
    forward(layer)
    np.testing.assert_array_equal(layer.features[0].data, np.full((1, 1, 2, 2), -5))


@pytest.mark.parametrize(
    ("kind", "given", "corner"),
    [
        ("Pooling", {}, 1 / 4),
        ("CPooling", {}, 1 / 4),
        ("CudnnPool", {}, 1),
        ("CudnnPool", {"count_include_pad": True}, 1 / 4),
        ("Pooling", {"count_include_pad": False}, 1),
    ],
)
def test_padding_counts_in_a_mean_or_not(kind: str, given: dict[str, Any], corner: float) -> None:
    x = source((1, 1, 2, 2))
    x.data[...] = 1
    layer = wire(kind, [x], pooling_conf={"pool": "AVG", "kernel": 2, "pad": 1, **given})
    forward(layer)
    np.testing.assert_allclose(layer.features[0].data, np.full((1, 1, 2, 2), corner))
    check_gradients(layer)


def test_a_test_net_keeps_no_places() -> None:
    layer = LAYERS.find("Pooling")(wire("Pooling", [apart((1, 1, 4, 4))]).conf, TEST)
    trained = wire("Pooling", [apart((1, 1, 4, 4))])
    wiring.wire(layer, trained.sources, trained.ops)
    memory.allocate(layer)
    forward(layer)
    forward(trained)
    assert layer.where.data_if_needed is None  # type: ignore[attr-defined]
    np.testing.assert_array_equal(layer.features[0].data, trained.features[0].data)


@pytest.mark.parametrize(
    ("kind", "shape", "block", "path", "words"),
    [
        ("Convolution", (2, 12), {}, ("srclayers",), r"'src0' gives records of (12,), expected images"),
        ("Pooling", (2, 1, 2, 3, 4), {}, ("srclayers",), r"expected images (channels, height, width)"),
        (
            "Convolution",
            (2, 1, 4, 9),
            {"kernel": 5},
            ("convolution_conf", "kernel"),
            "at most 4, the height of an image,",
        ),
        (
            "Convolution",
            (2, 1, 9, 2),
            {"kernel_x": 5, "pad_x": 1},
            ("convolution_conf", "kernel_x"),
            "expected at most 4, the width of an image with its padding, got 5",
        ),
        (
            "Pooling",
            (2, 1, 2, 9),
            {},
            ("pooling_conf", "kernel_y"),
            "expected at most 2, the height of an image, got 3",
        ),
        ("Pooling", (2, 1, 9, 9), {"kernel": 2, "pad": 2}, ("pooling_conf", "pad"), "less than the kernel, which is 2"),
        ("Pooling", (2, 1, 9, 9), {"pad_x": 4}, ("pooling_conf", "pad_x"), "less than the kernel, which is 3, got 4"),
    ],
)
def test_refuses(kind: str, shape: tuple[int, ...], block: dict[str, Any], path: Any, words: str) -> None:
    name = "pooling_conf" if kind == "Pooling" else "convolution_conf"
    block = block if kind == "Pooling" else {"num_filters": 2, **block}
    with pytest.raises(ConfigError) as caught:
        wire(kind, [source(shape)], **{name: block})
    assert caught.value.problems[0].path == path
    assert words in caught.value.problems[0].message


def test_a_bias_that_is_not_there() -> None:
    conf = {"convolution_conf": {"num_filters": 2, "bias_term": False}, "param": [{"name": "w"}, {"name": "b"}]}
    with pytest.raises(ConfigError, match=r"param.1.*bias_term: false"):
        wire("Convolution", [source((1, 1, 3, 3))], **conf)


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (("CConvolution", "kCConvolution", "CudnnConv", "kCudnnConv"), "Convolution"),
        (("CPooling", "kCPooling", "CudnnPool"), "Pooling"),
        (("CudnnLRN", "kLRN"), "LRN"),
        (("BM", "kBM", "CudnnBM"), "BatchNorm"),
        (("CudnnActivation",), "Activation"),
        (("CudnnSoftmax",), "Softmax"),
        (("CudnnSoftmaxLoss",), "SoftmaxLoss"),
    ],
)
def test_names_of_singa(names: tuple[str, ...], first: str) -> None:
    for name in names:
        assert LAYERS.find(name) is LAYERS.find(first)
