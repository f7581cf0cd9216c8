"""Cosine: the rate falls along half a cosine."""

from __future__ import annotations

import math

from singa_dask.conf.model import Conf, NonNegative, Size
from singa_dask.training.schedules.schedule import SCHEDULES, Schedule

__all__ = ["Cosine", "CosineConf"]


class CosineConf(Conf):
    """``cosine_conf``: the rate falls from ``base_lr`` to ``final_lr`` in ``change_freq`` steps."""

    change_freq: Size
    """Steps until the final rate."""
    final_lr: NonNegative = 0.0
    """Final rate; the rate stays there."""


@SCHEDULES.register()
class Cosine(Schedule):
    """final_lr + (b - final_lr) (1 + cos(pi t / f)) / 2 until f, then final_lr.

    The cosine of Loshchilov and Hutter (2017), SGDR, without its restarts.
    """

    block = CosineConf

    def __call__(self, step: int) -> float:
        block = self.conf.block(CosineConf)
        part = min(step / block.change_freq, 1.0)
        return block.final_lr + (self.base - block.final_lr) * (1 + math.cos(math.pi * part)) / 2
