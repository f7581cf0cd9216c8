"""The cases of all layers pass the exam."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from singa_dask.testing.case import Case
from singa_dask.testing.examine import examine
from singa_dask.testing.layer_exam import LAYER_ASPECTS
from tests.layers.cases import exam_cases, shown

ASPECTS = {name: check for name, check in LAYER_ASPECTS.items() if name != "GPU"}  # see tests/gpu
PLAIN = 2


def cases() -> list[Any]:
    """Return all cases; those of a kind that has more than a few are long."""
    seen: Counter[str] = Counter()
    made = []
    for case in exam_cases():
        seen[case.kind] += 1
        made.append(pytest.param(case, marks=[pytest.mark.long] if seen[case.kind] > PLAIN else []))
    return made


@pytest.mark.parametrize("case", cases(), ids=shown)
def test_a_layer_passes_the_exam(case: Case) -> None:
    examine(case.kind, {name: partial(check, case) for name, check in ASPECTS.items()})
