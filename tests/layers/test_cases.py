"""The cases of all layers pass the exam."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest

from singa_dask.layers import Layer
from singa_dask.net.replay import Replays, is_replayable
from singa_dask.ops import get_ops
from singa_dask.testing.case import CPU, Case, results
from singa_dask.testing.examine import compare, examine
from singa_dask.testing.layer_exam import LAYER_ASPECTS
from tests.layers.cases import exam_cases, shown

PLAIN = 2


def cases() -> list[Any]:
    """Return all cases; those of a kind that has more than a few are long."""
    seen: Counter[str] = Counter()
    made = []
    for case in exam_cases():
        seen[case.kind] += 1
        made.append(pytest.param(case, marks=[pytest.mark.long] if seen[case.kind] > PLAIN else []))
    return made


def check_replays(case: Case) -> None:
    """Check that replayed passes of a built-in layer compute the same as its own code."""
    if not is_replayable(case.wired()):
        return
    for ops, dtype in [(CPU, np.float64), (get_ops(), np.float32)]:
        layer, other = case.wired(ops, dtype), case.wired(ops, dtype)
        learns, replays = type(layer).backward is not Layer.backward, Replays(ops)
        for k in range(8):
            for source in (*layer.sources, *other.sources):
                if source.has_data and source.requires_grad:
                    source.data[...] = -source.data
            written = [feature.data for feature in layer.features if feature.own_data and feature.has_data]
            written += [each.grad for each in layer.sources if each.grad is not None]
            written += [each.grad for each in layer.params if each.has_grad]
            for array in written if k else ():
                array[...] = np.nan
            wanted = results(other, back=learns)
            for name, actual in results(layer, back=learns, run=replays.run).items():
                remedy = "Call only kernels of self.ops, the same in each step, or take capturable out of its speed."
                compare(f"{name} of pass {k}, which is replayed,", actual, wanted[name], 0, remedy)


ASPECTS = {name: check for name, check in LAYER_ASPECTS.items() if name != "GPU"}  # see tests/gpu
ASPECTS["replays"] = check_replays


@pytest.mark.parametrize("case", cases(), ids=shown)
def test_a_layer_passes_the_exam(case: Case) -> None:
    examine(case.kind, {name: partial(check, case) for name, check in ASPECTS.items()})
