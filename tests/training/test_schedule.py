"""Learning rates: SINGA's formulas at chosen steps, and the ones that are mended."""

from __future__ import annotations

from typing import Any

import pytest

from singa_dask.conf.updater import LRGenConf
from singa_dask.errors import ConfigError
from singa_dask.training import SCHEDULES

STEPS = {"step": [0, 100, 250], "step_lr": [0.1, 0.01, 0.001]}


@pytest.mark.parametrize(
    ("kind", "conf", "rates"),
    [
        ("Fixed", {}, {0: 0.5, 10**6: 0.5}),
        ("Step", {"step_conf": {"gamma": 0.1, "change_freq": 60}}, {0: 0.5, 59: 0.5, 60: 0.05, 120: 0.005}),
        (
            "Linear",
            {"linear_conf": {"change_freq": 10, "final_lr": 0.1}},
            {0: 0.5, 5: 0.3, 10: 0.1, 11: 0.1, 1000: 0.1},
        ),
        ("Exponential", {"exponential_conf": {"change_freq": 10}}, {0: 0.5, 5: 0.5 / 2**0.5, 10: 0.25, 20: 0.125}),
        ("Inverse", {"inverse_conf": {"gamma": 0.1, "pow": 0.75}}, {0: 0.5, 10: 0.5 * 2**-0.75}),
        ("InverseT", {"inverset_conf": {"final_lr": 4.0}}, {0: 0.5, 4: 0.25, 12: 0.125}),
        ("FixedStep", {"fixedstep_conf": STEPS}, {0: 0.1, 99: 0.1, 100: 0.01, 249: 0.01, 250: 0.001, 9999: 0.001}),
        ("FixedStep", {"fixedstep_conf": {"step": [5], "step_lr": [0.2]}}, {0: 0.2, 5: 0.2}),
    ],
)
def test_rates(kind: str, conf: dict[str, Any], rates: dict[int, float]) -> None:
    schedule = SCHEDULES.find(kind)(LRGenConf.model_validate({"type": kind, "base_lr": 0.5, **conf}))
    for step in (*rates, *reversed(rates)):
        assert schedule(step) == pytest.approx(rates[step], rel=1e-12)


def test_an_unknown_schedule_is_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown learning-rate schedule 'Stepp'\. Did you mean 'Step'"):
        SCHEDULES.find("Stepp")
