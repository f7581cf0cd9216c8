"""Loss layers: gradients of what they report, their figures, and labels that make no sense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError, DataError
from singa_dask.layers import Feature, Layer
from singa_dask.testing.case import Case, backward, forward, metric, source, wire
from singa_dask.testing.layer_exam import check_gradients

CASES = [
    Case(
        "SoftmaxLoss", [(4, 3, 2), (4,)], {"softmaxloss_conf": {"topk": 2, "scale": 2.5}}, labels=[0, 5, 1, 2], fixed=1
    ),
    Case("SoftmaxLoss", [(4, 6), (4,)], {"softmaxloss_conf": {"label_smoothing": 0.2}}, labels=[0, 5, 1, 2], fixed=1),
    Case("EuclideanLoss", [(4, 2, 3, 2), (4, 12)], loss_factor=0.5),
    Case("SoftmaxLoss", [(4, 6), (4,), (4, 1)], labels=[0, 5, 1, 2], fixed=2),
    Case(
        "SoftmaxLoss",
        [(4, 6), (4,), (4, 1)],
        {"softmaxloss_conf": {"label_smoothing": 0.2, "scale": 2.5}},
        labels=[0, 5, 1, 2],
        fixed=2,
        mixed=True,
    ),
    Case("EuclideanLoss", [(4, 2, 3, 2), (4, 12), (4, 1)], fixed=1, loss_factor=0.5),
    # the metric is a sum over the rows that count, the gradient is that of their mean
    Case(
        "SoftmaxLoss",
        [(4, 6), (4,)],
        {"softmaxloss_conf": {"ignore_index": 5, "class_weights": [1, 2, 0.5, 1, 1, 3]}},
        labels=[0, 5, 1, 2],
        fixed=1,
        loss_factor=1 / 3.5,
    ),
    Case(
        "SoftmaxLoss",
        [(4, 6), (4,), (4, 1)],
        {"softmaxloss_conf": {"ignore_index": -7, "focal_gamma": 2.0}},
        labels=[0, 5, -7, 2],
        fixed=2,
        loss_factor=1 / 3,
    ),
    Case("HuberLoss", [(4, 2, 3, 2), (4, 12)], {"huberloss_conf": {"delta": 0.7}}),
    Case("HuberLoss", [(4, 5), (4, 5), (4, 1)], fixed=1),
    Case("ContrastiveLoss", [(4, 5), (4, 5), (4, 1)], {"contrastiveloss_conf": {"margin": 4.0}}, fixed=1, integers=2),
    Case("TripletLoss", [(4, 5), (4, 5), (4, 5)]),
    Case(
        "PixelSoftmaxLoss",
        [(3, 4, 2, 3), (3, 6)],
        {"pixelsoftmaxloss_conf": {"focal_gamma": 0.5, "class_weights": [1, 1, 1, 1]}},
        fixed=1,
        integers=4,
        loss_factor=1 / 18,
    ),
]


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2), (4, 3, 2, 2)])
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_softmax_loss(shape: tuple[int, ...], scale: float) -> None:
    labels = source((4,), labels=[0, 2, 1, 2], grad=False)
    layer = wire("SoftmaxLoss", [source(shape), labels], softmaxloss_conf={"scale": scale})
    check_gradients(layer, metric(layer, "loss"))


@pytest.mark.parametrize("smoothing", [0.1, 0.6])
def test_softmax_loss_with_smooth_labels(smoothing: float) -> None:
    x, labels = source((4, 3)), source((4,), labels=[0, 2, 1, 2], grad=False)
    block = {"label_smoothing": smoothing, "scale": 2.0}
    layer = wire("SoftmaxLoss", [x, labels], softmaxloss_conf=block)
    check_gradients(layer, metric(layer, "loss"))
    layer.metrics.take()
    forward(layer)
    p = np.exp(x.data) / np.exp(x.data).sum(axis=1, keepdims=True)
    target = (1 - smoothing) * np.eye(3)[[0, 2, 1, 2]] + smoothing / 3
    assert layer.metrics.take()["loss"][0] == pytest.approx(-2 * (target * np.log(p)).sum() / 4)


def test_softmax_loss_figures() -> None:
    logits = source((3, 3))
    logits.data[...] = np.log([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.4, 0.4, 0.2]])
    labels = source((3,), labels=[0, 1, 0], grad=False)
    wanted = -np.log([0.5, 0.2, 0.4]).mean()
    for topk, scale, hits in ((1, 1.0, 1), (2, 1.0, 3), (1, 3.0, 1)):
        layer = wire("SoftmaxLoss", [logits, labels], softmaxloss_conf={"topk": topk, "scale": scale})
        forward(layer)
        figures = layer.metrics.take()
        assert figures["loss"] == (pytest.approx(scale * wanted), 1)
        assert figures["accuracy"] == (pytest.approx(scale * hits / 3), 1)
        assert layer.metrics.take() == {}


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_label_out_of_range_is_named(wrong: int) -> None:
    layer = wire("SoftmaxLoss", [source((2, 3)), source((2,), labels=[0, wrong], grad=False)])
    with pytest.raises(DataError, match=rf"layer layer: label {wrong} is out of range.*must be 0 to 2, for 3 classes"):
        forward(layer)


def test_labels_that_are_not_there_are_missed() -> None:
    layer = wire("SoftmaxLoss", [source((2, 3)), source((2, 3), grad=False)])
    with pytest.raises(DataError, match="source 'src1' has no labels"):
        forward(layer)


def test_topk_is_at_most_the_classes() -> None:
    with pytest.raises(ConfigError, match=r"softmaxloss_conf.topk: expected at most 3"):
        wire("SoftmaxLoss", [source((2, 3)), source((2,))], softmaxloss_conf={"topk": 4})


@pytest.mark.parametrize("learnt_target", [False, True])
def test_euclidean_loss(learnt_target: bool) -> None:
    layer = wire("EuclideanLoss", [source((4, 2, 3, 2)), source((4, 4, 3), seed=1, grad=learnt_target)])
    loss = metric(layer, "loss")
    # the gradient is that of half of what is reported
    check_gradients(layer, lambda: loss() / 2)


def test_euclidean_loss_figure() -> None:
    x, t = source((2, 2)), source((2, 2), grad=False)
    x.data[...], t.data[...] = [[1, 2], [3, 4]], [[1, 0], [0, 4]]
    layer = wire("EuclideanLoss", [x, t])
    forward(layer)
    assert layer.metrics.take()["loss"] == (pytest.approx((4 + 9) / 2), 1)


def test_euclidean_loss_wants_equal_sizes() -> None:
    with pytest.raises(ConfigError, match=r"'src0' has shape \(2, 3\), and 'src1' has \(2, 4\)"):
        wire("EuclideanLoss", [source((2, 3)), source((2, 4))])


WEIGHTS = [2.0, 0.0, 1.0, 0.5]


def weights_of(values: Sequence[float]) -> Feature:
    """Return a source with a weight for each record."""
    feature = source((len(values), 1), grad=False)
    feature.data[...] = np.reshape(values, (-1, 1))
    return feature


def test_weights_scale_the_loss_of_each_record() -> None:
    labels = source((4,), labels=[0, 2, 1, 2], grad=False)
    for smoothing in (0.0, 0.2):
        block = {"scale": 2.0, "label_smoothing": smoothing}
        layer = wire("SoftmaxLoss", [source((4, 3, 2)), labels, weights_of(WEIGHTS)], softmaxloss_conf=block)
        check_gradients(layer, metric(layer, "loss"))
    compared = [source((4, 2, 3, 2)), source((4, 12), seed=1), weights_of(WEIGHTS)]
    layer = wire("EuclideanLoss", compared)
    loss = metric(layer, "loss")
    check_gradients(layer, lambda: loss() / 2)


@pytest.mark.parametrize("kind", ["SoftmaxLoss", "EuclideanLoss"])
def test_a_weight_of_two_is_the_record_twice(kind: str) -> None:
    def computed(rows: Sequence[int], *more: Feature) -> tuple[Layer, Any]:
        x, y = (
            source((len(rows), 3)),
            source((len(rows), 3), grad=False, labels=[rows[i] % 3 for i in range(len(rows))]),
        )
        for each, seed in ((x, 0), (y, 1)):
            each.data[...] = np.random.default_rng(seed).normal(size=(4, 3))[rows]
        layer = wire(kind, [x, y, *more])
        forward(layer)
        backward(layer)
        return layer, x.grad

    weighted, grad = computed([0, 1, 2, 3], weights_of([2, 0, 1, 3]))
    repeated, grads = computed([0, 0, 2, 3, 3, 3])
    # the sum is divided by the records, not by their weights
    assert weighted.metrics.take()["loss"][0] == pytest.approx(repeated.metrics.take()["loss"][0] * 6 / 4)
    added = np.array([grads[:2].sum(0), np.zeros(3), grads[2], grads[3:].sum(0)])
    np.testing.assert_allclose(grad, added * 6 / 4, atol=1e-12)


def test_accuracy_has_no_weights() -> None:
    x, labels = source((4, 3)), source((4,), labels=[0, 2, 1, 2], grad=False)
    found = []
    for more in ([], [weights_of(WEIGHTS)]):
        layer = wire("SoftmaxLoss", [x, labels, *more])
        forward(layer)
        found.append(layer.metrics.take()["accuracy"])
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["SoftmaxLoss", "EuclideanLoss"])
def test_weights_are_one_for_each_row_and_given(kind: str) -> None:
    sources = [source((4, 3)), source((4, 3), labels=[0, 1, 2, 0], grad=False)]
    with pytest.raises(
        ConfigError, match=r"srclayers\[2\]: 'src2' has shape \(4, 3\), expected \(4, 1\): a weight for each row"
    ):
        wire(kind, [*sources, source((4, 3), grad=False)])
    with pytest.raises(
        ConfigError, match=r"learns\. Expected constant values: a weight for each row\. .* a WeightInput"
    ):
        wire(kind, [*sources, source((4, 1))])
    with pytest.raises(ConfigError, match=r"Sigmoid takes 1 source layer, not 2"):
        wire("Sigmoid", [sources[0], weights_of(WEIGHTS)])


def pixels(n_classes: int = 3, size: int = 6, dtype: Any = np.float64, **block: Any) -> Layer:
    sources = [source((2, n_classes, 2, 3)), source((2, size), grad=False, dtype=dtype)]
    sources[1].data[...] = 0
    return wire("PixelSoftmaxLoss", sources, pixelsoftmaxloss_conf=block)


def test_labels_of_pixels_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match=r"expected \(2, 6\): a label for each pixel"):
        pixels(size=5)
    with pytest.raises(ConfigError, match=r"bf16 is exact only for labels up to 256\. Use float32 for 257 classes"):
        pixels(257, dtype=np.float16)
    layer = pixels()
    for wrong, message in ((0.5, "label 0.5 from 'src1' is not an integer"), (3, "label 3 is out of range")):
        layer.sources[1].data[1, 2] = wrong
        with pytest.raises(DataError, match=message):
            forward(layer)


def test_rows_that_are_all_ignored_change_nothing() -> None:
    x, labels = source((3, 4)), source((3,), labels=[-1, -1, -1], grad=False)
    layer = wire("SoftmaxLoss", [x, labels], softmaxloss_conf={"ignore_index": -1})
    forward(layer)
    backward(layer)
    assert not np.any(x.grad)
    assert layer.metrics.take() == {"loss": (0, 0), "accuracy": (0, 0)}


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"class_weights": [1.0, 2.0]}, "class_weights: expected a number for each of 3 classes, got 2"),
        ({"focal_gamma": 2, "label_smoothing": 0.1}, "label_smoothing is set, too"),
    ],
)
def test_blocks_that_make_no_sense(block: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        wire("SoftmaxLoss", [source((2, 3)), source((2,), labels=[0, 1], grad=False)], softmaxloss_conf=block)


def test_records_at_one_place_that_differ_have_no_direction() -> None:
    x, other, alike = source((2, 3)), source((2, 3)), source((2, 1), grad=False)
    other.data[...], alike.data[...] = x.data, 0
    layer = wire("ContrastiveLoss", [x, other, alike], contrastiveloss_conf={"margin": 5.0})
    forward(layer)
    backward(layer)
    assert layer.metrics.take()["loss"] == (pytest.approx(12.5), 1)
    assert x.grad is not None and not x.grad.any()


def test_whether_records_are_alike_is_one_constant_for_each_row() -> None:
    pair = [source((4, 3)), source((4, 3))]
    with pytest.raises(ConfigError, match=r"'src2' has shape \(4, 3\), expected \(4, 1\): 1 or 0 for each row"):
        wire("ContrastiveLoss", [*pair, source((4, 3), grad=False)])
    with pytest.raises(ConfigError, match=r"learns\. Expected constant values: 1 or 0 for each row\. .* a TargetInput"):
        wire("ContrastiveLoss", [*pair, source((4, 1))])
