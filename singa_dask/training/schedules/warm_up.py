"""WarmUp: the rates of another schedule, rising to them at the start."""

from __future__ import annotations

from singa_dask.conf import LRGenConf
from singa_dask.conf.model import Conf, Size
from singa_dask.training.schedules.schedule import SCHEDULES, Schedule

__all__ = ["WarmUp", "WarmUpConf"]


class WarmUpConf(Conf):
    """``warmup_conf``: the first ``n_steps`` rates of another schedule are scaled down."""

    n_steps: Size
    """Steps until the rate is that of the other schedule."""
    schedule: LRGenConf
    """The other schedule, as in ``learning_rate``: its type, base_lr and block."""


@SCHEDULES.register()
class WarmUp(Schedule):
    """min((t + 1) / n_steps, 1) s(t), s(t) being the rate of ``schedule``; ``base_lr`` beside it is not used.

    The gradual warm-up of Goyal et al. (2017), Accurate, large minibatch SGD. Both count steps from 0, so that the
    other schedule goes on as it would without.
    """

    block = WarmUpConf
    reads = ()

    def __init__(self, conf: LRGenConf) -> None:
        super().__init__(conf)
        self.n_steps = conf.block(WarmUpConf).n_steps
        inner = conf.block(WarmUpConf).schedule
        self.schedule = SCHEDULES.find(inner.type)(inner)

    def __call__(self, step: int) -> float:
        return min((step + 1) / self.n_steps, 1.0) * self.schedule(step)
