"""The steps of a job that are profiled."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, Shorthand, Size


class ProfileConf(Conf):
    """``profile``: the steps that are recorded."""

    first_step: Count = 20
    """Steps to leave out, counted from where the run begins or goes on. A run that is too short records its last."""
    steps: Size = 5
    """Steps to record."""

    def window(self, first: int, train_steps: int) -> range:
        """Return the steps to record of a worker that begins at step ``first``."""
        start = min(first + self.first_step, max(train_steps - self.steps, first))
        return range(start, min(start + self.steps, train_steps))


def _as_profile(value: object) -> object:
    return ({} if value else None) if isinstance(value, bool) else value


# True stands for the default steps, and false for none.
Profile: TypeAlias = Annotated[
    ProfileConf | None, Shorthand(_as_profile, lambda either: [{"type": "boolean"}, *either["anyOf"]])
]
