"""The cases of all layers pass the exam."""

from __future__ import annotations

import pytest

from singa_dask.errors import ConfigError
from singa_dask.testing.case import Case
from singa_dask.testing.exams import LAYER_ASPECTS
from tests.layers.cases import exam_cases, shown


@pytest.mark.parametrize("aspect", [name for name in LAYER_ASPECTS if name != "GPU"])  # see tests/gpu
@pytest.mark.parametrize("case", exam_cases(), ids=shown)
def test_a_layer_passes_the_exam(case: Case, aspect: str) -> None:
    try:
        LAYER_ASPECTS[aspect](case)
    except ConfigError as error:
        assert aspect != "contract"
        pytest.skip(str(error))
