"""Linear: the rate changes by the same amount in each step."""

from __future__ import annotations

from singa_dask.conf.model import Conf, NonNegative, Size
from singa_dask.training.schedules.schedule import SCHEDULES, Schedule

__all__ = ["Linear", "LinearConf"]


class LinearConf(Conf):
    """``linear_conf``: the rate goes from ``base_lr`` to ``final_lr`` in ``change_freq`` steps."""

    change_freq: Size
    """Steps until the final rate."""
    final_lr: NonNegative
    """Final rate."""
    clamp: bool = True
    """Stay at ``final_lr`` after ``change_freq`` steps; false goes on falling, below zero, as SINGA does."""


@SCHEDULES.register()
class Linear(Schedule):
    """(1 - t / f) b + t / f final_lr until f, then final_lr; without ``clamp`` it runs on, below zero, as in SINGA."""

    block = LinearConf

    def __call__(self, step: int) -> float:
        block = self.conf.block(LinearConf)
        part = step / block.change_freq
        if block.clamp:
            part = min(part, 1.0)
        return (1 - part) * self.base + part * block.final_lr
