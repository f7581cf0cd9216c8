"""The updater of a job, with its learning rate (SINGA's UpdaterProto)."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar

from pydantic import Field

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Many, NonNegative, Positive, RegisteredName, Size
from singa_dask.conf.parts import PartConf

DecayRate = Annotated[float, Field(ge=0, lt=1)]


class LRGenConf(PartConf):
    """``learning_rate`` (SINGA's LRGenProto)."""

    kind: ClassVar[str] = "schedule"
    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    type: Annotated[str, Field(min_length=1), RegisteredName("schedule")]
    """Schedule of the rate."""
    base_lr: NonNegative = 0.01
    """Initial rate."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's schedule."""


class ScaleConf(Conf):
    """``scales`` of an updater: factors for all params whose names match a pattern."""

    param: str = Field(min_length=1)
    """Pattern of the names of params, such as ``*.bias``."""
    lr_scale: NonNegative = 1.0
    """Multiplies the learning rate."""
    wd_scale: NonNegative = 1.0
    """Multiplies the weight decay."""


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
    """Factor of the L2 penalty."""
    delta: Positive = 1e-8
    """Added to a denominator to avoid a division by zero."""
    clip_low: float = 0.0
    """Lower bound of each gradient value, used if clip_high is greater. The bound applies to the mean gradient of the
    batch of the whole worker group; SINGA clips the sum over workers before it averages."""
    clip_high: float = 0.0
    """Upper bound of each gradient value, used if it is greater than clip_low."""
    clip_norm: NonNegative = 0.0
    """Upper bound of the norm of the gradient of all params together; 0 for none. A larger gradient is multiplied by
    clip_norm / norm, before clip_low, clip_high and weight decay. The norm is computed for the batch of each worker
    group; several worker groups need one server per group. Needs the algorithm BP. Updates wait for the last
    gradient."""
    accumulate: Size = 1
    """Number of batches per update. The update uses the mean of their gradients, as with one larger batch. Needs a
    single worker group. Steps of the job count batches; if batches are missing for an update at the end of the
    training, there is no such update."""
    ema_decay: DecayRate = 0.0
    """Decay rate of moving averages of the params: a = ema_decay a + (1 - ema_decay) w after each update, starting with
    the initial values; 0 for none. Checkpoints have values and averages. Tests and validations during training use
    the values. The commands test, predict, export and serve use the averages, unless their job sets ema_decay: 0.
    Running statistics have no average."""
    scales: Many[ScaleConf] = Field(default=[])
    """Factors of learning rate and weight decay for params whose names match a pattern, in addition to each param's
    own factors."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's updater."""

    def scales_of(self, param: str, lr_scale: float, wd_scale: float) -> tuple[float, float]:
        """Return (lr_scale, wd_scale) of a param, multiplied by the factors of all patterns that match."""
        for scale in self.scales:
            if fnmatchcase(param, scale.param):
                lr_scale, wd_scale = lr_scale * scale.lr_scale, wd_scale * scale.wd_scale
        return lr_scale, wd_scale
