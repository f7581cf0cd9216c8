"""Step: the rate is multiplied by a factor every so many steps."""

from __future__ import annotations

from singa_dask.conf.model import Conf, Size
from singa_dask.training.schedules.schedule import SCHEDULES, Schedule

__all__ = ["Step", "StepConf"]


class StepConf(Conf):
    """``step_conf``: every ``change_freq`` steps the rate is multiplied by ``gamma``."""

    gamma: float = 1.0
    """Factor."""
    change_freq: Size
    """Steps between two changes."""


@SCHEDULES.register()
class Step(Schedule):
    """b gamma^floor(t / f)."""

    block = StepConf

    def __call__(self, step: int) -> float:
        block = self.conf.block(StepConf)
        return float(self.base * block.gamma ** (step // block.change_freq))
