"""The cases of all layers: gradients, and the same numbers by oneDNN and in bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.layers import Layer
from singa_dask.ops import BFLOAT16, NumpyOps, get_ops
from tests.layers.cases import Case, all_cases, made, shown
from tests.layers.exam import CPU, backward, check_gradients, forward

CASES_OF_ALL = all_cases()


def onednn(precision: str) -> NumpyOps:
    try:
        return get_ops("onednn", precision)
    except ConfigError as error:
        pytest.skip(str(error))


def results(layer: Layer) -> list[Any]:
    """Run a layer forward and back; return what it has written."""
    random = np.random.default_rng(5)
    forward(layer)
    for feature in layer.features:
        if feature.grad is not None:
            layer.ops.copy(random.normal(size=feature.shape), out=feature.grad)
    backward(layer)
    found = [feature.data for feature in layer.features] + [each.grad for each in layer.sources]
    return [np.asarray(values, np.float64) for values in found + [param.grad for param in layer.params]]


def agree(layer: Layer, wanted: Layer, within: float) -> None:
    for actual, expected in zip(results(layer), results(wanted), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=within, atol=within * np.abs(expected).max())


@pytest.mark.parametrize("case", CASES_OF_ALL, ids=shown)
def test_gradients_are_those_of_the_outputs(case: Case) -> None:
    check_gradients(made(case))


@pytest.mark.parametrize("case", CASES_OF_ALL, ids=shown)
def test_onednn_computes_what_numpy_does(case: Case) -> None:
    agree(made(case, onednn("float32"), dtype=np.float32), made(case), 1e-5)


@pytest.mark.parametrize("case", CASES_OF_ALL, ids=shown)
def test_bfloat16_is_near(case: Case) -> None:
    ops = onednn("bf16")
    layer = made(case, ops, dtype=BFLOAT16)
    assert {param.grad.dtype for param in layer.params} <= {np.dtype(np.float32)}
    agree(layer, made(case), 2.0**-5)


def test_every_case_is_of_a_layer_that_can_be_wired() -> None:
    assert all(made(case, CPU).features for case in CASES_OF_ALL)
