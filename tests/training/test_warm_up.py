"""WarmUp: its rates around another schedule, whose conf is inside of its block."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from singa_dask.api import REGISTRIES
from singa_dask.conf.updater import LRGenConf
from singa_dask.training import SCHEDULES

STEP = {"type": "Step", "base_lr": 0.5, "step_conf": {"gamma": 0.1, "change_freq": 60}}


def conf(schedule: dict[str, Any], registries: Any = REGISTRIES) -> LRGenConf:
    values = {"type": "WarmUp", "warmup_conf": {"n_steps": 5, "schedule": schedule}}
    return LRGenConf.model_validate(values, context={"registries": registries})


@pytest.mark.parametrize("registries", [REGISTRIES, None])
def test_rates(registries: Any) -> None:
    schedule = SCHEDULES.find("WarmUp")(conf(STEP, registries))
    rates = {0: 0.1, 1: 0.2, 3: 0.4, 4: 0.5, 59: 0.5, 60: 0.05, 120: 0.005}
    assert {step: schedule(step) for step in rates} == pytest.approx(rates, rel=1e-12)


def test_the_other_schedule_is_checked_too() -> None:
    with pytest.raises(ValidationError) as caught:
        conf({**STEP, "step_conf": {"gamma": 0.1}})
    [found] = caught.value.errors()
    assert found["loc"] == ("warmup_conf", "schedule", "step_conf", "change_freq")
    with pytest.raises(ValidationError, match="unknown learning-rate schedule 'Stepp'"):
        conf({"type": "Stepp"})
