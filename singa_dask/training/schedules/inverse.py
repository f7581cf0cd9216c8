"""Inverse and InverseT: the rate falls as a power of the step."""

from __future__ import annotations

from singa_dask.conf.model import Conf, NonNegative, Positive
from singa_dask.training.schedules.schedule import SCHEDULES, Schedule

__all__ = ["Inverse", "InverseConf", "InverseT", "InverseTConf"]


class InverseConf(Conf):
    """``inverse_conf``: ``base_lr * (1 + gamma * step) ** -pow``."""

    must_be_given = True

    gamma: NonNegative = 1.0
    """Weight of the step."""
    pow: float = 0.0
    """Exponent."""


class InverseTConf(Conf):
    """``inverset_conf``: ``base_lr / (1 + step / final_lr)``."""

    final_lr: Positive
    """Steps in which the rate is halved first (SINGA's name)."""


@SCHEDULES.register()
class Inverse(Schedule):
    """b (1 + gamma t)^-pow."""

    block = InverseConf

    def __call__(self, step: int) -> float:
        block = self.conf.block(InverseConf)
        return float(self.base * (1 + block.gamma * step) ** -block.pow)


@SCHEDULES.register()
class InverseT(Schedule):
    """b / (1 + t / final_lr)."""

    block = InverseTConf

    def __call__(self, step: int) -> float:
        return self.base / (1 + step / self.conf.block(InverseTConf).final_lr)
