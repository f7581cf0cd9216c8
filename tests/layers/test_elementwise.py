"""Layers by formulas: they pass the exam, and what is no formula is told when the net is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from singa_dask import modules
from singa_dask.errors import ConfigError, PartError
from singa_dask.layers import LAYERS
from singa_dask.layers.activation import Elementwise
from singa_dask.testing import check_layer
from singa_dask.testing.case import source, wire

MISH = Path(__file__).parents[2] / "examples" / "parts" / "mish.py"


class Wrong(Elementwise):
    """Its derivative is that of something else."""

    value = "x ** 2"
    derivative = "x"


class Unreadable(Elementwise):
    """Its value is no formula."""

    value = "erf(x)"
    derivative = "1"


@pytest.mark.parametrize("shape", [(6, 4), (2, 3, 4, 5)])
def test_mish_passes_the_exam(shape: tuple[int, ...]) -> None:
    modules.load(modules.read([str(MISH)]), [LAYERS])
    check_layer("mish.Mish", [shape], n_steps=2 if len(shape) == 2 else 1)


def test_a_wrong_derivative_does_not() -> None:
    with pytest.raises(PartError, match=r"All values are 0\.5 times the expected ones"):
        check_layer(Wrong, [(3, 4)])


def test_what_is_no_formula_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"formula 'erf\(x\)': 'erf\(x\)' is not supported\. Expected x, numbers"):
        wire(Unreadable, [source((3, 4))])
