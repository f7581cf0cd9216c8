"""Figures: sums that are scaled when they are taken, and looked at before."""

from __future__ import annotations

import math

import pytest

from singa_dask.layers.figures import Figures
from singa_dask.ops import get_ops

OPS = get_ops("numpy")


def test_what_was_added_is_scaled_when_it_is_taken() -> None:
    figures = Figures()
    for hits in (57, 58):
        figures.add(OPS, "accuracy", hits, 1.0, scale=2.0, n=100)
        figures.add(OPS, "loss", 0.5, 4.0, scale=1.0, n=1)
    assert figures.take(OPS) == {"accuracy": (2.3, 2.0), "loss": (1.0, 8.0)}
    assert figures.take(OPS) == {}


def test_a_figure_may_be_added_by_several_scales() -> None:
    figures = Figures()
    figures.add(OPS, "loss", 3.0, 1.0, scale=1.0, n=2)
    figures.add(OPS, "loss", 4.0, 1.0, scale=0.5, n=1)
    assert figures.take(OPS) == {"loss": (3.5, 2.0)}


@pytest.mark.parametrize("wait", [False, True])
def test_a_sum_that_is_no_number_shows_before_it_is_taken(wait: bool) -> None:
    figures = Figures()
    figures.add(OPS, "loss", math.inf, 1.0, scale=1.0, n=1)
    assert list(figures.totals(OPS, wait)) == [("loss", math.inf)]
    assert figures.take(OPS) == {"loss": (math.inf, 1.0)}
