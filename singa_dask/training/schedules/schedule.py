"""The base of learning-rate schedules, and their registry."""

from __future__ import annotations

from typing import ClassVar

from singa_dask.conf import Conf, LRGenConf
from singa_dask.registry import Registry

__all__ = ["SCHEDULES", "Schedule", "displayed_rate"]

SCHEDULES: Registry[Schedule] = Registry("learning-rate schedule")


class Schedule:
    """A learning rate for each step: a pure function of the step.

    Parameters
    ----------
    conf : LRGenConf
        Its ``user_conf`` is for schedules of the user's own.

    Attributes
    ----------
    block : type of Conf or None
        The block of ``learning_rate`` that it reads, ``conf.block(XConf)``.
    reads : tuple of str
        Other keys of ``learning_rate`` that it reads.
    base : float
        ``base_lr``.
    """

    block: ClassVar[type[Conf] | None] = None
    reads: ClassVar[tuple[str, ...]] = ("base_lr",)

    def __init__(self, conf: LRGenConf) -> None:
        self.conf = conf
        self.base = conf.base_lr

    def __call__(self, step: int) -> float:
        """Return the rate at a step, which counts from 0."""
        raise TypeError(f"{type(self).__name__} does not say its rate: it has no __call__()")


SCHEDULES.base = Schedule


def displayed_rate(conf: LRGenConf, step: int) -> float | None:
    """Return the learning rate of a step for display.

    None where a schedule of the user's own fails: the server that applies the rate reports that error.
    """
    try:
        return SCHEDULES.find(conf.type)(conf)(step)
    except Exception:
        return None
