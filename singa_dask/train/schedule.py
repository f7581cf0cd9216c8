"""Learning rates over time: each a pure function of the step, after SINGA's src/utils/updater.cc.

In the formulas t is the step, b ``base_lr``, f the ``change_freq`` of the schedule's own block.
"""

from __future__ import annotations

import bisect
from typing import TypeVar

from singa_dask.conf import LRGenConf
from singa_dask.registry import Registry

__all__ = [
    "SCHEDULES",
    "Exponential",
    "Fixed",
    "FixedStep",
    "Inverse",
    "InverseT",
    "Linear",
    "Schedule",
    "Step",
    "displayed_rate",
]

SCHEDULES: Registry[Schedule] = Registry("learning-rate schedule")

B = TypeVar("B")


class Schedule:
    """A learning rate for each step.

    Parameters
    ----------
    conf : LRGenConf
        Its ``user_conf`` is for schedules of the user's own.
    """

    def __init__(self, conf: LRGenConf) -> None:
        self.conf = conf
        self.base = conf.base_lr

    def __call__(self, step: int) -> float:
        """Return the rate at a step, which counts from 0."""
        raise TypeError(f"{type(self).__name__} does not say its rate: it has no __call__()")


def displayed_rate(conf: LRGenConf, step: int) -> float | None:
    """Return the learning rate of a step for people to see.

    None where a schedule of the user's own fails: the server that applies the rate reports that error.
    """
    try:
        return SCHEDULES.find(conf.type)(conf)(step)
    except Exception:
        return None


def _checked(block: B | None) -> B:
    """Return a block that the conf has made sure of."""
    assert block is not None
    return block


@SCHEDULES.register()
class Fixed(Schedule):
    """b."""

    def __call__(self, step: int) -> float:
        return self.base


@SCHEDULES.register()
class Step(Schedule):
    """b gamma^floor(t / f)."""

    def __call__(self, step: int) -> float:
        block = _checked(self.conf.step_conf)
        return float(self.base * block.gamma ** (step // block.change_freq))


@SCHEDULES.register()
class Linear(Schedule):
    """(1 - t / f) b + t / f final_lr until f, then final_lr; without ``clamp`` it runs on, below zero, as in SINGA."""

    def __call__(self, step: int) -> float:
        block = _checked(self.conf.linear_conf)
        part = step / block.change_freq
        if block.clamp:
            part = min(part, 1.0)
        return (1 - part) * self.base + part * block.final_lr


@SCHEDULES.register()
class Exponential(Schedule):
    """b / 2^(t / f)."""

    def __call__(self, step: int) -> float:
        block = _checked(self.conf.exponential_conf)
        return float(self.base * 2 ** -(step / block.change_freq))


@SCHEDULES.register()
class Inverse(Schedule):
    """b (1 + gamma t)^-pow."""

    def __call__(self, step: int) -> float:
        block = _checked(self.conf.inverse_conf)
        return float(self.base * (1 + block.gamma * step) ** -block.pow)


@SCHEDULES.register()
class InverseT(Schedule):
    """b / (1 + t / final_lr)."""

    def __call__(self, step: int) -> float:
        return self.base / (1 + step / _checked(self.conf.inverset_conf).final_lr)


@SCHEDULES.register()
class FixedStep(Schedule):
    """``step_lr[i]`` for the last i with t >= ``step[i]``; the first before them all. ``base_lr`` is not used."""

    def __call__(self, step: int) -> float:
        block = _checked(self.conf.fixedstep_conf)
        return block.step_lr[max(bisect.bisect_right(block.step, step) - 1, 0)]
