"""Exponential: the rate is halved every so many steps, smoothly."""

from __future__ import annotations

from singa_dask.conf.model import Conf, Size
from singa_dask.training.schedules.schedule import SCHEDULES, Schedule

__all__ = ["Exponential", "ExponentialConf"]


class ExponentialConf(Conf):
    """``exponential_conf``: the rate is halved in ``change_freq`` steps."""

    change_freq: Size
    """Steps in which the rate is halved."""


@SCHEDULES.register()
class Exponential(Schedule):
    """b / 2^(t / f)."""

    block = ExponentialConf

    def __call__(self, step: int) -> float:
        block = self.conf.block(ExponentialConf)
        return float(self.base * 2 ** -(step / block.change_freq))
