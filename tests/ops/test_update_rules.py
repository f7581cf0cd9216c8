"""UpdateRule: its calls of numpy compute what the formula says, operation by operation, and its C++ is the formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops.update_rules import UpdateRule
from singa_dask.training import UPDATERS, updaters

FORMULAS = [updaters.PLAIN, updaters.MOMENTUM, updaters.ADAM, updaters.ADAM_OF_SINGA]
RULES = [
    *FORMULAS,
    *(cls.formula for cls in UPDATERS.classes() if hasattr(cls, "formula")),
    UpdateRule("reads_its_target_last", "lr", "v", "v = g - lr * v; w += v"),
    UpdateRule("reads_its_target_twice", "lr", "v", "v = (v + g) * (v - g); w += v"),
    UpdateRule("keeps_what_is_written", "lr mu", "v", "last = v; v = mu * v - lr * g; w += v - last"),
    UpdateRule("copies", "lr", "v", "w -= lr * (g - v); v = g"),
    UpdateRule("reads_a_local_name_twice", "lr", "", "d = g + w; d2 = d * d; w -= lr * (d2 / d)"),
]


def evaluated(rule: UpdateRule, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values after a formula that Python itself computes, with new arrays for all results."""
    names = {"sqrt": np.sqrt, "abs": np.abs, "max": np.maximum, **values}
    for step in rule.steps:
        name, sign, value = step.split(maxsplit=2)
        names[name] = eval(value if sign == "=" else f"{name} {sign[0]} ({value})", names)
    return {name: names[name] for name in rule.arrays}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_calls_compute_the_formula(rule: UpdateRule, dtype: Any) -> None:
    random = np.random.default_rng(3)
    numbers = dict(zip(rule.numbers, random.uniform(0.1, 0.9, len(rule.numbers)).tolist(), strict=True))
    arrays = {name: random.uniform(0.1, 2, 50).astype(dtype) for name in ["g", *rule.arrays]}
    expected = evaluated(rule, {**numbers, **{name: array.copy() for name, array in arrays.items()}})
    gradient, *changed = (array.copy() for array in arrays.values())
    rule.for_cpu(*numbers.values(), gradient, *np.empty((2, 50), dtype), *changed)
    np.testing.assert_array_equal(gradient, arrays["g"])
    for array, wanted in zip(changed, expected.values(), strict=True):
        assert array.dtype == wanted.dtype == dtype
        np.testing.assert_array_equal(array, wanted)


def test_local_names_have_a_type_in_cpp() -> None:
    rule = UpdateRule("rule", "lr", "v", "last = v; v = last + g; last = lr * v; w -= last")
    assert rule.for_gpu == "T last = v; v = last + g; last = lr * v; w -= last;"
