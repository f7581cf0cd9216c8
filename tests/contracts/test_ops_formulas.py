"""The contract of kernels of formulas: every operation, in every place, against numpy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.ops import NumpyOps, OneDnnOps, get_ops
from singa_dask.ops.formulas import Formula
from singa_dask.ops.onednn import chains
from tests.contracts.arrays import LAYOUTS, Array, blank, draw, get, lay, put
from tests.selection import mostly_long

SHAPES = [(5, 9), (1, 1, 1, 1), (3, 5, 4, 3), (7, 33, 17, 19)]
# value, derivative, and both in float64
FORMULAS: dict[str, tuple[str, str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "mish": (
        "w = exp(min(x, 20)); x / (1 + 2 / (w * (w + 2)))",
        "w = exp(min(x, 20)); d = 1 / ((w + 1) ** 2 + 1); ((w + 1) * x * d * 4 + w + 2) * w * d",
        lambda x: x * np.tanh(np.logaddexp(0, x)),
        lambda x: np.tanh(np.logaddexp(0, x)) + x / (1 + np.exp(-x)) / np.cosh(np.logaddexp(0, x)) ** 2,
    ),
    "with constants": (
        "1 - (2 - 3 * x / 4 - 1) / 2 + 1 / (5 + -x)",
        "0.375 + 1 / (5 - x) ** 2",
        lambda x: 1 - (1 - 0.75 * x) / 2 + 1 / (5 - x),
        lambda x: 0.375 + 1 / (5 - x) ** 2,
    ),
    "of arrays": (
        "a = tanh(x); b = sigmoid(x); (a - b) / (b + 1) * (b - a) - x / (a ** 2 + 1)",
        "max(x, 0) - min(x, abs(x) - 1) + max(1, x) * min(x + 1, 2 * x)",
        lambda x: -((np.tanh(x) - 1 / (1 + np.exp(-x))) ** 2) / (1 / (1 + np.exp(-x)) + 1) - x / (np.tanh(x) ** 2 + 1),
        lambda x: np.maximum(x, 0) - np.minimum(x, abs(x) - 1) + np.maximum(1, x) * np.minimum(x + 1, 2 * x),
    ),
    "logarithms": (
        "log(1 + exp(-abs(x))) + max(x, 0)",
        "sqrt(x ** 2 + 1) / x + x / sqrt(x * x + 1) - x - (x + x)",
        lambda x: np.logaddexp(0, x),
        lambda x: np.sqrt(x * x + 1) / x + x / np.sqrt(x * x + 1) - 3 * x,
    ),
    "a root": (
        "sqrt(x ** 2 + 1) / 2",
        "x / sqrt(x * x + 1) / 2",
        lambda x: np.sqrt(x * x + 1) / 2,
        lambda x: x / np.sqrt(x * x + 1) / 2,
    ),
    "x and a number": ("x", "1", lambda x: x, lambda x: 1.0 + 0 * x),
    "an earlier step": ("a = exp(x); b = a * 2; a", "2 * 3", lambda x: np.exp(x), lambda x: 6.0 + 0 * x),
    "a number": ("2.5", "0", lambda x: 2.5 + 0 * x, lambda x: 0 * x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", mostly_long(FORMULAS, 2))
def test_formula(ops: NumpyOps, dtype: Any, random: Any, name: str, shape: Any, layout: str) -> None:
    value, derivative, f, slope = FORMULAS[name]
    formula = Formula(value, derivative)
    x, gy = lay(2 * draw(random, shape, dtype), layout), lay(draw(random, shape, dtype), layout)
    wide, tolerance = x.astype(np.float64), 2e-6 if dtype == np.float32 else 1e-12
    wanted, wanted_grad = f(wide), gy.astype(np.float64) * slope(wide)
    x, gy = put(ops, x), put(ops, gy)
    y, gx = (put(ops, blank(shape, dtype, layout)) for _ in range(2))
    ops.elementwise(x, y, formula)
    ops.elementwise_grad(x, gy, gx, formula)
    for found, correct in ((y, wanted), (gx, wanted_grad)):
        np.testing.assert_allclose(get(ops, found), correct, rtol=tolerance, atol=tolerance)
    ops.elementwise_grad(x, gy, gy, formula)
    np.testing.assert_array_equal(get(ops, gy), get(ops, gx))
    ops.elementwise(x, x, formula)
    np.testing.assert_array_equal(get(ops, x), get(ops, y))


def test_large_values_pass(ops: NumpyOps, dtype: Any) -> None:
    formula = Formula(*FORMULAS["mish"][:2])
    x = put(ops, np.array([[-1e4, -50.0, 0.0, 50.0, 1e4]], dtype))
    y, gx = ops.empty(x.shape, dtype), ops.empty(x.shape, dtype)
    ops.elementwise(x, y, formula)
    np.testing.assert_allclose(get(ops, y), [[0, 0, 0, 50, 1e4]], atol=1e-6)
    ops.elementwise_grad(x, put(ops, np.ones(x.shape, dtype)), gx, formula)
    np.testing.assert_allclose(get(ops, gx), [[0, 0, 0.6, 1, 1]], atol=1e-6)


@pytest.fixture
def onednn() -> OneDnnOps:
    ops = get_ops("onednn")
    assert isinstance(ops, OneDnnOps)
    return ops


@pytest.mark.parametrize("name", sorted(FORMULAS.keys() - {"logarithms"}))
def test_formulas_of_onednn_in_pieces_have_the_bits_of_the_whole(
    onednn: OneDnnOps, monkeypatch: pytest.MonkeyPatch, random: Any, name: str
) -> None:
    value, derivative, f, slope = FORMULAS[name]
    formula = Formula(value, derivative)
    x, gy = (draw(random, (1000,), np.float32) for _ in range(2))
    wide = x.astype(np.float64)
    found: list[Array] = []
    for size in (1 << 20, 64):
        monkeypatch.setattr(chains, "PIECE_VALUES", size)
        ops = OneDnnOps()
        y, gx = np.empty_like(x), np.empty_like(x)
        ops.elementwise(x, y, formula)
        ops.elementwise_grad(x, gy, gx, formula)
        assert not ops._logged  # none of them is numpy's
        found += [y, gx]
    np.testing.assert_array_equal(found[2], found[0])
    np.testing.assert_array_equal(found[3], found[1])
    np.testing.assert_allclose(found[0], f(wide), rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(found[1], gy * slope(wide), rtol=2e-6, atol=2e-6)


def test_mish_takes_few_passes() -> None:
    formula = Formula(*FORMULAS["mish"][:2])
    assert len(chains.chains_of(formula.forward)) == 2
    assert len(chains.chains_of(formula.backward)) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x +", "it is not an expression"),
        ("", "it is not an expression"),
        ("y * x", "unknown name 'y'"),
        ("erf(x)", r"'erf\(x\)' is not supported"),
        ("max(x)", r"'max\(x\)' is not supported"),
        ("x ** 3", r"'x \*\* 3' is not supported"),
        ("x if x else 1", "'x if x else 1' is not supported"),
        ("'1'", "\"'1'\" is not supported"),
        ("True", "'True' is not supported"),
        ("x * 1e39", r"'1e\+39' is not supported"),
        ("x / (1 - 1)", "it divides by 0"),
        ("y = x", "its last part is not an expression"),
        ("x; x", "expected assignments before its last part"),
        ("import os; x", "expected assignments before its last part"),
    ],
)
def test_what_a_formula_refuses(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=rf"formula .*: {words}.* Expected x, numbers, \+ - \* /, \*\* 2, exp, log"):
        Formula(text, "1")
    with pytest.raises(ConfigError, match=words):
        Formula("x", text)
