"""SigmoidCrossEntropyLoss: its gradients, its metrics, and targets that make no sense."""

from __future__ import annotations

import numpy as np
import pytest

from singa_dask.errors import ConfigError, DataError
from singa_dask.layers import Feature, Layer
from singa_dask.testing.case import Case, forward, metric, source, wire
from singa_dask.testing.layer_exam import check_gradients

CASES = [
    Case("SigmoidCrossEntropyLoss", [(4, 3), (4, 3)], fixed=1, integers=2),
    Case("SigmoidCrossEntropyLoss", [(4, 3, 2, 2), (4, 12), (4, 1)], fixed=2, integers=2),
]


def targets(shape: tuple[int, ...], grad: bool = False) -> Feature:
    """Return a source of zeros and ones."""
    made = source(shape, seed=1, grad=grad)
    made.data[...] = made.data > 0
    return made


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2, 2)])
@pytest.mark.parametrize(("learnt_target", "weighted"), [(False, False), (True, False), (True, True)])
def test_gradients(shape: tuple[int, ...], learnt_target: bool, weighted: bool) -> None:
    wanted = source((4, 3, *shape[2:]), seed=1, grad=learnt_target)
    wanted.data[...] = 0.1 + 0.8 / (1 + np.exp(-wanted.data))
    weights = source((4, 1), seed=2, grad=False)
    layer = wire("SigmoidCrossEntropyLoss", [source(shape), wanted, *[weights][:weighted]])
    check_gradients(layer, metric(layer, "loss"))


def figures(layer: Layer) -> dict[str, tuple[float, float]]:
    forward(layer)
    return layer.metrics.take()


def test_metrics() -> None:
    p, t = np.array([[0.9, 0.2, 0.6], [0.3, 0.4, 0.1]]), np.array([[1, 0, 0], [1, 1, 0]])
    scores, wanted = source((2, 3)), targets((2, 3))
    scores.data[...], wanted.data[...] = np.log(p / (1 - p)), t
    layer = wire("SigmoidCrossEntropyLoss", [scores, wanted])
    found = figures(layer)
    assert found["loss"] == (pytest.approx(-np.log(np.where(t, p, 1 - p)).mean()), 1)
    assert found["binary_accuracy"] == (pytest.approx(3 / 6), 1)
    np.testing.assert_allclose(layer.features[0].data, p)


def test_scores_far_from_zero_do_not_overflow() -> None:
    scores, wanted = source((1, 4)), targets((1, 4))
    scores.data[...], wanted.data[...] = [[1000, -1000, 1000, -1000]], [[1, 0, 0, 1]]
    assert figures(wire("SigmoidCrossEntropyLoss", [scores, wanted]))["loss"] == (pytest.approx(500), 1)


@pytest.mark.parametrize("wrong", [-1.0, 2.0, np.nan])
def test_a_target_out_of_range_is_named(wrong: float) -> None:
    wanted = targets((4, 3))
    wanted.data[2, 1] = wrong
    layer = wire("SigmoidCrossEntropyLoss", [source((4, 3)), wanted])
    with pytest.raises(
        DataError, match=rf"layer layer: target {wrong:g} from 'src1' is out of range\. Expected a value from 0 to 1"
    ):
        forward(layer)


def test_each_score_needs_a_target() -> None:
    with pytest.raises(
        ConfigError, match=r"'src0' has shape \(2, 3\), and 'src1' has \(2, 1\)\. Expected a target of 0 or 1"
    ):
        wire("SigmoidCrossEntropyLoss", [source((2, 3)), targets((2, 1))])
