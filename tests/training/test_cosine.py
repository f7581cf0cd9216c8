"""Cosine: its rates, and what its block may say."""

from __future__ import annotations

import math

import pytest

from singa_dask.conf.updater import LRGenConf
from singa_dask.errors import ConfigError
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


def test_restarts() -> None:
    block = {"change_freq": 4, "restart_factor": 2}
    conf = LRGenConf.model_validate({"type": "Cosine", "base_lr": 1, "cosine_conf": block})
    schedule = SCHEDULES.find("Cosine")(conf)
    # periods of 4, 8 and 16 steps
    starts = [step for step in range(28) if schedule(step) == 1.0]
    assert starts == [0, 4, 12]
    assert schedule(2) == schedule(8) == schedule(20) == pytest.approx(0.5)


def test_one_cycle() -> None:
    block = {"change_freq": 101, "rising_part": 0.5, "first_factor": 10, "final_factor": 100}
    conf = LRGenConf.model_validate({"type": "OneCycle", "base_lr": 1, "onecycle_conf": block})
    schedule = SCHEDULES.find("OneCycle")(conf)
    rates = [schedule(step) for step in range(120)]
    assert (rates[0], rates[100], rates[119]) == pytest.approx((0.1, 0.001, 0.001))
    top = rates.index(max(rates))
    assert top in (49, 50)
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)


def test_a_rate_without_its_steps() -> None:
    schedule = SCHEDULES.find("Cosine")(LRGenConf(type="Cosine"))
    with pytest.raises(ConfigError, match="cosine_conf: change_freq is missing, and no job sets the number of steps"):
        schedule(0)
