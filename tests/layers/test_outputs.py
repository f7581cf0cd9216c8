"""Output layers: order of ties, and accuracy."""

from __future__ import annotations

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError
from singa_dask.layers import Context
from singa_dask.testing.case import forward, source, wire

TEST = Context(phase=Phase.TEST)


def test_argsort_and_its_ties() -> None:
    scores = source((2, 4), grad=False)
    scores.data[...] = [[1, 3, 3, 2], [4, 3, 2, 1]]
    layer = wire("ArgSort", [scores], TEST, argsort_conf={"topk": 3})
    forward(layer)
    np.testing.assert_array_equal(layer.features[0].data, [[2, 1, 3], [0, 1, 2]])
    with pytest.raises(ConfigError, match=r"argsort_conf.topk: expected at most 4"):
        wire("ArgSort", [scores], TEST, argsort_conf={"topk": 5})


@pytest.mark.parametrize(("topk", "right"), [(1, 1), (2, 2), (3, 3)])
def test_accuracy(topk: int, right: int) -> None:
    scores, labels = source((3, 4), grad=False), source((3,), labels=[2, 1, 2], grad=False)
    scores.data[...] = [[1, 3, 3, 2], [4, 3, 2, 1], [4, 3, 2, 1]]
    layer = wire("Accuracy", [scores, labels], TEST, argsort_conf={"topk": topk})
    forward(layer)
    forward(layer)
    assert layer.metrics.take() == {"accuracy": (pytest.approx(2 * right / 3), 2)}


def test_scores_may_be_images() -> None:
    scores, labels = source((3, 2, 2, 2), grad=False), source((3,), labels=[5, 0, 6], grad=False)
    rows = scores.data.reshape(3, -1)
    layer = wire("Accuracy", [scores, labels], TEST, argsort_conf={"topk": 4})
    forward(layer)
    best = np.argsort(-rows, axis=1)[:, :4]
    np.testing.assert_array_equal(layer.features[0].data, best)
    right = sum(label in row for label, row in zip([5, 0, 6], best, strict=True))
    assert layer.metrics.take() == {"accuracy": (pytest.approx(right / 3), 1)}
