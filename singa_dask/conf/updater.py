"""How servers change params (SINGA's UpdaterProto), and the learning rate over time (LRGenProto)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from pydantic import Field

from singa_dask.conf.model import (
    Conf,
    Count,
    Finding,
    Many,
    NonNegative,
    Positive,
    Size,
    as_list,
    known,
    look,
    plain_name,
)

__all__ = [
    "AdaDeltaConf",
    "AdamConf",
    "AdamMaxConf",
    "ExponentialConf",
    "FixedStepConf",
    "InverseConf",
    "InverseTConf",
    "LRGenConf",
    "LinearConf",
    "RMSPropConf",
    "StepConf",
    "UpdaterConf",
]

Decay = Annotated[float, Field(ge=0, lt=1)]


class FixedStepConf(Conf):
    """``fixedstep_conf``: from ``step[i]`` on, the rate is ``step_lr[i]``."""

    step: Many[Count] = Field(min_length=1)
    """Steps at which the rate changes, rising."""
    step_lr: Many[NonNegative] = Field(min_length=1)
    """Rates, as many as steps."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that lengths are equal and steps rise."""
        steps, rates = as_list(data.get("step")), as_list(data.get("step_lr"))
        if steps and rates and len(steps) != len(rates):
            yield ("step_lr",), f"expected as many rates as there are steps, {len(steps)}, got {len(rates)}."
        if all(isinstance(step, int) for step in steps):
            for place, (before, after) in enumerate(pairwise(steps), start=1):
                if after <= before:
                    yield ("step", place), f"expected steps that rise, got {after} after {before}."


class StepConf(Conf):
    """``step_conf``: every ``change_freq`` steps the rate is multiplied by ``gamma``."""

    gamma: float = 1.0
    """Factor."""
    change_freq: Size
    """Steps between two changes."""


class LinearConf(Conf):
    """``linear_conf``: the rate goes from ``base_lr`` to ``final_lr`` in ``change_freq`` steps."""

    change_freq: Size
    """Steps until the final rate."""
    final_lr: NonNegative
    """Final rate."""
    clamp: bool = True
    """Stay at ``final_lr`` after ``change_freq`` steps; false goes on falling, below zero, as SINGA does."""


class ExponentialConf(Conf):
    """``exponential_conf``: the rate is halved in ``change_freq`` steps."""

    change_freq: Size
    """Steps in which the rate is halved."""


class InverseConf(Conf):
    """``inverse_conf``: ``base_lr * (1 + gamma * step) ** -pow``."""

    gamma: NonNegative = 1.0
    """Weight of the step."""
    pow: float = 0.0
    """Exponent."""


class InverseTConf(Conf):
    """``inverset_conf``: ``base_lr / (1 + step / final_lr)``."""

    final_lr: Positive
    """Steps in which the rate is halved first (SINGA's name)."""


class LRGenConf(Conf):
    """``learning_rate`` (SINGA's LRGenProto)."""

    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    type: Annotated[str, Field(min_length=1), known("schedule")]
    """How the rate changes."""
    base_lr: NonNegative = 0.01
    """First rate."""
    fixedstep_conf: FixedStepConf | None = None
    """For FixedStep."""
    step_conf: StepConf | None = None
    """For Step."""
    linear_conf: LinearConf | None = None
    """For Linear."""
    exponential_conf: ExponentialConf | None = None
    """For Exponential."""
    inverse_conf: InverseConf | None = None
    """For Inverse."""
    inverset_conf: InverseTConf | None = None
    """For InverseT."""
    user_conf: dict[str, Any] = Field(default={})
    """What a schedule of the user's own wants to know."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that the block of the type is there."""
        kind = plain_name(look(data, "type", str, ""))
        name = f"{kind.lower()}_conf"
        if name in cls.model_fields and kind != "user" and data.get(name) is None:
            yield (name,), f"{kind} needs this block, and it is missing."


class RMSPropConf(Conf):
    """``rmsprop_conf``."""

    rho: Decay
    """Part of the mean of squares that is kept."""


class AdaDeltaConf(Conf):
    """``adadelta_conf``."""

    rho: Decay = 0.9
    """Part of the means of squares that is kept."""


class AdamConf(Conf):
    """``adam_conf``."""

    beta1: Decay = 0.9
    """Part of the mean that is kept."""
    beta2: Decay = 0.999
    """Part of the mean of squares that is kept."""
    bias_correction: bool = True
    """Correct the means for their start at zero, as the paper does; SINGA does not."""


class AdamMaxConf(AdamConf):
    """``adammax_conf``."""


class UpdaterConf(Conf):
    """``updater`` (SINGA's UpdaterProto)."""

    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    type: Annotated[str, Field(min_length=1), known("updater")]
    """Update rule."""
    learning_rate: LRGenConf
    """Learning rate over time."""
    momentum: Decay = 0.0
    """Part of the last change that is made again; for SGD and Nesterov."""
    weight_decay: NonNegative = 0.0
    """L2 penalty."""
    delta: Positive = 1e-8
    """Keeps a denominator from zero."""
    clip_low: float = 0.0
    """Lower bound of each gradient value, used if clip_high is greater. It holds for the gradient that is applied, the
    mean over the batch of the whole worker group; SINGA clips the sum over workers before it averages."""
    clip_high: float = 0.0
    """Upper bound of each gradient value, used if it is greater than clip_low."""
    rmsprop_conf: RMSPropConf | None = None
    """For RMSProp, which needs it."""
    adadelta_conf: AdaDeltaConf = AdaDeltaConf()
    """For AdaDelta."""
    adam_conf: AdamConf = AdamConf()
    """For Adam and AdamW."""
    adammax_conf: AdamMaxConf = AdamMaxConf()
    """For AdamMax."""
    user_conf: dict[str, Any] = Field(default={})
    """What an updater of the user's own wants to know."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that RMSProp has its rho: there is no default."""
        if plain_name(look(data, "type", str, "")) == "RMSProp" and data.get("rmsprop_conf") is None:
            yield ("rmsprop_conf",), "RMSProp needs this block, with rho, and it is missing."
