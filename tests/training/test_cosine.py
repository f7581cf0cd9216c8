"""Cosine: its rates, and what its block may say."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from singa_dask.api import REGISTRIES
from singa_dask.conf import LRGenConf
from singa_dask.training import SCHEDULES


def test_rates() -> None:
    block = {"change_freq": 8, "final_lr": 0.1}
    schedule = SCHEDULES.find("Cosine")(
        LRGenConf.model_validate({"type": "Cosine", "base_lr": 0.5, "cosine_conf": block})
    )
    assert schedule(0) == pytest.approx(0.5, rel=1e-15)
    assert schedule(2) == pytest.approx(0.3 + 0.2 * math.sqrt(0.5), rel=1e-15)
    assert schedule(4) == pytest.approx(0.3, rel=1e-15)
    assert schedule(8) == schedule(9) == schedule(10**6) == pytest.approx(0.1, rel=1e-15)


def test_a_job_without_its_steps() -> None:
    with pytest.raises(ValidationError, match="Cosine needs this block, with change_freq, and it is missing"):
        LRGenConf.model_validate({"type": "Cosine"}, context={"registries": REGISTRIES})
