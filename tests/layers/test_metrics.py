"""Metrics: sums that are scaled when they are taken, and inspected before."""

from __future__ import annotations

import math

import pytest

from singa_dask.layers.metrics import Metrics
from singa_dask.ops import get_ops

OPS = get_ops("numpy")


def test_what_was_added_is_scaled_when_it_is_taken() -> None:
    metrics = Metrics(OPS)
    for hits in (57, 58):
        metrics.add("accuracy", hits, 1.0, scale=2.0, n=100)
        metrics.add("loss", 0.5, 4.0, scale=1.0, n=1)
    assert metrics.take() == {"accuracy": (2.3, 2.0), "loss": (1.0, 8.0)}
    assert metrics.take() == {}


def test_a_metric_may_be_added_by_several_scales() -> None:
    metrics = Metrics(OPS)
    metrics.add("loss", 3.0, 1.0, scale=1.0, n=2)
    metrics.add("loss", 4.0, 1.0, scale=0.5, n=1)
    assert metrics.take() == {"loss": (3.5, 2.0)}


@pytest.mark.parametrize("wait", [False, True])
def test_a_sum_that_is_no_number_shows_before_it_is_taken(wait: bool) -> None:
    metrics = Metrics(OPS)
    metrics.add("loss", math.inf, 1.0, scale=1.0, n=1)
    assert list(metrics.totals(wait)) == [("loss", math.inf)]
    assert metrics.take() == {"loss": (math.inf, 1.0)}
