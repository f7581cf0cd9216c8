"""Learning-rate schedules, and their blocks in the job file. After SINGA's src/utils/updater.cc.

In formulas, t is the step and b is ``base_lr``. f is ``change_freq`` of the schedule's block; the default is the number
of steps of the job.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, Field, Many, NonNegative, Positive, Size
from singa_dask.conf.mistakes import Finding
from singa_dask.conf.parts import Part
from singa_dask.conf.updater import LRGenConf
from singa_dask.errors import ConfigError
from singa_dask.registry import Registry

SCHEDULES: Registry[Schedule] = Registry("learning-rate schedule")


class Schedule(Part):
    """A learning rate that depends only on the step.

    Parameters
    ----------
    conf : LRGenConf
        The block ``learning_rate``. Its ``user_conf`` has options of custom schedules.

    Attributes
    ----------
    reads : tuple of str
        Other keys of ``learning_rate`` that the schedule reads.
    base : float
        ``base_lr``.
    """

    reads: ClassVar[tuple[str, ...]] = ("base_lr",)

    def __init__(self, conf: LRGenConf) -> None:
        # read the block once here, and not in each step
        self.conf = conf if self.options_class is None else conf.with_block(conf.block(self.options_class))
        self.base = conf.base_lr

    def __call__(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        raise TypeError(f"{type(self).__name__} does not say its rate: it has no __call__()")

    @classmethod
    def lasting(cls, conf: LRGenConf, n_steps: int) -> LRGenConf:
        """Return ``conf`` with a schedule that ends after ``n_steps``, unless the job sets another end."""
        if cls.options_class is None or not issubclass(cls.options_class, FallingConf):
            return conf
        block = conf.block(cls.options_class)
        if block.change_freq is not None:
            return conf
        return conf.with_block(block.model_copy(update={"change_freq": max(n_steps, 2)}))


SCHEDULES.base = Schedule


def displayed_rate(conf: LRGenConf, step: int) -> float | None:
    """Return the learning rate of a step for display.

    If a custom schedule raises an error, the result is None. The server that applies the rate reports the error.
    """
    try:
        return SCHEDULES.find(conf.type)(conf)(step)
    except Exception:
        return None


@SCHEDULES.register()
class Fixed(Schedule):
    """The rate is always b."""

    def __call__(self, step: int) -> float:
        return self.base


class StepConf(Conf):
    """``step_conf``: every ``change_freq`` steps the rate is multiplied by ``gamma``."""

    gamma: float = 1.0
    """Factor."""
    change_freq: Size
    """Steps between two changes."""


@SCHEDULES.register("Step")
class StepSchedule(Schedule):
    """The rate is b gamma^floor(t / f)."""

    options_class = StepConf

    def __call__(self, step: int) -> float:
        return float(self.base * self.options.gamma ** (step // self.options.change_freq))


class FallingConf(Conf):
    """Base of the blocks of schedules that end after ``change_freq`` steps."""

    change_freq: Size | None = None
    """Steps until the final rate; by default all steps of the job."""

    @property
    def n_steps(self) -> int:
        """Number of steps until the final rate. Raises ConfigError if neither the block nor the job sets it."""
        if self.change_freq is None:
            raise ConfigError(f"{self.block_key}: change_freq is missing, and no job sets the number of steps.")
        return self.change_freq


class LinearConf(FallingConf):
    """``linear_conf``: the rate goes from ``base_lr`` to ``final_lr`` in ``change_freq`` steps."""

    final_lr: NonNegative
    """Final rate."""
    clamp: bool = True
    """Whether the rate stays at ``final_lr`` after ``change_freq`` steps. If false, it keeps falling, also below zero,
    as in SINGA."""


@SCHEDULES.register("Linear")
class LinearSchedule(Schedule):
    """The rate is (1 - t / f) b + t / f final_lr until step f, then final_lr.

    With ``clamp: false`` the rate keeps falling after step f.
    """

    options_class = LinearConf

    def __call__(self, step: int) -> float:
        part = step / self.options.n_steps
        if self.options.clamp:
            part = min(part, 1.0)
        return (1 - part) * self.base + part * self.options.final_lr


class ExponentialConf(Conf):
    """``exponential_conf``: the rate is halved in ``change_freq`` steps."""

    change_freq: Size
    """Steps in which the rate is halved."""


@SCHEDULES.register()
class Exponential(Schedule):
    """The rate is b / 2^(t / f)."""

    options_class = ExponentialConf

    def __call__(self, step: int) -> float:
        return float(self.base * 2 ** -(step / self.options.change_freq))


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
    """Steps until the rate is halved (SINGA's name)."""


@SCHEDULES.register()
class Inverse(Schedule):
    """The rate is b (1 + gamma t)^-pow."""

    options_class = InverseConf

    def __call__(self, step: int) -> float:
        return float(self.base * (1 + self.options.gamma * step) ** -self.options.pow)


@SCHEDULES.register()
class InverseT(Schedule):
    """The rate is b / (1 + t / final_lr)."""

    options_class = InverseTConf

    def __call__(self, step: int) -> float:
        return self.base / (1 + step / self.options.final_lr)


class FixedStepConf(Conf):
    """``fixedstep_conf``: from ``step[i]`` on, the rate is ``step_lr[i]``."""

    step: Many[Count] = Field(min_length=1)
    """Steps at which the rate changes, in rising order."""
    step_lr: Many[NonNegative] = Field(min_length=1)
    """Rates, one for each step."""

    def rules(self) -> Iterator[Finding]:
        """Check that both lists have the same length and that the steps increase."""
        n_steps, n_rates = len(self.step), len(self.step_lr)
        if n_steps != n_rates:
            yield ("step_lr",), f"expected one rate for each of the {n_steps} steps, got {n_rates}."
        for place, (before, after) in enumerate(pairwise(self.step), start=1):
            if after <= before:
                yield ("step", place), f"expected rising steps, got {after} after {before}."


@SCHEDULES.register()
class FixedStep(Schedule):
    """The rate is ``step_lr[i]`` for the last i with t >= ``step[i]``.

    Before ``step[0]`` it is ``step_lr[0]``. ``base_lr`` is not used.
    """

    options_class = FixedStepConf
    reads = ()

    def __call__(self, step: int) -> float:
        return self.options.step_lr[max(bisect.bisect_right(self.options.step, step) - 1, 0)]


class CosineConf(FallingConf):
    """``cosine_conf``: the rate falls from ``base_lr`` to ``final_lr`` in ``change_freq`` steps."""

    change_freq: Size | None = None
    """Steps until the final rate. With ``restart_factor``, the steps of the first period. The default is all steps of
    the job."""
    final_lr: NonNegative = 0.0
    """Final rate; the rate stays there."""
    restart_factor: Size | None = None
    """If set, the rate restarts from ``base_lr`` after each period, and each period is longer than the previous one by
    this factor."""


@SCHEDULES.register()
class Cosine(Schedule):
    """The rate is final_lr + (b - final_lr) (1 + cos(pi t / f)) / 2 until step f, then final_lr.

    This is the cosine schedule of Loshchilov and Hutter (2017), SGDR. With ``restart_factor`` m, the schedule restarts
    at step f and lasts m f steps, then restarts and lasts m^2 f steps, and so on.
    """

    options_class = CosineConf

    def __call__(self, step: int) -> float:
        options = self.options
        period = options.n_steps
        while options.restart_factor is not None and step >= period:
            if options.restart_factor == 1:
                step %= period
            else:
                step, period = step - period, period * options.restart_factor
        return _cosine(self.base, options.final_lr, min(step / period, 1.0))


def _cosine(first: float, last: float, part: float) -> float:
    """Return the rate after the share ``part`` of a half cosine from ``first`` to ``last``."""
    return last + (first - last) * (1 + math.cos(math.pi * part)) / 2


class OneCycleConf(FallingConf):
    """``onecycle_conf``: the rate rises to ``base_lr`` and falls again, in ``change_freq`` steps."""

    change_freq: int | None = Field(default=None, ge=2)
    """Steps until the final rate; by default all steps of the job."""
    rising_part: float = Field(default=0.3, gt=0, lt=1)
    """Fraction of the steps in which the rate rises."""
    first_factor: float = Field(default=25.0, ge=1)
    """The first rate is ``base_lr`` divided by this factor."""
    final_factor: float = Field(default=1e4, ge=1)
    """The final rate is the first rate divided by this factor."""


@SCHEDULES.register()
class OneCycle(Schedule):
    """The rate rises from b / first_factor to b at step r, then falls until step f - 1.

    Both parts are half cosines. Here r is rising_part f - 1. At step f - 1 the rate is b / (first_factor final_factor);
    later it does not change. This is the policy of Smith and Topin (2018), Super-convergence, with a constant momentum.
    """

    options_class = OneCycleConf

    def __call__(self, step: int) -> float:
        options = self.options
        first, rising = self.base / options.first_factor, max(options.rising_part * options.n_steps - 1, 0.0)
        if step < rising:
            return _cosine(first, self.base, step / rising)
        part = (step - rising) / (options.n_steps - 1 - rising)
        return _cosine(self.base, first / options.final_factor, min(part, 1.0))


class WarmUpConf(Conf):
    """``warmup_conf``: the first ``n_steps`` rates of another schedule are scaled down."""

    n_steps: Size
    """Steps until the rate equals the rate of the other schedule."""
    schedule: LRGenConf
    """The other schedule, as in ``learning_rate``: its type, base_lr and block."""


@SCHEDULES.register()
class WarmUp(Schedule):
    """The rate is min((t + 1) / n_steps, 1) s(t), where s is ``schedule``.

    ``base_lr`` beside ``schedule`` is not used. This is the gradual warm-up of Goyal et al. (2017), Accurate, large
    minibatch SGD. Both schedules count steps from 0, so the warm-up does not delay the other schedule.
    """

    options_class = WarmUpConf
    reads = ()

    def __init__(self, conf: LRGenConf) -> None:
        super().__init__(conf)
        self.n_steps, inner = self.options.n_steps, self.options.schedule
        self.schedule = SCHEDULES.find(inner.type)(inner)

    def __call__(self, step: int) -> float:
        return min((step + 1) / self.n_steps, 1.0) * self.schedule(step)

    @classmethod
    def lasting(cls, conf: LRGenConf, n_steps: int) -> LRGenConf:
        block = conf.block(WarmUpConf)
        inner = SCHEDULES.find(block.schedule.type).lasting(block.schedule, n_steps)
        return conf.with_block(block.model_copy(update={"schedule": inner}))
