"""How servers change params (SINGA's UpdaterProto), and the learning rate over time (LRGenProto)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from singa_dask.conf.model import NonNegative, Positive, RegisteredName
from singa_dask.conf.part import PartConf

__all__ = ["DecayRate", "LRGenConf", "UpdaterConf"]

DecayRate = Annotated[float, Field(ge=0, lt=1)]


class LRGenConf(PartConf):
    """``learning_rate`` (SINGA's LRGenProto)."""

    kind: ClassVar[str] = "schedule"
    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    type: Annotated[str, Field(min_length=1), RegisteredName("schedule")]
    """How the rate changes."""
    base_lr: NonNegative = 0.01
    """First rate."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's own schedule."""


class UpdaterConf(PartConf):
    """``updater`` (SINGA's UpdaterProto)."""

    kind: ClassVar[str] = "updater"
    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    type: Annotated[str, Field(min_length=1), RegisteredName("updater")]
    """Update rule."""
    learning_rate: LRGenConf
    """Learning rate over time."""
    momentum: DecayRate = 0.0
    """Decay rate of the velocity; for SGD and Nesterov."""
    weight_decay: NonNegative = 0.0
    """L2 penalty."""
    delta: Positive = 1e-8
    """Added to a denominator to keep it from zero."""
    clip_low: float = 0.0
    """Lower bound of each gradient value, used if clip_high is greater. It holds for the gradient that is applied, the
    mean over the batch of the whole worker group; SINGA clips the sum over workers before it averages."""
    clip_high: float = 0.0
    """Upper bound of each gradient value, used if it is greater than clip_low."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's own updater."""
